"""Lookups by time name records that are there: they are compared with a look at every record of the log."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from threading import RLock
from typing import Any

import pytest
from log.cleaning import clean
from peers.tried import tried

from headrace.config.topic import TopicConfig
from headrace.log import cleaner
from headrace.log.log import Log
from headrace.log.read_results import TimestampOffset
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.log.scan import Scan
from headrace.sim.disk import SimDisk
from headrace.sim.workloads.log_crash import StillClock
from headrace.wire.batch import read_header, set_max_timestamp
from headrace.wire.records import Compression, Record, build_batch, decode_batch

NOW_MS = 1_700_000_000_000
STAMPED = {"message_timestamp_type": "LogAppendTime"}
Open = Callable[..., Log]


def write(log: Log, *timestamps: int, now_ms: int = NOW_MS, compression: int = 0, leader_epoch: int = 0) -> None:
    records = [Record(0, each, b"k", b"v", []) for each in timestamps]
    result = log.writer.append(build_batch(records, compression=compression), leader_epoch=leader_epoch, now_ms=now_ms)
    assert not result.error, result


def kept(log: Log) -> list[TimestampOffset]:
    """Every record at or above the log start offset."""
    found = []
    for segment in log.segments:
        for _, header, data in Scan(segment.file(), 0, segment.size):
            for each in decode_batch(bytes(data)):
                if each.offset >= log.log_start_offset:
                    found.append(TimestampOffset(each.offset, each.timestamp, header.partition_leader_epoch))
    return found


def assert_true(log: Log, context: object = "") -> None:
    records = kept(log)
    newest = max(records, key=lambda each: (each.timestamp, -each.offset), default=None)
    assert log.reader.max_timestamp_offset() == newest, (context, records)
    for timestamp in {0, NOW_MS + 1, *(each.timestamp for each in records), *(each.timestamp + 1 for each in records)}:
        if timestamp >= 0:
            first = next((each for each in records if each.timestamp >= timestamp), None)
            assert log.reader.offset_for_timestamp(timestamp) == first, (context, timestamp, records)


def test_the_newest_of_records_that_the_broker_stamped_is_the_first_of_its_batch(open_at: Open) -> None:
    log = open_at(STAMPED)
    found = []
    for at, count in enumerate((8, 3, 4)):
        write(log, *[NOW_MS] * count, now_ms=NOW_MS + at)
        newest = log.reader.max_timestamp_offset()
        assert newest is not None
        found.append(newest.offset)
    assert found == [0, 8, 11]
    log.delete_records_before(13)
    assert log.reader.max_timestamp_offset() == (13, NOW_MS + 2, 0)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_the_newest_record_is_one_that_is_not_deleted(open_at: Open, compression: int) -> None:
    log = open_at()
    write(log, NOW_MS + 100, NOW_MS + 50, NOW_MS + 50, compression=compression)
    write(log, NOW_MS + 10, NOW_MS + 20, compression=compression)
    expected = [(0, NOW_MS + 100, 0), (1, NOW_MS + 50, 0), (2, NOW_MS + 50, 0), *[(4, NOW_MS + 20, 0)] * 2, None]
    for start, newest in enumerate(expected):
        log.delete_records_before(start)
        assert log.reader.max_timestamp_offset() == newest


def test_the_newest_of_records_without_timestamps_is_the_first(open_at: Open) -> None:
    log = open_at()
    assert log.reader.max_timestamp_offset() is None
    write(log, -1, -1)
    write(log, -1)
    for start in range(3):
        log.delete_records_before(start)
        assert log.reader.max_timestamp_offset() == (start, -1, 0)
    log.delete_records_before(3)
    assert log.reader.max_timestamp_offset() is None


def test_a_header_that_lies_names_no_record(open_at: Open) -> None:
    """Of a compressed batch that is not opened, the header's largest timestamp is taken as it is."""
    log = open_at()
    batch = bytearray(build_batch([Record(0, NOW_MS + 3, b"k", b"v", [])], compression=Compression.GZIP))
    set_max_timestamp(batch, 0, read_header(batch).timestamp_type, NOW_MS + 9)
    assert not log.writer.append(bytes(batch), leader_epoch=0, now_ms=NOW_MS).error
    write(log, NOW_MS + 5)
    assert log.reader.max_timestamp_offset() == (1, NOW_MS + 5, 0)


def compact(log: Log) -> None:
    log.writer.roll(now_ms=NOW_MS)
    log.flush()
    found = cleaner.candidate(log, None, log.end_offset, NOW_MS)
    if found is not None:
        replaced: list[Any] = []
        clean(found, NOW_MS, cleaner.CleanerThrottle(StillClock(), 1e12, lambda: False), replaced.extend)
        for segment in replaced:
            segment.remove_files()


def append_any(log: Log, rng: random.Random, epoch: int) -> None:
    records = [
        Record(0, rng.choice((-1, NOW_MS + rng.randrange(40))), b"%d" % rng.randrange(6), b"v" * rng.randrange(30), [])
        for _ in range(rng.randint(1, 6))
    ]
    data = build_batch(records, compression=rng.choice((0, 0, 4)))
    assert not log.writer.append(data, leader_epoch=epoch, now_ms=NOW_MS + rng.randrange(40)).error


@pytest.mark.parametrize("block", range(4))
def test_lookups_by_time_name_records(defaults: TopicConfig, block: int) -> None:
    for seed in range(block, tried(240), 4):
        rng = random.Random(seed)
        disk = SimDisk(rng)
        disk.make_dirs("/t-0")
        config = replace(
            defaults,
            index_interval_bytes=rng.choice((1, 150, 4096)),
            segment_bytes=rng.choice((700, 1500, 1 << 20)),
            message_timestamp_type=rng.choice(("CreateTime", "LogAppendTime")),
            cleanup_policy=frozenset({rng.choice(("delete", "compact"))}),
        )
        log = open_log(Resources(disk, RLock), "/t-0", ("t", 0), config, now_ms=NOW_MS)
        for epoch in range(rng.randint(1, 25)):
            append_any(log, rng, epoch)
            if rng.random() < 0.2:
                log.delete_records_before(rng.randint(log.log_start_offset, log.end_offset))
            if rng.random() < 0.1:
                compact(log)
            assert_true(log, (seed, epoch, config))
        end_offset, start = log.end_offset, log.log_start_offset
        log.close()
        log = open_log(
            Resources(disk, RLock), "/t-0", ("t", 0), config,
            now_ms=NOW_MS, clean=True, recovery_point=end_offset, log_start_offset=start,
        )  # fmt: skip
        assert_true(log, (seed, "opened again"))
