"""What is refused of a client's batch, with which error, and what is rewritten."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from headrace.log.log import Log
from headrace.wire.batch import checksum, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Compression, Record, build_batch, decode_batch

NOW_MS = 1_700_000_000_000
Open = Callable[..., Log]


def changed(data: bytes, layout: str, at: int, value: int, *, crc: bool = True) -> bytes:
    """The batch with one field of its header changed, its checksum made right again."""
    copy = bytearray(data)
    struct.pack_into(layout, copy, at, value)
    if crc:
        struct.pack_into(">I", copy, 17, checksum(copy, 0, len(copy)))
    return bytes(copy)


def append(log: Log, data: bytes, now_ms: int = NOW_MS) -> Any:
    return log.append(data, leader_epoch=0, now_ms=now_ms)


CASES = {
    "bad checksum": (lambda b: changed(b, ">I", 17, 1, crc=False), ErrorCode.CORRUPT_MESSAGE),
    "wrong magic": (lambda b: changed(b, ">b", 16, 1, crc=False), ErrorCode.INVALID_RECORD),
    "count lies": (lambda b: changed(b, ">i", 57, 5), ErrorCode.INVALID_RECORD),
    "count and delta lie": (
        lambda b: changed(changed(b, ">i", 57, 5), ">i", 23, 4),
        ErrorCode.INVALID_RECORD,
    ),
    "negative delta": (lambda b: changed(b, ">i", 23, -2), ErrorCode.INVALID_RECORD),
    "no records": (lambda b: changed(changed(b, ">i", 57, 0), ">i", 23, -1), ErrorCode.INVALID_RECORD),
    "control batch": (lambda b: changed(b, ">h", 21, 0x20), ErrorCode.INVALID_RECORD),
    "unknown codec": (lambda b: changed(b, ">h", 21, 6), ErrorCode.INVALID_RECORD),
    "base offset": (lambda b: changed(b, ">q", 0, 5, crc=False), ErrorCode.INVALID_RECORD),
    "producer without sequence": (lambda b: changed(b, ">q", 43, 7), ErrorCode.INVALID_RECORD),
    "cut short": (lambda b: b[:-1], ErrorCode.INVALID_RECORD),
    "nothing": (lambda b: b[:0], ErrorCode.INVALID_RECORD),
    "too long": (lambda b: b + b"\0", ErrorCode.INVALID_RECORD),
    "two batches": (lambda b: b + b, ErrorCode.INVALID_RECORD),
    "tiny length": (lambda b: changed(b, ">i", 8, 3, crc=False), ErrorCode.CORRUPT_MESSAGE),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(open_at: Open, make_batch: Any, name: str) -> None:
    change, error = CASES[name]
    log = open_at()
    result = append(log, change(make_batch(b"a", b"b")))
    assert result.error is error, result
    assert result.error_message
    assert log.end_offset == 0
    assert append(log, make_batch(b"good")).base_offset == 0


def test_too_large(open_at: Open, make_batch: Any) -> None:
    log = open_at({"max_message_bytes": 200})
    assert append(log, make_batch(b"x" * 200)).error is ErrorCode.MESSAGE_TOO_LARGE
    log = open_at({"segment_bytes": 200})
    assert append(log, make_batch(b"x" * 200)).error is ErrorCode.RECORD_LIST_TOO_LARGE
    assert append(log, make_batch(b"x")).error is ErrorCode.NONE


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_compacted_topic_takes_no_record_without_key(open_at: Open, codec: int) -> None:
    log = open_at({"cleanup_policy": frozenset({"compact"})})
    records = [Record(0, NOW_MS, key, b"v", []) for key in (b"a", None, b"c", None)]
    result = append(log, build_batch(records, compression=codec))
    assert result.error is ErrorCode.INVALID_RECORD
    assert [index for index, _ in result.record_errors] == [1, 3]
    assert append(log, build_batch(records[:1], compression=codec)).error is ErrorCode.NONE


def test_timestamps_out_of_range_are_named_record_by_record(open_at: Open) -> None:
    log = open_at({"message_timestamp_before_max_ms": 100, "message_timestamp_after_max_ms": 50})
    offsets = (0, -100, -101, 50, 51)
    records = [Record(0, NOW_MS + offset, b"k", b"v", []) for offset in offsets]
    result = append(log, build_batch(records))
    assert result.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [2, 4]
    assert append(log, build_batch([records[0], records[1], records[3]])).error is ErrorCode.NONE


def test_the_default_refuses_the_far_future(open_at: Open, make_batch: Any) -> None:
    log = open_at()
    assert append(log, make_batch(b"a", timestamp=NOW_MS + 3_600_001)).error is ErrorCode.INVALID_TIMESTAMP
    assert append(log, make_batch(b"a", timestamp=NOW_MS + 3_600_000)).error is ErrorCode.NONE


def test_log_append_time(open_at: Open, make_batch: Any) -> None:
    log = open_at({"message_timestamp_type": "LogAppendTime"})
    result = append(log, make_batch(b"a", b"b", timestamp=5))
    assert result.log_append_time_ms == NOW_MS
    stored = log.read(0, max_bytes=1, max_offset=2).slice.read()  # type: ignore[union-attr]
    header = read_header(stored)
    assert (header.timestamp_type, header.max_timestamp, header.crc) == (1, NOW_MS, checksum(stored, 0, len(stored)))
    assert {record.timestamp for record in decode_batch(stored)} == {NOW_MS}


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_recompression(open_at: Open, target: str) -> None:
    log = open_at({"compression_type": target})
    records = [Record(index, NOW_MS + index, b"k", b"v" * 50, [("h", b"1")]) for index in range(20)]
    for codec in Compression:
        base = append(log, build_batch(records, compression=codec)).base_offset
        stored = log.read(base, max_bytes=1, max_offset=log.end_offset).slice.read()  # type: ignore[union-attr]
        header = read_header(stored)
        wanted = Compression.NONE if target == "uncompressed" else Compression[target.upper()]
        assert header.compression == wanted
        assert [r[1:] for r in decode_batch(stored)] == [r[1:] for r in records]
        assert header.crc == checksum(stored, 0, len(stored))


def test_full_validation_opens_compressed_bodies(open_at: Open) -> None:
    good = build_batch([Record(0, NOW_MS, b"k", b"v" * 100, []) for _ in range(3)], compression=Compression.LZ4)
    lying = changed(changed(good, ">i", 57, 2), ">i", 23, 1)
    assert append(open_at(), lying).error is ErrorCode.NONE
    log = open_at({"record_validation": "full"})
    assert append(log, lying).error is ErrorCode.INVALID_RECORD
    assert append(log, good).error is ErrorCode.NONE
