"""What a log knows of its batches after a power loss: nothing that was not safe on the disk is believed."""

from __future__ import annotations

import random
from dataclasses import replace
from threading import RLock

import pytest
from log.managers import TOPIC_ID, by_hand, make
from peers.tried import tried

from headrace.config.topic import TopicConfig
from headrace.log import retention
from headrace.log.log import Log
from headrace.log.moves import begin_move, copy_piece, finish_move, next_piece
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.log.scan import Scan
from headrace.sim.disk import SimDisk
from headrace.wire.records import Record, build_batch

NOW_MS = 1_750_000_000_000


@pytest.fixture
def config(defaults: TopicConfig) -> TopicConfig:
    return replace(defaults, index_interval_bytes=150, segment_bytes=1500, retention_ms=60_000)


def opened(disk: SimDisk, config: TopicConfig, **keywords: int | bool) -> Log:
    return open_log(Resources(disk, RLock), "/t-0", ("t", 0), config, now_ms=NOW_MS, **keywords)  # type: ignore[arg-type]


def new_disk(rng: random.Random) -> SimDisk:
    disk = SimDisk(rng)
    disk.make_dirs("/t-0")
    disk.sync_directory("/")
    return disk


def add(log: Log, timestamp: int) -> None:
    batch = build_batch([Record(0, timestamp, b"k", b"v" * 30, [])])
    assert not log.writer.append(batch, leader_epoch=0, now_ms=timestamp).error


def checkpoint(log: Log) -> int:
    """The recovery point that a manager would have on its disk now."""
    point = log.recovery_point
    log.flushing.sync_indexes()
    return point


def assert_indexes_are_true(log: Log, context: object) -> None:
    for segment in log.segments:
        batches = [(at, header) for at, header, _ in Scan(segment.file(), 0, segment.size)]
        newest = max((header.max_timestamp for _, header in batches), default=-1)
        assert segment.max_timestamp == newest, (context, segment.base_offset)
        places = {header.last_offset - segment.base_offset: at for at, header in batches}
        for entry in segment.index.entries():
            assert places.get(entry >> 32) == entry & 0xFFFFFFFF, (context, segment.base_offset)
        times = {header.last_offset - segment.base_offset: header.max_timestamp for _, header in batches}
        for timestamp, relative in segment.time_index.entries():
            assert times.get(relative) == timestamp, (context, segment.base_offset)


@pytest.mark.parametrize("stop", ["power loss after a roll", "power loss after a clean stop"])
def test_the_last_time_of_a_closed_segment_survives_or_is_read_again(config: TopicConfig, stop: str) -> None:
    torn = 0
    for seed in range(400):
        disk = new_disk(random.Random(seed))
        log = opened(disk, config)
        add(log, NOW_MS)
        log.flush()
        point = checkpoint(log)
        if stop == "power loss after a roll":
            log.writer.roll(now_ms=NOW_MS)
        else:
            log.close()
        path = "/t-0/00000000000000000000.timeindex"
        before = disk.read_file(path)
        disk.sync_directory("/t-0")
        disk.crash()
        torn += not disk.exists(path) or disk.read_file(path) != before
        again = opened(disk, config, recovery_point=point, clean=stop.endswith("stop"))
        assert_indexes_are_true(again, seed)
        assert not retention.expired(again.state, NOW_MS + 1000).segments, seed
    if stop == "power loss after a roll":
        assert torn > 20


def test_after_any_power_loss_the_indexes_say_what_the_batches_say(config: TopicConfig) -> None:
    for seed in range(tried(400)):
        rng = random.Random(seed)
        disk = new_disk(rng)
        log, point, now_ms = opened(disk, config), 0, NOW_MS
        steps = []
        for _ in range(rng.randint(5, 60)):
            step = rng.choice(("add", "add", "add", "add", "flush", "checkpoint", "roll", "cut", "lost", "closed"))
            steps.append(step)
            if step == "add":
                for _ in range(rng.randint(1, 6)):
                    now_ms += rng.choice((-5, 0, 1, 10, 3_000_000_000))
                    add(log, now_ms)
            elif step == "flush":
                log.flush()
            elif step == "checkpoint":
                point = checkpoint(log)
            elif step == "roll":
                log.writer.roll(now_ms=NOW_MS)
            elif step == "cut":
                log.truncate_to(rng.randint(max(log.end_offset - 8, 0), log.end_offset), now_ms=NOW_MS)
                point = min(point, log.recovery_point)
            else:
                if step == "closed":
                    log.close()
                    point = log.recovery_point
                disk.crash()
                log = opened(disk, config, recovery_point=point, clean=step == "closed")
                assert log.end_offset >= point, (seed, steps)
                assert_indexes_are_true(log, (seed, steps))


def test_a_log_that_was_moved_has_safe_indexes_below_its_recovery_point(config: TopicConfig) -> None:
    config = replace(config, segment_bytes=1 << 20)
    for seed in range(100):
        disk = SimDisk(random.Random(seed))
        env = by_hand(disk)
        first = make("/a", "/b", env=env)
        log = first.get_or_create("t", 0, TOPIC_ID, config, directory="/a")
        for number in range(20):
            add(log, NOW_MS + number)
        future = begin_move(first, ("t", 0), "/b")
        while (piece := next_piece(log, future, 1 << 20)) is not None:
            copy_piece(piece, future, NOW_MS)
        finish_move(first, ("t", 0))
        first.checkpoints.write_recovery_points()
        disk.crash()
        again = make("/a", "/b", env=env).get_or_create("t", 0, TOPIC_ID, config)
        assert again.end_offset == 20
        assert again.directory == "/b/t-0"
        assert again.recovery_report.batches_scanned < 20, "the checkpoint covers the log"
        assert_indexes_are_true(again, seed)
        assert len(again.active.index) > 5


@pytest.mark.parametrize("was_named", [True, False])
def test_what_was_flushed_is_of_its_topic_whatever_power_takes(config: TopicConfig, was_named: bool) -> None:
    """The log was there and empty at a clean stop, or was of a time before topics had ids."""
    for seed in range(100):
        disk = SimDisk(random.Random(seed))
        env = by_hand(disk)
        manager = make("/a", env=env)
        log = manager.get_or_create("t", 0, TOPIC_ID, config)
        if not was_named:
            add(log, NOW_MS)
        manager.shutdown()
        if not was_named:
            disk.remove("/a/t-0/partition.metadata")
        manager = make("/a", env=env)
        log = manager.get_or_create("t", 0, TOPIC_ID, config)
        add(log, NOW_MS)
        log.flush()
        disk.crash()
        again = make("/a", env=env).get_or_create("t", 0, TOPIC_ID, config)
        assert again.end_offset == (1 if was_named else 2), seed


def test_an_empty_log_that_was_moved_begins_where_it_did(config: TopicConfig) -> None:
    for seed in range(100):
        disk = SimDisk(random.Random(seed))
        env = by_hand(disk)
        manager = make("/a", "/b", env=env)
        log = manager.get_or_create("t", 0, TOPIC_ID, config, directory="/a")
        log.truncate_fully_and_start_at(7)
        begin_move(manager, ("t", 0), "/b")
        finish_move(manager, ("t", 0))
        disk.crash()
        again = make("/a", "/b", env=env).get_or_create("t", 0, TOPIC_ID, config)
        assert (again.directory, again.end_offset) == ("/b/t-0", 7), seed


@pytest.mark.parametrize("is_open", [True, False])
def test_a_deleted_topic_does_not_come_back_in_the_place_of_the_next_one(config: TopicConfig, is_open: bool) -> None:
    """The next one lies in another directory, and is shorter."""
    next_id = TOPIC_ID[::-1]
    for seed in range(100):
        env = by_hand(SimDisk(random.Random(seed)))
        manager = make("/a", "/b", env=env)
        log = manager.get_or_create("t", 0, TOPIC_ID, config, directory="/a")
        for number in range(20):
            add(log, NOW_MS + number)
        log.flush()
        if is_open:
            manager.delete("t", 0)
        else:
            manager.shutdown()
            manager = make("/a", "/b", env=env)
        log = manager.get_or_create("t", 0, next_id, config, directory="/b")
        add(log, NOW_MS)
        log.flush()
        env.disk.crash()  # type: ignore[attr-defined]
        again = make("/a", "/b", env=env).get_or_create("t", 0, next_id, config)
        assert (again.directory, again.end_offset) == ("/b/t-0", 1), seed
