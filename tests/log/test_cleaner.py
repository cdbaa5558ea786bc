"""Compaction: what stays, what goes, when tombstones go, and that the swap survives a crash (see also tests/sim)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from headrace.env.posix import PosixClock
from headrace.log import cleaner
from headrace.log.log import Log
from headrace.wire.batch import iter_headers
from headrace.wire.records import decode_batch

NOW_MS = 1_700_000_000_000
Open = Callable[..., Log]
Append = Callable[..., Any]
COMPACT = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 1000,
    "index_interval_bytes": 100,
    "delete_retention_ms": 1000,
}


def run(log: Log, last: int | None = None, now_ms: int = NOW_MS, map_bytes: int = 1 << 20) -> int | None:
    found = cleaner.candidate(log, last, log.end_offset, now_ms)
    if found is None:
        return last
    done = cleaner.clean(found, now_ms, cleaner.Pace(PosixClock(), 1e12, lambda: False), map_bytes)
    for segment in done.replaced:
        segment.remove_files()
    return done.end_offset


def records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    for segment in log.segments:
        data = segment.file().read(0, segment.size)
        for at, _ in iter_headers(data):
            found += [(r.offset, r.key, r.value) for r in decode_batch(data, at)]
    return found


def seal(log: Log) -> None:
    log.roll(now_ms=NOW_MS)
    log.flush()


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_last_record_of_each_key_stays_at_its_offset(open_at: Open, append: Append, codec: int) -> None:
    log = open_at(COMPACT)
    for index in range(60):
        append(log, b"%d" % index, key=b"k%d" % (index % 7), compression=codec)
    seal(log)
    before = log.size_bytes()
    assert run(log) == 60
    assert records(log) == [(index, b"k%d" % (index % 7), b"%d" % index) for index in range(53, 60)]
    assert (log.log_start_offset, log.end_offset) == (0, 60)
    assert log.size_bytes() < before / 3
    assert append(log, b"more").base_offset == 60
    for again in (open_at(COMPACT), open_at(COMPACT, recovery_point=60)):
        assert records(again)[:-1] == records(log)[:-1] and again.end_offset == 61
    assert log.read(0, max_bytes=1, max_offset=61).size > 0


def test_rounds_build_on_each_other(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    last = None
    latest: dict[bytes, tuple[int, bytes]] = {}
    for index in range(300):
        key = b"k%d" % (index * index % 23)
        append(log, b"%d" % index, key=key)
        latest[key] = (index, b"%d" % index)
        if index % 50 == 49:
            seal(log)
            last = run(log, last, map_bytes=10 * 160)  # room for ten keys: several rounds for each
            last = run(log, last, map_bytes=10 * 160)
    for _ in range(10):
        last = run(log, last)
    assert records(log) == sorted((offset, key, value) for key, (offset, value) in latest.items())
    append(log, b"last", key=b"last")
    seal(log)
    run(log, last)
    assert len(log.segments) < 6  # what the rounds before made small is joined


def test_tombstones_stay_for_their_retention(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    append(log, b"v", key=b"a")
    append(log, None, key=b"a")
    append(log, b"v", key=b"b")
    seal(log)
    last = run(log)
    assert records(log) == [(1, b"a", None), (2, b"b", b"v")]
    header = next(iter_headers(log.segments[0].file().read(0, 200)))[1]
    assert header.has_delete_horizon and header.base_timestamp == NOW_MS + 1000
    assert decode_batch(log.segments[0].file().read(0, 200))[0].timestamp == NOW_MS
    append(log, b"w", key=b"c")
    seal(log)
    last = run(log, last, now_ms=NOW_MS + 999)
    assert (1, b"a", None) in records(log)
    append(log, b"w", key=b"d")
    seal(log)
    run(log, last, now_ms=NOW_MS + 1001)
    assert [key for _, key, _ in records(log)] == [b"b", b"c", b"d"]


def test_lag_and_the_active_segment_hold_back(open_at: Open, append: Append) -> None:
    log = open_at({**COMPACT, "min_compaction_lag_ms": 500})
    append(log, b"1", key=b"a", timestamp=NOW_MS)
    append(log, b"2", key=b"a", timestamp=NOW_MS)
    assert cleaner.candidate(log, None, 2, NOW_MS + 10_000) is None  # all of it is active
    seal(log)
    append(log, b"3", key=b"a", timestamp=NOW_MS + 1000)
    seal(log)
    assert cleaner.candidate(log, None, 3, NOW_MS + 100) is None
    found = cleaner.candidate(log, None, 3, NOW_MS + 600)
    assert found is not None and found.end_offset == 2
    assert cleaner.candidate(log, None, 1, NOW_MS + 600) is None  # the high watermark


def test_a_producer_keeps_its_sequence(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    append(log, b"old", key=b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    append(log, b"new", key=b"a")
    append(log, b"end", key=b"z")
    seal(log)
    run(log)
    assert [offset for offset, _, _ in records(log)] == [1, 2]
    again = open_at(COMPACT)
    assert append(again, b"x", key=b"a", producer_id=9, producer_epoch=0, base_sequence=5).error.name == (
        "OUT_OF_ORDER_SEQUENCE_NUMBER"
    )
    assert again.producers.get(9).batches[-1].last_sequence == 0  # type: ignore[union-attr]


def test_the_end_of_the_range_is_kept_by_an_empty_batch(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    append(log, b"1", key=b"a")
    append(log, None, key=b"b")
    seal(log)
    last = run(log)
    append(log, b"2", key=b"c")
    seal(log)
    run(log, last, now_ms=NOW_MS + 5000)
    assert [h.next_offset for h in headers(log)][-1] == 3


def headers(log: Log) -> list[Any]:
    return [h for s in log.segments for _, h in iter_headers(s.file().read(0, s.size))]


def test_readers_go_on_over_the_gaps(open_at: Open, append: Append, read_values: Any) -> None:
    log = open_at(COMPACT)
    for index in range(100):
        append(log, b"%d" % index, key=b"k%d" % (index % 3))
    seal(log)
    held = log.read(0, max_bytes=100, max_offset=100).slice
    assert held is not None
    before = held.read()
    run(log)
    assert held.read() == before
    append(log, b"tail", key=b"t")
    assert [offset for offset, _ in read_values(log)] == [97, 98, 99, 100]


def test_it_gives_up_when_the_log_changes_under_it(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    for index in range(60):
        append(log, b"%d" % index, key=b"k")
    seal(log)
    found = cleaner.candidate(log, None, 60, NOW_MS)
    assert found is not None

    class Meddler(PosixClock):
        def sleep(self, seconds: float) -> None:
            if log.end_offset == 60:
                log.truncate_to(30)

    with pytest.raises((cleaner.Stopped, OSError)):
        cleaner.clean(found, NOW_MS, cleaner.Pace(Meddler(), 1e12, lambda: False), 1 << 20)
    assert not [name for name in os.listdir(log.directory) if "cleaned" in name or "swap" in name]
    assert [offset for offset, _, _ in records(log)] == list(range(30))


def test_an_unreadable_batch_makes_a_log_uncleanable(open_at: Open, append: Append) -> None:
    log = open_at(COMPACT)
    append(log, b"1" * 200, key=b"a", compression=4)
    seal(log)
    with open(log.segments[0].path, "r+b") as file:
        file.seek(61)
        file.write(b"\xff" * 8)
    with pytest.raises(cleaner.Uncleanable):
        run(log)
    assert len(log.segments) == 2
