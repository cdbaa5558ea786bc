"""A reader's place in a log: whatever becomes of the log meanwhile, it gives what `LogReader.read` gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from log.conftest import read_at

from headrace.client.reading import whole_batches
from headrace.log.cursor import OTHERWISE, Cursor
from headrace.log.log import Log
from headrace.log.reader import LogReader
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.batch import BatchHeader, iter_headers, read_header

Open = Callable[..., Log]
Append = Callable[..., Any]
ROOM = 4000
SMALL = {"segment_bytes": 6000, "index_interval_bytes": 300}


def as_the_log_reads(log: Log, offset: int, max_bytes: int, upper: int, min_one: bool) -> bytes:
    found = read_at(log, offset, max_bytes=max_bytes, max_offset=upper, min_one=min_one)
    return b"" if found.slice is None else found.slice.read()


def as_the_cursor_reads(cursor: Cursor, log: Log, offset: int, max_bytes: int, upper: int, min_one: bool) -> bytes:
    room = memoryview(bytearray(ROOM))
    size = cursor.read(log.reader, offset, max_bytes, upper, min_one, room)
    if size == OTHERWISE:
        size = cursor.locate(log.reader, offset, max_bytes, upper, min_one)
        return cursor.slice(size).read() if size else b""
    assert not size or cursor.slice(size).read() == room[:size]
    return bytes(room[:size])


@pytest.mark.parametrize("seed", range(40))
def test_a_cursor_reads_what_the_log_reads(open_at: Open, append: Append, seed: int) -> None:
    rng = random.Random(seed)
    log = open_at(SMALL)
    cursor, offset = Cursor(), 0
    for _ in range(400):
        move = rng.random()
        if move < 0.35 or log.end_offset == log.log_start_offset:
            append(log, *[b"v" * rng.choice((0, 10, 200, 1500)) for _ in range(rng.randrange(1, 4))])
            continue
        if move < 0.37:
            log.truncate_to(rng.randrange(log.log_start_offset, log.end_offset + 1))
        elif move < 0.39:
            log.delete_records_before(rng.randrange(log.log_start_offset, log.end_offset + 1))
            log.maybe_delete_old_segments(0, log.log_start_offset)
        elif move < 0.40:
            log.writer.roll(now_ms=0)
        upper = log.end_offset if rng.random() < 0.7 else rng.randrange(log.log_start_offset, log.end_offset + 1)
        upper = whole(log, upper)
        if not log.log_start_offset <= offset < upper or rng.random() < 0.2:
            offset = rng.randrange(log.log_start_offset, log.end_offset + 1)
        if offset >= upper:
            continue
        max_bytes, min_one = rng.choice((1, 100, 2000, ROOM, 3 * ROOM)), rng.random() < 0.8
        for _ in range(rng.choice((1, 1, 2))):
            expected = as_the_log_reads(log, offset, max_bytes, upper, min_one)
            try:
                assert as_the_cursor_reads(cursor, log, offset, max_bytes, upper, min_one) == expected
            except BlockingIOError:
                len(log.segments[log.state.segment_of(offset)].index.entries())  # now it is in memory
        offset = max([offset, *(header.next_offset for header in headers_in(expected))])


def headers_in(data: bytes) -> list[BatchHeader]:
    """The headers of those that are not cut."""
    return [header for _, header in iter_headers(whole_batches(memoryview(data))[0])]


def whole(log: Log, offset: int) -> int:
    """The start of the batch that holds an offset: high watermarks lie there."""
    if offset >= log.end_offset:
        return log.end_offset
    found = read_at(log, offset, max_bytes=1).slice
    assert found is not None
    return max(read_header(found.read()).base_offset, log.log_start_offset)


def test_in_sequence_only_what_is_given_is_read(open_at: Open, append: Append, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_at(SMALL)
    for _ in range(60):
        append(log, b"v" * 500)
    cursor = Cursor()
    room = memoryview(bytearray(ROOM))
    reads = 0
    place_of = LogReader.place_of

    def counted(self: LogReader, offset: int, *, wait: bool = True) -> Any:
        nonlocal reads
        reads += 1
        return place_of(self, offset, wait=wait)

    monkeypatch.setattr(LogReader, "place_of", counted)
    for segment in log.segments:
        segment.file()
        assert len(segment.index) >= 0
    offset = 0
    while offset < log.end_offset:
        size = cursor.read(log.reader, offset, 1500, log.end_offset, True, room)
        assert size > 0
        again = cursor.read(log.reader, offset, 1500, log.end_offset, True, room)
        assert again == size
        offset = headers_in(bytes(room[:size]))[-1].next_offset
    assert reads == len(log.segments) > 3


def test_a_closed_file_is_not_opened(open_at: Open, append: Append) -> None:
    log = open_at(SMALL)
    append(log, b"v")
    log.active.release()
    with pytest.raises(BlockingIOError):
        Cursor().read(log.reader, 0, 100, 1, True, memoryview(bytearray(ROOM)))


def test_aborted_transactions_are_noticed_wherever_they_are(open_at: Open, append: Append) -> None:
    log = open_at(SMALL)
    for _ in range(40):
        append(log, b"v" * 500)
    first, last = log.segments[1], log.segments[-1]
    cursor, room = Cursor(), memoryview(bytearray(ROOM))
    for segment in log.segments:
        segment.file()
        segment.aborted()
    aborted = AbortedTransaction(producer_id=1, first_offset=0, last_offset=1, last_stable_offset=2)

    def none_aborted(offset: int) -> bool:
        assert cursor.read(log.reader, offset, 600, log.end_offset, True, room) > 0
        return cursor.none_aborted(log.reader)

    assert none_aborted(first.base_offset)
    last.add_aborted(aborted)
    assert not none_aborted(first.base_offset)
    last.set_aborted([])
    assert none_aborted(first.base_offset)
    log.segments[0].add_aborted(aborted)
    assert none_aborted(first.base_offset)
    assert not none_aborted(0), "a reader that goes back meets what lies before"
