"""What is refused of a client's batch, with which error, and what is rewritten."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cramjam
import pytest
from log.conftest import read_at

from headrace.config.topic import TopicConfig
from headrace.log.log import Log
from headrace.log.validate import HERE, Accepted, check_client_batch
from headrace.wire._codec import encode_records
from headrace.wire.batch import BatchHeader, check_crc, checksum, read_header, seal_batch, unsealed
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Compression, Record, build_batch, compress, decode_batch

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
    return log.writer.append(data, leader_epoch=0, now_ms=now_ms)


CASES: dict[str, tuple[Callable[[bytes], bytes], ErrorCode]] = {
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
    stored = read_at(log, 0, max_bytes=1, max_offset=2).slice.read()  # type: ignore[union-attr]
    header = read_header(stored)
    assert (header.timestamp_type, header.max_timestamp, header.crc) == (1, NOW_MS, checksum(stored, 0, len(stored)))
    assert {record.timestamp for record in decode_batch(stored)} == {NOW_MS}


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_recompression(open_at: Open, target: str) -> None:
    log = open_at({"compression_type": target})
    records = [Record(index, NOW_MS + index, b"k", b"v" * 50, [("h", b"1")]) for index in range(20)]
    for codec in Compression:
        base = append(log, build_batch(records, compression=codec)).base_offset
        stored = read_at(log, base, max_bytes=1).slice.read()  # type: ignore[union-attr]
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


@pytest.mark.parametrize(
    "settings",
    [
        {"record_validation": "full"},
        {"cleanup_policy": frozenset({"compact"})},
        {"message_timestamp_before_max_ms": 3_600_000},
        {"compression_type": "zstd"},
    ],
)
def test_what_kafkas_reader_cannot_read_is_not_stored_where_bodies_are_opened(
    open_at: Open, settings: dict[str, Any]
) -> None:
    stream = cramjam.lz4.Compressor(block_linked=True)
    stream.compress(bytes(encode_records([Record(0, NOW_MS, b"k", b"v" * 100, [])], None, NOW_MS)))
    facts = {"record_count": 1, "last_offset_delta": 0, "base_timestamp": NOW_MS, "max_timestamp": NOW_MS}
    linked = bytes(seal_batch(unsealed(bytes(stream.finish())), attributes=Compression.LZ4, **facts))
    assert decode_batch(linked)[0].value == b"v" * 100
    assert append(open_at(settings), linked).error is ErrorCode.INVALID_RECORD


def lying(records: list[Record], *, attributes: int = 0, body: bytes | None = None, **header: int) -> bytes:
    """A batch around these records whose header says something else; its checksum is right."""
    base = header.pop("base_timestamp", records[0].timestamp)
    encoded = bytes(encode_records(records, None, base)) if body is None else body
    fields = {
        "record_count": len(records),
        "last_offset_delta": len(records) - 1,
        "max_timestamp": max(each.timestamp for each in records),
    }
    fields.update(header)
    compressed = compress(attributes & 7, encoded)
    return bytes(seal_batch(unsealed(compressed), attributes=attributes, base_timestamp=base, **fields))


def stored_header(log: Log) -> BatchHeader:
    stored = read_at(log, 0, max_bytes=1).slice.read()  # type: ignore[union-attr]
    header = read_header(stored)
    assert check_crc(stored, 0, header)
    return header


KEYED = [Record(0, NOW_MS + at, b"k", b"v") for at in (0, 7, 3)]


@pytest.mark.parametrize("settings", [{}, {"cleanup_policy": frozenset({"compact"})}])
def test_a_record_whose_fields_do_not_fill_it(open_at: Open, settings: dict[str, Any]) -> None:
    body = bytearray(encode_records(KEYED, None, NOW_MS))
    at = body.index(b"\x02k", 10)
    body[at] = 100  # the length of the second key: the lengths of the records add up all the same
    log = open_at(settings)
    result = append(log, lying(KEYED, body=bytes(body)))
    assert (result.error, log.end_offset) == (ErrorCode.INVALID_RECORD, 0)
    assert result.error_message


@pytest.mark.parametrize("said", [-1, NOW_MS, NOW_MS + 8, -(2**40), NOW_MS + 365 * 86_400_000])
@pytest.mark.parametrize("settings", [{}, {"cleanup_policy": frozenset({"compact"})}])
def test_a_largest_timestamp_that_lies_is_corrected(open_at: Open, settings: dict[str, Any], said: int) -> None:
    log = open_at(settings)
    assert append(log, lying(KEYED, max_timestamp=said)).error is ErrorCode.NONE
    assert stored_header(log).max_timestamp == NOW_MS + 7
    found = log.reader.offset_for_timestamp(NOW_MS + 1)
    assert found is not None and found.offset == 1
    assert log.active.max_timestamp == NOW_MS + 7


def test_records_too_far_ahead_are_refused_whatever_the_header_says(open_at: Open) -> None:
    ahead = [Record(0, NOW_MS, b"k", b"v"), Record(0, NOW_MS + 365 * 86_400_000, b"k", b"v")]
    result = append(open_at(), lying(ahead, max_timestamp=NOW_MS))
    assert result.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [1]
    beyond = lying(
        KEYED, base_timestamp=2**63 - 5, max_timestamp=NOW_MS, body=bytes(encode_records(KEYED, None, NOW_MS))
    )
    result = append(open_at(), beyond)
    assert result.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [0, 1, 2]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_the_bit_of_log_append_time_is_cleared_on_a_topic_of_create_time(open_at: Open, codec: int) -> None:
    """The records have the header's time until then, and their own ones afterwards."""
    log = open_at()
    result = append(log, lying(KEYED, attributes=8 | codec, max_timestamp=NOW_MS + 1000))
    assert (result.error, result.log_append_time_ms) == (ErrorCode.NONE, -1)
    header = stored_header(log)
    assert (header.attributes, header.max_timestamp) == (codec, NOW_MS + 1000)
    for refused in (-1, NOW_MS + 3_600_001):
        result = append(log, lying(KEYED, attributes=8 | codec, max_timestamp=refused))
        assert result.error is ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in result.record_errors] == [0, 1, 2]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_timestamps_of_clients_do_not_matter_to_a_topic_that_stamps_its_own(open_at: Open, codec: int) -> None:
    log = open_at({"message_timestamp_type": "LogAppendTime"})
    body = bytes(encode_records(KEYED, None, NOW_MS))
    sent = lying(KEYED, base_timestamp=2**63 - 5, max_timestamp=0, body=body, attributes=codec)
    assert append(log, sent).error is ErrorCode.NONE
    assert stored_header(log).max_timestamp == NOW_MS


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_the_bit_of_log_append_time_is_refused_on_a_topic_that_has_it(open_at: Open, codec: int) -> None:
    log = open_at({"message_timestamp_type": "LogAppendTime"})
    result = append(log, lying(KEYED, attributes=8 | codec))
    assert result.error is ErrorCode.INVALID_TIMESTAMP
    assert len(result.record_errors) == 3


def test_a_refusal_names_no_more_records_than_a_hundred(open_at: Open) -> None:
    log = open_at({"cleanup_policy": frozenset({"compact"})})
    result = append(log, build_batch([Record(0, NOW_MS, None, b"")] * 5000))
    assert result.error is ErrorCode.INVALID_RECORD
    assert len(result.record_errors) == 100 and "5000 record errors" in result.error_message
    log = open_at({"message_timestamp_type": "LogAppendTime"})
    many = lying(KEYED, attributes=8 | Compression.ZSTD, record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    assert len(append(log, many).record_errors) == 100


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_what_opens_to_too_much_is_refused(open_at: Open, codec: int) -> None:
    log = open_at({"cleanup_policy": frozenset({"compact"}), "max_decompressed_bytes": 1 << 20})
    fits, too_large = ([Record(0, NOW_MS, b"k", bytes(size))] * 10 for size in (100_000, 110_000))
    assert append(log, build_batch(fits, compression=codec)).error is ErrorCode.NONE
    result = append(log, build_batch(too_large, compression=codec))
    assert result.error is ErrorCode.MESSAGE_TOO_LARGE
    assert "1048576" in result.error_message


def test_a_bomb_of_records_becomes_no_objects(open_at: Open) -> None:
    """1.2 MB of the smallest records in some hundred bytes; as objects they would be ten times that at least."""
    log = open_at({"cleanup_policy": frozenset({"compact"})})
    count = 150_000
    bomb = seal_batch(
        unsealed(compress(Compression.ZSTD, b"\x0e\0\0\0\x02k\x01\0" * count)), record_count=count,
        last_offset_delta=count - 1, base_timestamp=NOW_MS, max_timestamp=NOW_MS, attributes=Compression.ZSTD,
    )  # fmt: skip
    tracemalloc.start()
    result = append(log, bytes(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.error is ErrorCode.INVALID_RECORD  # its offsets do not count up
    assert peak < 1_400_000


def test_a_check_that_may_take_long_is_not_done_on_the_way(defaults: TopicConfig) -> None:
    """On the event loop nothing large is opened or compressed."""
    small, large = ([Record(0, NOW_MS, b"k", bytes(size))] for size in (10_000, 200_000))
    compact = replace(defaults, cleanup_policy=frozenset({"compact"}))
    gzip = replace(defaults, compression_type="gzip")

    def here(records: list[Record], codec: int, config: TopicConfig) -> object:
        return check_client_batch(build_batch(records, compression=codec), config, "t-0", NOW_MS, HERE)

    for codec in list(Compression)[1:]:
        assert isinstance(here(small, codec, compact), Accepted)
        assert here(large, codec, compact) is None
        assert isinstance(here(large, codec, defaults), Accepted)
    assert isinstance(here(small, Compression.NONE, gzip), Accepted)
    assert here(large, Compression.NONE, gzip) is None
    assert isinstance(here(large, Compression.GZIP, gzip), Accepted)
    assert here(large, Compression.ZSTD, gzip) is None


def test_a_lookup_by_time_opens_a_bomb_without_objects(open_at: Open) -> None:
    """On a topic that takes compressed batches unopened."""
    log = open_at()
    count = 150_000
    bomb = seal_batch(
        unsealed(compress(Compression.ZSTD, b"\x0e\0\0\0\x02k\x01\0" * count)), record_count=count,
        last_offset_delta=count - 1, base_timestamp=NOW_MS, max_timestamp=NOW_MS + 5, attributes=Compression.ZSTD,
    )  # fmt: skip
    assert append(log, bytes(bomb)).error is ErrorCode.NONE
    append(log, build_batch([Record(0, NOW_MS + 9, b"k", b"v")]))
    tracemalloc.start()
    found = [log.reader.offset_for_timestamp(NOW_MS + at) for at in (0, 1)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(each.offset, each.timestamp) for each in found if each] == [(0, NOW_MS), (count, NOW_MS + 9)]
    assert peak < 3_000_000
