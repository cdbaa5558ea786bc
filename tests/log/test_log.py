"""Appending, reading, rolling, looking up and cutting one log."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log.cleaning import clean
from log.conftest import read_at

from headrace.env.posix import PosixClock, PosixFile
from headrace.log import cleaner
from headrace.log.log import Log
from headrace.log.read_results import OutOfRange
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode

NOW_MS = 1_700_000_000_000
Open = Callable[..., Log]
Append = Callable[..., Any]
SMALL = {"segment_bytes": 1000, "index_interval_bytes": 100}


def test_offsets_follow_each_other_and_the_epoch_is_stamped(open_at: Open, append: Append) -> None:
    log = open_at()
    assert append(log, b"a", b"b", epoch=3).base_offset == 0
    result = append(log, b"c", epoch=3)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (2, 2, -1)
    data = read_at(log, 0, max_bytes=10_000, max_offset=3).slice.read()  # type: ignore[union-attr]
    headers = [header for _, header in iter_headers(data)]
    assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in headers] == [(0, 1, 3), (2, 2, 3)]
    assert log.epochs.epoch_at(1) == 3
    assert log.end_offset_for_epoch(3) == (3, 3)


def test_the_request_buffer_is_not_changed(open_at: Open, make_batch: Callable[..., bytes]) -> None:
    data = bytearray(make_batch(b"a"))
    before = bytes(data)
    log = open_at()
    log.writer.append(data, leader_epoch=9, now_ms=NOW_MS)
    log.writer.append(memoryview(before), leader_epoch=9, now_ms=NOW_MS)
    assert bytes(data) == before
    assert log.end_offset == 2


def test_many_requests_one_write(open_at: Open, make_batch: Callable[..., bytes], monkeypatch: Any) -> None:
    log = open_at()
    log.writer.append(make_batch(b"warm"), leader_epoch=0, now_ms=NOW_MS)
    writes: list[int] = []
    real = os.pwritev

    def noted(fd: int, parts: Sequence[bytes], at: int) -> int:
        writes.append(at)
        return real(fd, parts, at)

    monkeypatch.setattr(os, "pwritev", noted)
    bad = bytearray(make_batch(b"x"))
    bad[-1] ^= 1
    batches = [make_batch(b"1"), bytes(bad), make_batch(b"2", b"3")]
    results = log.writer.append_many(batches, leader_epoch=0, now_ms=NOW_MS)
    assert [r.error for r in results] == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert [r.base_offset for r in results] == [1, -1, 2]
    assert len(writes) == 1


def test_reads_are_bounded_by_bytes_and_offset(open_at: Open, append: Append, make_batch: Callable[..., bytes]) -> None:
    log = open_at()
    for value in (b"a", b"b", b"c"):
        append(log, value)
    size = len(make_batch(b"a"))
    assert read_at(log, 0, max_bytes=2 * size, max_offset=3).size == 2 * size
    assert read_at(log, 0, max_bytes=10_000, max_offset=2).size == 2 * size
    assert read_at(log, 0, max_bytes=1, max_offset=3, min_one=True).size == size
    assert read_at(log, 0, max_bytes=1, max_offset=3, min_one=False).size == 0
    assert read_at(log, 3, max_bytes=1, max_offset=3).size == 0
    assert read_at(log, 2, max_bytes=1000, max_offset=2).size == 0
    assert log.reader.read(4, max_bytes=1, max_offset=3) == OutOfRange(0, 3)
    log.delete_records_before(1)
    assert log.reader.read(0, max_bytes=1, max_offset=3) == OutOfRange(1, 3)


def test_segments_roll_by_size_and_reads_cross_them(open_at: Open, append: Append, read_values: Any) -> None:
    log = open_at(SMALL)
    for index in range(60):
        append(log, b"%03d" % index)
    assert len(log.segments) > 4
    assert all(segment.size <= 1000 for segment in log.segments)
    assert read_values(log) == [(index, b"%03d" % index) for index in range(60)]
    log.close()
    again = open_at(SMALL, clean=True)
    assert again.end_offset == 60
    assert read_values(again) == [(index, b"%03d" % index) for index in range(60)]


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 700), min_size=1, max_size=60), seed=st.integers(0, 2**32))
def test_every_offset_is_found_whatever_the_batches(
    tmp_path_factory: Any, defaults: Any, sizes: Any, seed: int
) -> None:
    import random
    from dataclasses import replace

    from headrace.env.posix import PosixDisk
    from headrace.log.recovery import open_log
    from headrace.log.resources import Resources
    from headrace.wire.records import Record, build_batch

    rng = random.Random(seed)
    folder = str(tmp_path_factory.mktemp("log"))
    config = replace(defaults, segment_bytes=3000, index_interval_bytes=200)
    log = open_log(Resources(PosixDisk(), RLock), folder, ("t", 0), config, now_ms=NOW_MS)
    starts: list[tuple[int, int]] = []
    for size in sizes:
        records = [Record(0, NOW_MS, None, bytes(size // 3), []) for _ in range(rng.randint(1, 3))]
        result = log.writer.append(build_batch(records), leader_epoch=0, now_ms=NOW_MS)
        starts.append((result.base_offset, result.last_offset))
    for reopened in (log, None):
        if reopened is None:
            log.close()
            log = open_log(Resources(PosixDisk(), RLock), folder, ("t", 0), config, now_ms=NOW_MS, clean=True)
        for base, last in starts:
            for offset in {base, last}:
                data = read_at(log, offset, max_bytes=1).slice.read()  # type: ignore[union-attr]
                header = next(iter_headers(data))[1]
                assert (header.base_offset, header.last_offset) == (base, last)


def test_time_rolls_a_segment(open_at: Open, append: Append) -> None:
    log = open_at({"segment_ms": 1000})
    append(log, b"a")
    append(log, b"b", timestamp=NOW_MS + 1000, now_ms=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, b"c", timestamp=NOW_MS + 1001, now_ms=NOW_MS + 1001)
    assert log.bases == [0, 2]


def test_the_time_of_each_segment_counts_from_its_first_batch(open_at: Open, append: Append) -> None:
    """By the records' own time, whatever the clock says: every batch begins a segment here, but for the last two."""
    log = open_at({"segment_ms": 1000})
    for number in range(4):
        append(log, b"v", timestamp=NOW_MS - 90_000 + number * 5000)
    append(log, b"v", timestamp=NOW_MS - 90_000 + 15_900)
    append(log, b"v", timestamp=NOW_MS - 90_000)
    assert log.bases == [0, 1, 2, 3]
    append(log, b"v", timestamp=NOW_MS - 90_000 + 16_001)
    assert log.bases == [0, 1, 2, 3, 6]


def test_a_full_index_rolls_a_segment(open_at: Open, append: Append) -> None:
    log = open_at({"segment_index_bytes": 80, "index_interval_bytes": 10})
    for _ in range(50):
        append(log, b"x" * 50)
    assert len(log.segments) > 3
    assert all(len(segment.index) <= 10 for segment in log.segments)


def test_offsets_are_found_by_time(open_at: Open, append: Append) -> None:
    log = open_at({"segment_bytes": 500, "index_interval_bytes": 0})
    for index in range(30):
        append(log, b"x", timestamp=NOW_MS + index * 10, now_ms=NOW_MS + 1000, epoch=2)
    for each in (log, open_at({"segment_bytes": 500})):
        for index in range(30):
            found = each.reader.offset_for_timestamp(NOW_MS + index * 10 - 5)
            assert found == (index, NOW_MS + index * 10, 2)
        assert each.reader.offset_for_timestamp(NOW_MS + 291) is None
        assert each.reader.max_timestamp_offset() == (29, NOW_MS + 290, 2)
        assert each.reader.earliest_timestamp_offset() == (0, -1, 2)


def test_retention_by_size_time_and_start(open_at: Open, append: Append) -> None:
    log = open_at({**SMALL, "retention_bytes": 2500})
    for index in range(60):
        append(log, b"%03d" % index, timestamp=NOW_MS + index)
    gone = log.maybe_delete_old_segments(NOW_MS)
    assert gone and log.size_bytes() >= 2500 and log.size_bytes() - log.segments[0].size < 2500
    assert log.log_start_offset == log.bases[0] > 0
    assert all(segment.path.endswith(".log.deleted") and os.path.exists(segment.path) for segment in gone)
    for segment in gone:
        segment.remove_files()
    log.delete_records_before(log.bases[2])
    assert len(log.maybe_delete_old_segments(NOW_MS)) == 2
    assert log.epochs.entries() == [(0, log.log_start_offset)]


def test_retention_keeps_what_is_above_the_high_watermark(open_at: Open, append: Append) -> None:
    log = open_at({**SMALL, "retention_ms": 1})
    for index in range(30):
        append(log, b"%03d" % index)
    second = log.bases[1]
    assert log.maybe_delete_old_segments(NOW_MS + 10, high_watermark=second - 1) == []
    assert len(log.maybe_delete_old_segments(NOW_MS + 10, high_watermark=second)) == 1
    log.maybe_delete_old_segments(NOW_MS + 10)
    assert log.log_start_offset == log.end_offset == 30
    assert append(log, b"next").base_offset == 30


def test_truncation(open_at: Open, append: Append, read_values: Any) -> None:
    log = open_at(SMALL)
    for index in range(40):
        append(log, b"%03d" % index, epoch=index // 10, producer_id=1, producer_epoch=0, base_sequence=index)
    log.flush()
    log.truncate_to(25, now_ms=NOW_MS)
    assert log.end_offset == log.recovery_point == 25
    assert log.epochs.entries() == [(0, 0), (1, 10), (2, 20)]
    log.epochs.assign(4, 25)
    log.truncate_to(25, now_ms=NOW_MS)
    assert log.epochs.entries() == [(0, 0), (1, 10), (2, 20)], "an epoch without a record goes, too"
    assert log.producers.get(1).batches[-1].last_sequence == 24  # type: ignore[union-attr]
    assert append(log, b"new", epoch=5, producer_id=1, producer_epoch=0, base_sequence=25).base_offset == 25
    assert read_values(log)[-2:] == [(24, b"024"), (25, b"new")]
    log.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    assert (log.log_start_offset, log.end_offset) == (100, 100)
    assert append(log, b"far").base_offset == 100


def test_a_replica_keeps_offsets_and_epochs(open_at: Open, append: Append, tmp_path: Path, make_batch: Any) -> None:
    log = open_at()
    leader = bytearray(make_batch(b"a", b"b"))
    leader[0:8] = (7).to_bytes(8, "big")
    leader[12:16] = (4).to_bytes(4, "big")
    log.truncate_fully_and_start_at(5)
    result = log.writer.append(bytes(leader), leader_epoch=0, now_ms=NOW_MS, origin="replica")
    assert (result.base_offset, result.last_offset, log.end_offset) == (7, 8, 9)
    assert log.epochs.epoch_at(8) == 4
    assert read_at(log, 5, max_bytes=1000, max_offset=9).slice.read() == bytes(leader)  # type: ignore[union-attr]
    again = log.writer.append(bytes(leader), leader_epoch=0, now_ms=NOW_MS, origin="replica")
    assert again.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_flush_moves_the_recovery_point_and_makes_files(open_at: Open, append: Append) -> None:
    log = open_at(SMALL)
    for index in range(30):
        append(log, b"%03d" % index, epoch=1)
    assert log.recovery_point == 0
    assert log.flush() == 30 == log.recovery_point
    assert Path(log.directory, "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"


def test_many_segments_few_open_files(open_at: Open, append: Append, read_values: Any) -> None:
    log = open_at(SMALL)
    log.resources.files.files_max = 3
    for index in range(80):
        append(log, b"%03d" % index)
    assert len(read_values(log)) == 80
    assert len(log.segments) > 6
    assert sum(segment.open_file is not None for segment in log.segments) <= 3


def test_a_slice_outlives_the_cache_and_the_file(open_at: Open, append: Append) -> None:
    log = open_at({**SMALL, "retention_bytes": 1})
    for index in range(30):
        append(log, b"%03d" % index)
    held = read_at(log, 0, max_bytes=500, max_offset=30).slice
    assert held is not None
    before = held.read()
    for segment in log.maybe_delete_old_segments(NOW_MS):
        segment.remove_files()
    assert held.read() == before


def test_a_handle_that_was_opened_before_a_write_does_not_write_over_it(
    open_at: Callable[..., Log], append: Any
) -> None:
    log = open_at()
    append(log, b"a")
    stale = log.resources.disk.open(log.active.path)
    append(log, b"b")
    log.active.open_file = stale  # what a worker opens while the loop still appends to the handle that was evicted
    assert append(log, b"c").base_offset == 2
    result = read_at(log, 0, max_bytes=1 << 20, max_offset=3)
    assert result.slice is not None
    data = result.slice.file.read(result.slice.position, result.slice.size)
    assert [header.base_offset for _, header in iter_headers(data)] == [0, 1, 2]


def test_a_duplicate_of_a_batch_that_a_full_disk_refuses_is_refused_too(
    open_at: Callable[..., Log], make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_at()
    data = make_batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "append", full)
        results = log.writer.append_many((data, data), leader_epoch=0, now_ms=NOW_MS)
    assert [result.error for result in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert log.writer.append(data, leader_epoch=0, now_ms=NOW_MS).base_offset == 0


def test_a_full_disk_does_not_have_the_log_read(
    open_at: Callable[..., Log], make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_at()

    def data(producer_id: int, sequence: int) -> bytes:
        return make_batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)  # type: ignore[no-any-return]

    def send(*chunks: bytes) -> list[tuple[ErrorCode, int, bool]]:
        results = log.writer.append_many(chunks, leader_epoch=0, now_ms=NOW_MS)
        return [(result.error, result.base_offset, result.duplicate) for result in results]

    send(data(7, 0), data(7, 1))

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "append", full)
        patched.setattr(PosixFile, "read_into", None)
        assert {error for error, _, _ in send(data(7, 2), data(7, 3), data(8, 5))} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert send(data(7, 1)) == [(ErrorCode.NONE, 1, True)]
    assert send(data(7, 3))[0][0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(data(7, 2), data(7, 3), data(8, 5)) == [(ErrorCode.NONE, offset, False) for offset in (2, 3, 4)]


def test_a_damaged_time_index_is_built_anew_under_a_sync(open_at: Callable[..., Log], append: Any) -> None:
    log = open_at(SMALL)
    for number in range(40):
        append(log, b"x" * 50, timestamp=NOW_MS + number)
    segment = log.segments[0]
    log.close()
    times = Path(segment.paths()[2])
    times.write_bytes(times.read_bytes()[:12] + bytes(reversed(range(1, 13))) + (b"\0" * 7 + b"\1") + b"\0\0\0\1")
    again = open_at(SMALL, clean=True)
    again.segments[0].sync_indexes()
    assert again.segments[0].max_timestamp >= NOW_MS


def test_retention_by_time_goes_over_what_compaction_has_emptied(open_at: Open, append: Append) -> None:
    log = open_at({"cleanup_policy": frozenset({"compact", "delete"}), "segment_bytes": 1000, "retention_ms": 60_000})
    for _ in range(40):
        append(log, b"x" * 300, key=b"hot")
    log.writer.roll(now_ms=NOW_MS)
    append(log, b"y", key=b"other")
    log.flush()
    found = cleaner.candidate(log, None, log.end_offset, NOW_MS)
    assert found is not None
    clean(found, NOW_MS, cleaner.CleanerThrottle(PosixClock(), 1e12, lambda: False), lambda _: None)
    assert [segment.size > 0 for segment in log.segments[:2]].count(False)
    assert not log.maybe_delete_old_segments(NOW_MS + 59_000), "nothing is old yet, an empty segment neither"
    assert log.maybe_delete_old_segments(NOW_MS + 61_000)
    assert (log.log_start_offset, log.size_bytes()) == (41, 0)


@pytest.mark.parametrize(("policy", "segments"), [("compact", 10), ("delete", 1), ("compact,delete", 10)])
def test_max_compaction_lag_rolls_the_active_segment(open_at: Open, append: Append, policy: str, segments: int) -> None:
    hour = 3_600_000
    log = open_at({"cleanup_policy": frozenset(policy.split(",")), "max_compaction_lag_ms": hour})
    for number in range(20):
        late = NOW_MS + number * (hour // 2 + 1)
        assert not append(log, b"%d" % number, timestamp=late, now_ms=late).error
    assert len(log.segments) == segments
