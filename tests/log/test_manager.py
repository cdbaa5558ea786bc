"""All logs of a broker: locks, starts, checkpoints, failing and full disks, deletion, background work."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from log.conftest import read_at
from log.managers import NOW_MS, TOPIC_ID, at, fill, make, run, settings_of, simulated

from headrace.log.log import Log
from headrace.log.manager import LogDamaged, LogDirFailed, LogDirLocked
from headrace.sim.disk import PowerCut
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, build_batch


def test_a_broker_that_was_never_registered_leaves_the_epoch_of_the_one_before(tmp_path: Path) -> None:
    """It found no controller, and was stopped: nothing was written, so the next one is as eligible as it was."""
    make(tmp_path).shutdown(broker_epoch=42)
    for _ in range(2):
        unregistered = make(tmp_path)
        assert [home.broker_epoch for home in unregistered.online()] == [42]
        unregistered.shutdown()
    crashed = make(tmp_path)
    crashed.unlock()
    again = make(tmp_path)
    assert [home.broker_epoch for home in again.online()] == [-1]
    again.shutdown()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'


def test_a_clean_stop_and_start(tmp_path: Path) -> None:
    manager = make(tmp_path / "a", tmp_path / "b")
    logs = [manager.get_or_create("t", index, TOPIC_ID, settings_of(manager)) for index in range(4)]
    assert sorted(Path(log.directory).parent.name for log in logs) == ["a", "a", "b", "b"]
    for log in logs:
        fill(manager, log)
    manager.shutdown(broker_epoch=42)
    assert (tmp_path / "a/.kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":42}'
    assert (tmp_path / "a/recovery-point-offset-checkpoint").read_text().splitlines()[1] == "2"
    assert sorted(os.listdir(logs[0].directory)) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.seal",
        "00000000000000000000.timeindex",
        "00000000000000000010.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    again = make(tmp_path / "a", tmp_path / "b")
    assert again.was_clean and again.found() == [("t", index) for index in range(4)]
    assert not (tmp_path / "a/.kafka_cleanshutdown").exists()
    log = again.get_or_create("t", 1, TOPIC_ID, settings_of(again))
    assert (log.end_offset, log.recovery_point, log.topic_id) == (10, 10, TOPIC_ID)
    assert log.recovery_report.batches_scanned == 0
    again.unlock()
    crashed = make(tmp_path / "a", tmp_path / "b")
    assert not crashed.was_clean
    assert crashed.get_or_create("t", 1, TOPIC_ID, settings_of(crashed)).end_offset == 10


def test_two_brokers_exclude_each_other(tmp_path: Path) -> None:
    manager = make(tmp_path)
    with pytest.raises(LogDirLocked, match="another broker"):
        make(tmp_path)
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'a+b')\n"
        "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('free')\n"
        "except OSError: print('held')"
    )

    def other_process() -> str:
        return subprocess.check_output([sys.executable, "-c", program, str(tmp_path / ".lock")], text=True).strip()

    assert other_process() == "held"
    manager.shutdown()
    assert other_process() == "free"
    make(tmp_path).unlock()


def test_a_folder_of_a_deleted_topic_is_set_aside(tmp_path: Path) -> None:
    manager = make(tmp_path)
    fill(manager, manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager)))
    manager.shutdown()
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, bytes(15) + b"\x07", settings_of(manager))
    assert log.end_offset == 0
    assert len([name for name in os.listdir(tmp_path) if name.endswith("-stray")]) == 1


@pytest.mark.parametrize("left", [b"", b"version: 0\ntopi", bytes(58)])
def test_a_log_of_nobody_knows_which_topic_is_set_aside(tmp_path: Path, left: bytes) -> None:
    """A power loss took back the deletion of a topic, and tore the file that says which one it was."""
    manager = make(tmp_path)
    fill(manager, manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager)))
    manager.unlock()
    (tmp_path / "t-0/partition.metadata").write_bytes(left)
    again = make(tmp_path)
    log = again.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(again))
    assert (log.topic_id, log.end_offset) == (TOPIC_ID[::-1], 0)
    (stray,) = [name for name in os.listdir(tmp_path) if name.endswith("-stray")]
    assert log.recovery_report.stray == str(tmp_path / stray)
    assert (tmp_path / stray / "00000000000000000000.log").stat().st_size > 0


def test_a_log_from_before_topics_had_ids_gets_one_for_good(tmp_path: Path) -> None:
    manager = make(tmp_path)
    fill(manager, manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager)))
    manager.shutdown()
    (tmp_path / "t-0/partition.metadata").unlink()
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    assert (log.topic_id, log.end_offset, log.recovery_report.stray) == (TOPIC_ID, 10, "")
    manager.shutdown()
    manager = make(tmp_path)
    assert manager.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(manager)).end_offset == 0


def test_deletion_takes_two_steps(tmp_path: Path) -> None:
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager, file_delete_delay_ms="1000"))
    fill(manager, log)
    held = read_at(log, 0, max_bytes=100, max_offset=10).slice
    before = held.read()  # type: ignore[union-attr]
    manager.delete("t", 0)
    assert manager.get("t", 0) is None
    (doomed,) = [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    assert doomed.startswith("t-0.")
    assert held.read() == before  # type: ignore[union-attr]
    now_ms = manager.env.clock.now_ms()
    for work in at(manager, now_ms).tick():
        work()
    assert (tmp_path / doomed).exists()
    for work in at(manager, now_ms + 2000).tick():
        work()
    assert not (tmp_path / doomed).exists()
    fresh = manager.get_or_create("t", 0, bytes(15) + b"\x08", settings_of(manager))
    assert fresh.end_offset == 0


def test_background_work(tmp_path: Path) -> None:
    manager = make(tmp_path, log_flush_offset_checkpoint_interval_ms="1000")
    log = manager.get_or_create(
        "t", 0, TOPIC_ID, settings_of(manager, segment_bytes="1048576", retention_bytes="1048576", flush_ms="500")
    )
    batch = build_batch([Record(0, NOW_MS, b"k", bytes(100_000), [])])
    for _ in range(30):
        log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS)
    now_ms = manager.env.clock.now_ms()
    at(manager, now_ms).tick()
    for later in (1_000, 300_000, 301_000, 400_000):
        run(manager, now_ms + later)
    assert log.recovery_point == 30
    assert log.size_bytes() < 2 * 1048576 and log.log_start_offset > 0
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 30\n"
    assert not [name for name in os.listdir(log.directory) if name.endswith(".deleted")]


@pytest.mark.parametrize("why", ["a full disk", "another log's defect"])
def test_a_flush_that_fails_stays_due(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    env, _ = simulated()
    manager = make("/a", env=env)
    logs = [manager.get_or_create("t", n, TOPIC_ID, settings_of(manager, flush_messages="5")) for n in range(3)]
    for log in logs:
        fill(manager, log)
    flush, failing = Log.flush, [True]

    def failed(log: Log, up_to: int | None = None) -> int:
        if failing and why == "a full disk":
            raise OSError(errno.ENOSPC, "no space")
        if failing:
            raise RuntimeError("a defect")
        return flush(log, up_to)

    monkeypatch.setattr(Log, "flush", failed)
    now_ms = manager.env.clock.now_ms()
    for work in at(manager, now_ms).tick():
        with contextlib.suppress(RuntimeError):
            work()
    failing.clear()
    assert [log.recovery_point for log in logs] == [0, 0, 0]
    for work in at(manager, now_ms + 1000).tick():
        work()
    assert [log.recovery_point for log in logs] == [10, 10, 10]
    assert not at(manager, now_ms + 2000).tick()


def test_a_full_disk_keeps_recovery_points_back_with_the_indexes(tmp_path: Path) -> None:
    env, disk = simulated()
    manager = make("/a", env=env)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager, index_interval_bytes="100"))
    fill(manager, log)
    log.flush()
    disk.room_bytes = 0
    manager.checkpoints.write_recovery_points()
    assert manager.directory_of(log).recovery_points == {}
    disk.room_bytes = 1 << 20
    manager.checkpoints.write_recovery_points()
    assert manager.directory_of(log).recovery_points == {("t", 0): 10}


def test_compaction_in_the_background(tmp_path: Path) -> None:
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager, cleanup_policy="compact"))
    fill(manager, log, 50)
    log.writer.roll(now_ms=NOW_MS)
    log.flush()
    work = at(manager, NOW_MS).cleaner_work()
    assert work is not None and at(manager, NOW_MS).cleaner_work() is None
    work()
    assert log.segments[0].size < 300
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 50\n"
    assert at(manager, NOW_MS).cleaner_work() is None


def test_a_failed_directory_takes_only_its_partitions(tmp_path: Path) -> None:
    env, disk = simulated()
    manager = make("/a", "/b", env=env)
    logs = [manager.get_or_create("t", index, TOPIC_ID, settings_of(manager)) for index in range(4)]
    for log in logs:
        fill(manager, log)
    disk.fail = lambda _, path: OSError(errno.EIO, "bad sector", path) if path.startswith("/a") else None
    broken = next(log for log in logs if log.directory.startswith("/a"))
    with pytest.raises(OSError):
        fill(manager, broken)
    with pytest.raises(LogDirFailed) as failed:
        manager.checkpoints.write_high_watermarks()
    gone = manager.directory_failed(failed.value.directory, failed.value)
    assert sorted(gone) == sorted(log.topic_partition for log in logs if log.directory.startswith("/a"))
    for log in manager:
        fill(manager, log)
    assert len(list(manager)) == 2
    new = manager.get_or_create("u", 0, TOPIC_ID, settings_of(manager))
    assert new.directory == "/b/u-0"
    manager.shutdown()
    disk.fail = None
    assert disk.exists("/b/.kafka_cleanshutdown") and not disk.exists("/a/.kafka_cleanshutdown")


def test_a_full_disk_refuses_writes_and_heals(tmp_path: Path) -> None:
    env, disk = simulated()
    manager = make("/a", env=env)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    fill(manager, log, 5)
    batch = build_batch([Record(0, NOW_MS, b"k", b"v", [])], producer_id=1, producer_epoch=0, base_sequence=0)
    disk.room_bytes = 50
    assert log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert read_at(log, 0, max_bytes=100, max_offset=5).size > 0
    assert log.end_offset == 5 and log.producers.get(1) is None
    manager.checkpoints.write_high_watermarks()
    assert manager.online()
    disk.room_bytes = 1 << 40
    result = log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS)
    assert (result.error, result.base_offset, result.duplicate) == (ErrorCode.NONE, 5, False)


def test_damage_takes_one_partition_offline_and_stays_unclean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = make(tmp_path)
    for index in range(2):
        fill(manager, manager.get_or_create("t", index, TOPIC_ID, settings_of(manager)))
    manager.shutdown()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with open(tmp_path / "t-0/00000000000000000000.log", "r+b") as file:
        file.truncate(300)
    manager = make(tmp_path)
    with pytest.raises(LogDamaged):
        manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    assert manager.damaged["t", 0].path.endswith("t-0/00000000000000000000.log")
    with monkeypatch.context() as patched, pytest.raises(LogDamaged, match="is damaged at byte"):
        patched.setattr("headrace.log.opening.open_log", None)  # it is not read again: that was long, on a worker
        manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    assert manager.get_or_create("t", 1, TOPIC_ID, settings_of(manager)).end_offset == 10
    manager.shutdown()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_cut_log_starts_after_a_crash(tmp_path: Path) -> None:
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    fill(manager, log)
    log.flush()
    manager.checkpoints.write_recovery_points()
    manager.truncate(log, 4)
    manager.unlock()
    again = make(tmp_path)
    assert again.get_or_create("t", 0, TOPIC_ID, settings_of(again)).end_offset == 4


@pytest.mark.parametrize("how", ["a cut in its first segment", "a cut in its second", "begun elsewhere", "begun below"])
def test_a_process_that_dies_while_it_cuts_a_log_leaves_one_that_starts(how: str) -> None:
    """The checkpoint must not say of what was cut that it was safe."""
    deaths = 0
    while True:
        env, disk = simulated()
        manager = make("/a", env=env)
        log = manager.get_or_create("t", 0, TOPIC_ID, replace(settings_of(manager), segment_bytes=800))
        fill(manager, log)
        assert len(log.segments) > 1
        log.flush()
        manager.checkpoints.write_recovery_points()
        left = deaths

        def die(_operation: str, _path: str) -> OSError | None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCut
            return None

        disk.fail = die
        with contextlib.suppress(PowerCut, LogDirFailed):
            if how.startswith("begun"):
                manager.start_at(log, 100 if how == "begun elsewhere" else 2)
            else:
                manager.truncate(log, 3 if how == "a cut in its first segment" else 8)
        disk.fail = None
        disk.kill()
        again = make("/a", env=env)
        assert again.get_or_create("t", 0, TOPIC_ID, settings_of(again)).end_offset <= 100, deaths
        deaths += 1
        if left >= 0:
            break
    assert deaths > 3


def test_a_partition_in_two_directories_is_settled_at_start(tmp_path: Path) -> None:
    manager = make(tmp_path / "a", tmp_path / "b")
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager), directory=str(tmp_path / "a"))
    fill(manager, log)
    manager.shutdown()
    subprocess.check_call(["cp", "-r", str(tmp_path / "a/t-0"), str(tmp_path / "b/t-0")])
    with open(tmp_path / "a/t-0/00000000000000000000.log", "r+b") as file:
        file.truncate(300)
    manager = make(tmp_path / "a", tmp_path / "b")
    assert manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager)).directory == str(tmp_path / "b/t-0")
    assert not (tmp_path / "a/t-0").exists()


def test_an_idle_partition_is_small(tmp_path: Path) -> None:
    import tracemalloc

    manager = make(tmp_path)
    config = settings_of(manager)
    manager.get_or_create("t", 0, TOPIC_ID, config)
    tracemalloc.start()
    for index in range(1, 301):
        manager.get_or_create("t", index, TOPIC_ID, config)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / 300 < 2048


@pytest.mark.parametrize("crash_between", [False, True])
def test_checkpoints_of_a_deleted_topic_do_not_reach_its_successor(tmp_path: Path, crash_between: bool) -> None:
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    fill(manager, log, 50)
    log.flush()
    log.delete_records_before(40)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_log_starts()
    manager.checkpoints.write_high_watermarks()
    manager.delete("t", 0)
    if crash_between:
        manager.unlock()
        manager = make(tmp_path)
    fill(manager, manager.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(manager)))
    manager.unlock()  # a crash
    crashed = make(tmp_path)
    again = crashed.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(crashed))
    assert (again.log_start_offset, again.end_offset) == (0, 10)
    assert ("t", 0) not in crashed.directory_of(again).high_watermarks


def test_an_open_log_of_another_topic_makes_way(tmp_path: Path) -> None:
    manager = make(tmp_path)
    old = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    fill(manager, old)
    new = manager.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(manager))
    assert (new.topic_id, new.end_offset) == (TOPIC_ID[::-1], 0)
    assert old.directory.endswith("-delete") and new.directory != old.directory
    assert manager.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(manager)) is new


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_what_says_nothing_about_the_disk_fails_no_directory(number: int) -> None:
    env, disk = simulated()
    manager = make("/a", env=env)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    fill(manager, log, 5)

    def short(operation: str, path: str) -> OSError | None:
        return OSError(number, os.strerror(number), path) if operation in ("open", "write", "rename") else None

    disk.fail = short
    with pytest.raises(OSError) as refused:
        manager.get_or_create("new", 0, TOPIC_ID, settings_of(manager))
    assert refused.value.errno == number and not isinstance(refused.value, LogDirFailed)
    for checkpoint in (
        manager.checkpoints.write_recovery_points,
        manager.checkpoints.write_log_starts,
        manager.checkpoints.write_high_watermarks,
    ):
        checkpoint()
    result = log.writer.append(build_batch([Record(0, NOW_MS, b"k", b"v", [])]), leader_epoch=0, now_ms=NOW_MS)
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
    manager.delete("t", 0)
    assert len(manager.online()) == 1
    disk.fail = None
    assert manager.get_or_create("new", 0, TOPIC_ID, settings_of(manager)).end_offset == 0
    assert manager.get_or_create("t", 0, bytes(15) + b"\x07", settings_of(manager)).end_offset == 0
    manager.shutdown()
    again = make("/a", env=env)
    assert again.was_clean and again.found() == [("new", 0), ("t", 0)]


def test_at_most_so_many_segments_hold_their_file_open(tmp_path: Path) -> None:
    manager = make(tmp_path, log_open_segments_max="16")
    logs = [manager.get_or_create("t", index, TOPIC_ID, settings_of(manager)) for index in range(40)]
    for log in logs:
        fill(manager, log, 1)
    assert sum(log.active.open_file is not None for log in logs) == 16
    for log in logs:
        fill(manager, log, 1)
        assert log.end_offset == 2
    manager.shutdown()


def test_a_log_whose_directory_fails_is_not_begun_elsewhere(tmp_path: Path) -> None:
    """An empty log in its place would be a hole where acknowledged records were, found at the next start by nobody."""
    manager = make(tmp_path / "a", tmp_path / "b")
    config = settings_of(manager)
    for index in range(2):
        fill(manager, manager.get_or_create("t", index, TOPIC_ID, config), 3)
    home = manager.directory_of(manager.logs["t", 1])
    manager.shutdown()
    manager.unlock()
    again = make(tmp_path / "a", tmp_path / "b")
    again.directory_failed(home.path, OSError(5, "Input/output error"))
    for _ in range(2):
        with pytest.raises(LogDirFailed):
            again.get_or_create("t", 1, TOPIC_ID, config)
    assert [len(each.found) for each in again.online()] == [1]
    again.delete("t", 1)
    assert again.get_or_create("t", 1, bytes(range(1, 17)), config).end_offset == 0, "another topic of that name"


def test_a_log_forgets_producers_after_the_time_that_is_set(tmp_path: Path) -> None:
    for expected in (86_400_000, 5000):
        manager = make(tmp_path, producer_id_expiration_ms=str(expected))
        log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
        assert log.producers.expiration_ms == expected
        manager.shutdown()
        manager.unlock()
