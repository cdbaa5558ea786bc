"""All logs of a broker: locks, starts, checkpoints, failing and full disks, deletion, background work."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from log.clocks import HandClock

from headrace.config import BrokerConfig, topic_config
from headrace.config.topic import TopicConfig
from headrace.env import Environment
from headrace.env.posix import PosixEnvironment
from headrace.log.housekeeping import Mark
from headrace.log.log import Log
from headrace.log.manager import LogDamaged, LogDirFailed, LogDirLocked, LogManager
from headrace.log.segment import Segment
from headrace.sim.disk import SimDisk
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, build_batch

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000


def by_hand(disk: SimDisk | None = None) -> Environment:
    """This machine, or one with a simulated disk, and a clock that stands still."""
    env = PosixEnvironment(disk)
    env.clock = HandClock(NOW_MS)
    return env


def make(*folders: Path | str, env: Environment | None = None, **settings: str) -> LogManager:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.load({"log.dirs": ",".join(map(str, folders)), **names}, lambda _: None)
    manager = LogManager(env or by_hand(), config)
    manager.lock()
    manager.load()
    return manager


def settings_of(manager: LogManager, **overrides: str) -> TopicConfig:
    return topic_config(manager.config, {name.replace("_", "."): value for name, value in overrides.items()})


def fill(manager: LogManager, log: Any, count: int = 10) -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", b"v" * 100, [])])
    for _ in range(count):
        assert log.append(batch, leader_epoch=0, now_ms=NOW_MS).error is ErrorCode.NONE


def clock_of(manager: LogManager) -> HandClock:
    clock = manager.env.clock
    assert isinstance(clock, HandClock)
    return clock


def at(manager: LogManager, now_ms: int) -> LogManager:
    """The manager, after time has passed until `now_ms`."""
    clock_of(manager).pass_to(now_ms)
    return manager


def run(manager: LogManager, now_ms: int) -> None:
    """What is due at a time, with what follows it."""
    for work in at(manager, now_ms).tick():
        then = work()
        while then is not None:
            more = then()
            then = more() if more is not None else None


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


def test_deletion_takes_two_steps(tmp_path: Path) -> None:
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager, file_delete_delay_ms="1000"))
    fill(manager, log)
    held = log.read(0, max_bytes=100, max_offset=10).slice
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
        log.append(batch, leader_epoch=0, now_ms=NOW_MS)
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
    manager.checkpoint_recovery_points()
    assert manager.directory_of(log).recovery_points == {}
    disk.room_bytes = 1 << 20
    manager.checkpoint_recovery_points()
    assert manager.directory_of(log).recovery_points == {("t", 0): 10}


def test_compaction_in_the_background(tmp_path: Path) -> None:
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager, cleanup_policy="compact"))
    fill(manager, log, 50)
    log.roll(now_ms=NOW_MS)
    log.flush()
    work = at(manager, NOW_MS).cleaner_work()
    assert work is not None and at(manager, NOW_MS).cleaner_work() is None
    work()
    assert log.segments[0].size < 300
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 50\n"
    assert at(manager, NOW_MS).cleaner_work() is None


def simulated(room_bytes: int = 1 << 60) -> tuple[Environment, SimDisk]:
    disk = SimDisk(random.Random(1), room_bytes=room_bytes)
    return by_hand(disk), disk


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
        manager.checkpoint_high_watermarks()
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
    assert log.append(batch, leader_epoch=0, now_ms=NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.read(0, max_bytes=100, max_offset=5).size > 0
    assert log.end_offset == 5 and log.producers.get(1) is None
    manager.checkpoint_high_watermarks()
    assert manager.online()
    disk.room_bytes = 1 << 40
    result = log.append(batch, leader_epoch=0, now_ms=NOW_MS)
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
        patched.setattr("headrace.log.manager.open_log", None)  # it is not read again: that was long, on a worker
        manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    assert manager.get_or_create("t", 1, TOPIC_ID, settings_of(manager)).end_offset == 10
    manager.shutdown()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_cut_log_starts_after_a_crash(tmp_path: Path) -> None:
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    fill(manager, log)
    log.flush()
    manager.checkpoint_recovery_points()
    manager.truncate(log, 4)
    manager.unlock()
    again = make(tmp_path)
    assert again.get_or_create("t", 0, TOPIC_ID, settings_of(again)).end_offset == 4


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
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_starts()
    manager.delete("t", 0)
    if crash_between:
        manager.unlock()
        manager = make(tmp_path)
    fill(manager, manager.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(manager)))
    manager.unlock()  # a crash
    crashed = make(tmp_path)
    again = crashed.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(crashed))
    assert (again.log_start_offset, again.end_offset) == (0, 10)


def test_an_open_log_of_another_topic_makes_way(tmp_path: Path) -> None:
    manager = make(tmp_path)
    old = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager))
    fill(manager, old)
    new = manager.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(manager))
    assert (new.topic_id, new.end_offset) == (TOPIC_ID[::-1], 0)
    assert old.directory.endswith("-delete") and new.directory != old.directory
    assert manager.get_or_create("t", 0, TOPIC_ID[::-1], settings_of(manager)) is new


HOUR_MS = 3_600_000


def cold(settings: TopicConfig, *, partitions: int = 1) -> tuple[LogManager, SimDisk, list[Log]]:
    """Logs with three segments each, of which nothing but names has been read since a clean start."""
    env, disk = simulated()
    disk.now_ms = NOW_MS
    first = make("/a", env=env)
    for index in range(partitions):
        log = first.get_or_create("t", index, TOPIC_ID, settings)
        for _ in range(3):
            fill(first, log)
            log.roll(now_ms=NOW_MS)
        fill(first, log)
    first.shutdown()
    manager = make("/a", env=env)
    return manager, disk, [manager.get_or_create("t", index, TOPIC_ID, settings) for index in range(partitions)]


def begin_retention(manager: LogManager, now_ms: int) -> Any:
    at(manager, now_ms)
    manager.retention.start()
    work = manager.retention.work(now_ms)
    assert work is not None
    return work


def test_retention_goes_to_the_disk_on_a_worker_alone(defaults: TopicConfig) -> None:
    manager, disk, (log,) = cold(replace(defaults, retention_ms=HOUR_MS, file_delete_delay_ms=0))
    log.append(build_batch([Record(0, NOW_MS + HOUR_MS, b"k", b"v", [])]), leader_epoch=0, now_ms=NOW_MS + HOUR_MS)
    before = disk.operations
    look = begin_retention(manager, NOW_MS + HOUR_MS + 1)
    assert disk.operations == before, "the event loop went to the disk"
    take_out = look()
    before, ends = disk.operations, [segment.base_offset for segment in log.segments]
    retire = take_out()
    assert disk.operations == before, "the event loop went to the disk"
    assert (log.bases, log.log_start_offset) == (ends[3:], 30)
    assert retire() is None and not log.retiring
    assert [name for name in disk.list(log.directory) if name.endswith(".log")] == ["00000000000000000030.log"]
    assert "00000000000000000000.log.deleted" in disk.list(log.directory)
    at(manager, NOW_MS + 2 * HOUR_MS).removal.run()
    assert not [name for name in disk.list(log.directory) if name.endswith(".deleted")]


def test_retention_keeps_what_changed_while_a_worker_looked(defaults: TopicConfig) -> None:
    manager, _, (log,) = cold(replace(defaults, retention_ms=HOUR_MS))
    late = NOW_MS + 2 * HOUR_MS
    take_out = begin_retention(manager, late)()
    log.append(build_batch([Record(0, late, b"k", b"v", [])]), leader_epoch=0, now_ms=late)
    take_out()()
    assert log.bases == [30], "the segment that was written to is young"
    take_out = begin_retention(manager, late + 2 * HOUR_MS)()
    log.configure(replace(log.config, retention_ms=-1))
    assert take_out() is None and log.bases == [30]


def test_a_log_that_a_worker_holds_waits_for_the_next_round(defaults: TopicConfig) -> None:
    manager, _, (log,) = cold(replace(defaults, retention_ms=HOUR_MS))
    late = NOW_MS + 2 * HOUR_MS
    take_out = begin_retention(manager, late)()
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with log.lock:
            held.set()
            let_go.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    assert take_out() is None and len(log.bases) == 4
    let_go.set()
    thread.join()
    again = manager.retention.work(late)
    assert again is not None
    take_out = again()
    assert take_out is not None and take_out() is not None and log.bases == [40]


def test_logs_that_lose_all_roll_a_few_at_a_time(defaults: TopicConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.log.housekeeping.ROLLED_AT_ONCE", 2)
    manager, _, logs = cold(replace(defaults, retention_ms=HOUR_MS), partitions=5)
    left = []
    for _ in range(3):
        work = manager.retention.work(NOW_MS + 2 * HOUR_MS) or begin_retention(manager, NOW_MS + 2 * HOUR_MS)
        work()()
        left.append(sum(log.bases != [40] for log in logs))
    assert left == [3, 1, 0]


def test_a_topic_deleted_before_its_old_segments_are_renamed(defaults: TopicConfig) -> None:
    manager, disk, (log,) = cold(replace(defaults, retention_ms=HOUR_MS))
    retire = begin_retention(manager, NOW_MS + 2 * HOUR_MS)()()
    assert len(log.retiring) == 4
    manager.delete("t", 0)
    new = manager.get_or_create("t", 0, bytes(15) + b"\x08", log.config)
    fill(manager, new)
    retire()
    assert [name for name in disk.list(new.directory) if ".log" in name] == ["00000000000000000000.log"]
    assert "00000000000000000000.log.deleted" in disk.list(log.directory)


def test_a_segment_that_cannot_be_renamed_is_renamed_later(defaults: TopicConfig) -> None:
    manager, disk, (log,) = cold(replace(defaults, retention_ms=HOUR_MS))
    late = NOW_MS + 2 * HOUR_MS
    retire = begin_retention(manager, late)()()
    disk.fail = lambda operation, path: OSError(errno.ENOSPC, "full", path) if operation == "rename" else None
    retire()
    assert len(log.retiring) == 4
    disk.fail = None
    begin_retention(manager, late)()()()
    assert not log.retiring
    retire = begin_retention(manager, late)()
    assert retire() is None


def test_retention_tells_of_a_failing_disk(defaults: TopicConfig) -> None:
    manager, disk, _ = cold(replace(defaults, retention_ms=HOUR_MS))
    disk.fail = lambda operation, path: OSError(errno.EIO, "bad", path) if operation == "read" else None
    with pytest.raises(LogDirFailed):
        begin_retention(manager, NOW_MS + 2 * HOUR_MS)()


@pytest.mark.parametrize("setting", ["min_compaction_lag_ms", "max_compaction_lag_ms"])
def test_the_log_to_compact_is_chosen_on_a_worker(defaults: TopicConfig, setting: str) -> None:
    compact = replace(defaults, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=1.0)
    manager, disk, (log,) = cold(replace(compact, **{setting: HOUR_MS}))  # type: ignore[arg-type]
    before = disk.operations
    work = at(manager, NOW_MS + 2 * HOUR_MS).cleaner_work()
    assert work is not None and disk.operations == before, "the event loop went to the disk"
    assert manager.is_cleaning and at(manager, NOW_MS + 2 * HOUR_MS).cleaner_work() is None
    work()
    assert not manager.is_cleaning
    cleaned = setting == "max_compaction_lag_ms"  # all is dirty: no ratio is above 1
    assert (log.segments[0].size < 300) == cleaned
    if not cleaned:
        assert at(manager, NOW_MS + 2 * HOUR_MS + 1).cleaner_work() is None, "it looks again after the backoff"


def test_a_log_that_cannot_be_compacted_is_tried_again_once_its_data_change(defaults: TopicConfig) -> None:
    manager, disk, (log,) = cold(replace(defaults, cleanup_policy=frozenset({"compact", "delete"})))
    told: list[str] = []
    manager.compaction.on_uncleanable = lambda log, why: told.append(f"{log.name}: {why}")
    disk.damage(log.segments[1].path, 70, 0xEE)
    for later in range(2):
        work = at(manager, NOW_MS + later).cleaner_work()
        if work is not None:
            work()
    (line,) = told
    assert line.startswith("t-0: /a/t-0/00000000000000000010.log") and log in manager.compaction.uncleanable
    assert at(manager, NOW_MS + HOUR_MS).cleaner_work() is None, "it is left alone"
    log.delete_records_before(20)
    log.maybe_delete_old_segments(NOW_MS)
    work = at(manager, NOW_MS + 2 * HOUR_MS).cleaner_work()
    assert work is not None and not manager.compaction.uncleanable
    work()
    assert log.segments[0].size < 300 and len(told) == 1
    manager.compaction.uncleanable[log] = Mark("bad", log.segments[0], log.segments[0].size)
    manager.delete("t", 0)
    assert at(manager, NOW_MS + 3 * HOUR_MS).cleaner_work() is None and not manager.compaction.uncleanable


def test_what_is_doomed_while_others_are_removed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = make(tmp_path)
    logs = [manager.get_or_create("t", n, TOPIC_ID, settings_of(manager)) for n in range(2)]
    manager.removal.add_files([logs[0].active], 0)
    remove_files = Segment.remove_files

    def remove(segment: Segment) -> None:
        manager.removal.add_files([logs[1].active], 0)
        remove_files(segment)

    monkeypatch.setattr(Segment, "remove_files", remove)
    manager.removal.run()
    monkeypatch.undo()
    manager.removal.run()
    assert not [name for log in logs for name in os.listdir(log.directory) if name.endswith(".log")]


def test_producers_expire_by_what_is_in_force_now(tmp_path: Path) -> None:
    manager = make(tmp_path, producer_id_expiration_check_interval_ms="1000")
    logs = [manager.get_or_create("t", index, TOPIC_ID, settings_of(manager)) for index in range(2)]
    batch = build_batch([Record(0, NOW_MS, b"k", b"v", [])], producer_id=1, producer_epoch=0, base_sequence=0)
    for log in logs:
        assert log.append(batch, leader_epoch=0, now_ms=NOW_MS).error is ErrorCode.NONE
    run(manager, NOW_MS)
    run(manager, NOW_MS + 5_000)
    assert [len(log.producers) for log in logs] == [1, 1]
    manager.config = manager.config.with_overrides({}, {"producer.id.expiration.ms": "4000"})
    run(manager, NOW_MS + 5_999)
    assert [len(log.producers) for log in logs] == [1, 1]  # not looked for yet
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        with logs[0].lock:
            locked.set()
            assert release.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(30)
    run(manager, NOW_MS + 6_000)
    assert [len(log.producers) for log in logs] == [1, 0]  # a worker is at the first one
    release.set()
    holder.join()
    run(manager, NOW_MS + 6_001)
    assert [len(log.producers) for log in logs] == [0, 0]
    manager.shutdown()


DAY_MS = 24 * HOUR_MS
SHORT = {
    "log_flush_offset_checkpoint_interval_ms": "1000",
    "log_flush_start_offset_checkpoint_interval_ms": "1000",
    "replica_high_watermark_checkpoint_interval_ms": "1000",
    "log_retention_check_interval_ms": "1000",
    "log_cleaner_backoff_ms": "1000",
    "producer_id_expiration_check_interval_ms": "1000",
}


@pytest.mark.parametrize("jump_ms", [-DAY_MS, DAY_MS])
def test_a_wall_clock_that_is_set_stops_no_background_work(tmp_path: Path, jump_ms: int) -> None:
    manager = make(tmp_path, **SHORT)
    clock = clock_of(manager)
    settings = settings_of(manager, segment_bytes="1048576", flush_ms="500", file_delete_delay_ms="1000")
    log = manager.get_or_create("t", 0, TOPIC_ID, replace(settings, retention_bytes=500_000, retention_ms=-1))
    compacted = manager.get_or_create("c", 0, TOPIC_ID, replace(settings, cleanup_policy=frozenset({"compact"})))
    batch = build_batch([Record(0, NOW_MS - 2 * DAY_MS, b"k", bytes(400_000), [])])
    high_watermark = 7
    manager.watch_high_watermarks(lambda key: high_watermark if key == ("u", 0) else None)
    manager.get_or_create("u", 0, TOPIC_ID, settings)

    def once(later_ms: int) -> None:
        for each in (log, compacted):
            for _ in range(3):
                assert each.append(batch, leader_epoch=0, now_ms=clock.wall_ms).error is ErrorCode.NONE
        clock.steady_s += later_ms / 1000
        clock.wall_ms += later_ms
        for _ in range(2):
            for work in manager.tick():
                then = work()
                while then is not None:
                    more = then()
                    then = more() if more is not None else None
            clock.steady_s += 1
        while (clean := manager.cleaner_work()) is not None:
            clean()

    once(1000)
    once(1000)
    clock.wall_ms += jump_ms
    before = log.log_start_offset, compacted.size_bytes()
    high_watermark = 8
    once(1000)
    assert log.flushed_offset == log.end_offset, "flush.ms"
    assert log.log_start_offset > before[0], "retention"
    assert compacted.size_bytes() <= before[1], "compaction"

    def checkpoint(name: str) -> list[str]:
        return (tmp_path / f"{name}-offset-checkpoint").read_text().splitlines()

    assert f"t 0 {log.flushed_offset}" in checkpoint("recovery-point")
    assert "u 0 8" in checkpoint("replication")
    assert not manager.removal.is_due()
    assert not [name for name in os.listdir(log.directory) if name.endswith(".deleted")], "removal"


def test_logs_are_opened_while_the_manager_looks_for_those_to_flush(tmp_path: Path) -> None:
    manager = make(tmp_path)
    log = manager.get_or_create("t", 0, TOPIC_ID, settings_of(manager, flush_ms="1"))
    done = threading.Event()

    def open_more() -> None:
        for number in range(30_000):
            manager.logs["t", number] = log
        done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        worker = threading.Thread(target=open_more)
        worker.start()
        while not done.is_set():
            manager.tick()
        worker.join()
    finally:
        sys.setswitchinterval(interval)
    manager.unlock()
