"""Retention, compaction, flushes, checkpoints, removal and the expiry of producers, over the logs of a manager."""

from __future__ import annotations

import errno
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from log.managers import HOUR_MS, NOW_MS, TOPIC_ID, at, clock_of, fill, make, run, settings_of, simulated

from headrace.config.topic import TopicConfig
from headrace.log import cleaner
from headrace.log.housekeeping import Mark
from headrace.log.log import Log
from headrace.log.manager import LogDirFailed, LogManager
from headrace.log.segment import Segment
from headrace.sim.disk import SimDisk
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, build_batch


def cold(settings: TopicConfig, *, partitions: int = 1) -> tuple[LogManager, SimDisk, list[Log]]:
    """Logs with three segments each, of which nothing but names has been read since a clean start."""
    env, disk = simulated()
    disk.now_ms = NOW_MS
    first = make("/a", env=env)
    for index in range(partitions):
        log = first.get_or_create("t", index, TOPIC_ID, settings)
        for _ in range(3):
            fill(first, log)
            log.writer.roll(now_ms=NOW_MS)
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
    batch = build_batch([Record(0, NOW_MS + HOUR_MS, b"k", b"v", [])])
    log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS + HOUR_MS)
    before = disk.operations
    look = begin_retention(manager, NOW_MS + HOUR_MS + 1)
    assert disk.operations == before, "the event loop went to the disk"
    take_out = look()
    before, ends = disk.operations, [segment.base_offset for segment in log.segments]
    retire = take_out()
    assert disk.operations == before, "the event loop went to the disk"
    assert (log.bases, log.log_start_offset) == (ends[3:], 30)
    assert retire() is None and not log.state.segment_list.retiring
    assert [name for name in disk.list(log.directory) if name.endswith(".log")] == ["00000000000000000030.log"]
    assert "00000000000000000000.log.deleted" in disk.list(log.directory)
    at(manager, NOW_MS + 2 * HOUR_MS).removal.run()
    assert not [name for name in disk.list(log.directory) if name.endswith(".deleted")]


def test_retention_keeps_what_changed_while_a_worker_looked(defaults: TopicConfig) -> None:
    manager, _, (log,) = cold(replace(defaults, retention_ms=HOUR_MS))
    late = NOW_MS + 2 * HOUR_MS
    take_out = begin_retention(manager, late)()
    log.writer.append(build_batch([Record(0, late, b"k", b"v", [])]), leader_epoch=0, now_ms=late)
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
        piece = work()
        assert piece is not None
        piece()
        left.append(sum(log.bases != [40] for log in logs))
    assert left == [3, 1, 0]


def test_a_topic_deleted_before_its_old_segments_are_renamed(defaults: TopicConfig) -> None:
    manager, disk, (log,) = cold(replace(defaults, retention_ms=HOUR_MS))
    retire = begin_retention(manager, NOW_MS + 2 * HOUR_MS)()()
    assert len(log.state.segment_list.retiring) == 4
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
    assert len(log.state.segment_list.retiring) == 4
    disk.fail = None
    begin_retention(manager, late)()()()
    assert not log.state.segment_list.retiring
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
    manager.compaction.when_uncleanable(lambda log, why: told.append(f"{log.name}: {why}"))
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
        assert log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS).error is ErrorCode.NONE
    run(manager, NOW_MS)
    run(manager, NOW_MS + 5_000)
    assert [len(log.producers) for log in logs] == [1, 1]
    manager.configure(manager.config.with_overrides({}, {"producer.id.expiration.ms": "4000"}))
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
    manager = make(tmp_path, env=None, **SHORT)
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
                assert each.writer.append(batch, leader_epoch=0, now_ms=clock.wall_ms).error is ErrorCode.NONE
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
    assert log.flushing.flushed_offset == log.end_offset, "flush.ms"
    assert log.log_start_offset > before[0], "retention"
    assert compacted.size_bytes() <= before[1], "compaction"

    def checkpoint(name: str) -> list[str]:
        return (tmp_path / f"{name}-offset-checkpoint").read_text().splitlines()

    assert f"t 0 {log.flushing.flushed_offset}" in checkpoint("recovery-point")
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


def test_a_log_that_cannot_be_compacted_does_not_keep_others_from_it(
    defaults: TopicConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _, logs = cold(replace(defaults, cleanup_policy=frozenset({"compact"})), partitions=3)
    told: list[str] = []
    manager.compaction.when_uncleanable(lambda log, why: told.append(f"{log.name}: {why}"))
    clean, examine = cleaner.clean, cleaner.examine

    def defective(found: cleaner.Candidate, *others: Any) -> cleaner.Cleaned:
        if found.log is logs[0]:
            raise ZeroDivisionError("a defect")
        return clean(found, *others)

    def confused(found: cleaner.Dirty, now_ms: int) -> cleaner.Candidate | None:
        if found.log is logs[1]:
            raise ZeroDivisionError("another")
        return examine(found, now_ms)

    monkeypatch.setattr(cleaner, "clean", defective)
    monkeypatch.setattr(cleaner, "examine", confused)
    defects = 0
    for _ in range(5):
        if (work := manager.cleaner_work()) is not None:
            try:
                work()
            except ZeroDivisionError:
                defects += 1
    assert defects == 2 and len(told) == 2
    assert logs[2].segments[0].size < 300
    assert manager.cleaner_work() is None


def test_what_a_compaction_that_stopped_had_replaced_is_removed(
    defaults: TopicConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, disk, (log,) = cold(
        replace(defaults, cleanup_policy=frozenset({"compact"}), segment_bytes=1900, file_delete_delay_ms=1000)
    )
    clean_group, count = cleaner._clean_group, 0

    def second_fails(*arguments: Any) -> Segment:
        nonlocal count
        count += 1
        if count == 2:
            raise OSError(errno.ENOSPC, "full")
        return clean_group(*arguments)

    monkeypatch.setattr(cleaner, "_clean_group", second_fails)
    work = manager.cleaner_work()
    assert work is not None
    work()
    assert count == 2 and [name for name in disk.list(log.directory) if name.endswith(".deleted")]
    run(manager, NOW_MS + 2000)
    assert not [name for name in disk.list(log.directory) if name.endswith(".deleted")]
