"""The batch header, its checksum and what is changed in place; the walks, compiled and as plain Python."""

from __future__ import annotations

import struct
from array import array
from types import ModuleType

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from hypothesis import given
from hypothesis import strategies as st
from wire.plain import plain

from headrace.wire import _codec, _walk
from headrace.wire._codec import decode_records, encode_records
from headrace.wire._walk import BAD_OFFSET, BAD_TIMESTAMP, MALFORMED, NULL_KEY
from headrace.wire.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    CorruptBatch,
    check_crc,
    iter_headers,
    iter_whole_headers,
    read_header,
    records_are_whole,
    set_log_append_time,
    stamp,
)
from headrace.wire.records import Record, build_batch, decode_batch

PLAIN = plain("_walk")
WALKS = [_walk, PLAIN]
CODECS = [_codec, plain("_codec")]


def varint(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(out) + bytes((zigzag,))


RECORDS = [Record(0, 1_700_000_000_000 + i, None if i % 2 else b"k", b"v" * i) for i in range(200)]


def test_header_reads_what_was_built() -> None:
    batch = build_batch(
        RECORDS, base_offset=7, producer_id=11, producer_epoch=2, base_sequence=5, transactional=True, leader_epoch=3
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 206, 207)
    assert header.size == len(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (11, 2, 5, 204)
    assert header.is_transactional and not header.is_control and not header.has_delete_horizon
    assert (header.partition_leader_epoch, header.record_count, header.timestamp_type) == (3, 200, CREATE_TIME)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_199)
    other = AioBatch(batch)
    assert (other.crc, other.producer_id, other.next_offset) == (header.crc, 11, 207)
    assert other.validate_crc()


def test_whole_batches_end_where_the_bytes_do_and_where_no_length_is_true() -> None:
    batches = [build_batch(RECORDS[:count], base_offset=count) for count in (1, 2, 3)]
    data = b"before" + b"".join(batches)
    ends = [6 + sum(map(len, batches[:count])) for count in range(4)]
    for size in range(6, len(data) + 1):
        found = list(iter_whole_headers(memoryview(data)[:size], 6))
        count = sum(end <= size for end in ends[1:])
        assert found == [(ends[index], read_header(batches[index])) for index in range(count)]
    for length in (-1, 0, 48, len(batches[1]) + len(batches[2])):
        spoilt = bytearray(data)
        struct.pack_into(">i", spoilt, ends[1] + 8, length)
        assert [at for at, _ in iter_whole_headers(spoilt, 6)] == [6]


def test_sequences_wrap() -> None:
    header = read_header(build_batch(RECORDS[:3], producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFE))
    assert header.last_sequence == 0
    assert read_header(build_batch(RECORDS[:3])).last_sequence == -1


@given(st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_stamp_leaves_the_checksum_valid(offset: int, epoch: int) -> None:
    buf = bytearray(b"before") + build_batch(RECORDS[:2])
    stamp(buf, 6, offset, epoch)
    header = read_header(buf, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (offset, epoch)
    assert check_crc(buf, 6, header)


def test_any_flipped_byte_after_the_checksum_is_seen() -> None:
    batch = build_batch(RECORDS[:2])
    for at in range(21, len(batch)):
        broken = bytearray(batch)
        broken[at] ^= 0x10
        assert not check_crc(broken, 0, read_header(batch))


def test_log_append_time_is_the_time_of_all() -> None:
    buf = bytearray(build_batch(RECORDS))
    set_log_append_time(memoryview(buf), 0, 42)
    header = read_header(buf)
    assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, 42)
    assert check_crc(buf, 0, header)
    assert {record.timestamp for record in decode_batch(buf)} == {42}


def test_iter_headers_finds_every_batch_and_names_the_bad_one() -> None:
    data = b"".join(build_batch(RECORDS[:n], base_offset=n) for n in (1, 2, 3))
    assert [header.base_offset for _, header in iter_headers(data)] == [1, 2, 3]
    with pytest.raises(CorruptBatch, match="are there"):
        list(iter_headers(data[:-1]))
    with pytest.raises(CorruptBatch, match="less than the header"):
        list(iter_headers(data + b"x"))
    with pytest.raises(CorruptBatch, match="magic 1"):
        list(iter_headers(data[:16] + b"\x01" + data[17:]))
    with pytest.raises(CorruptBatch, match="says 12 bytes"):
        list(iter_headers(data[:8] + bytes(4) + data[12:]))


def found_errors(room: int = 100) -> array[int]:
    return array("q", bytes(8 * (1 + 2 * room)))


def test_walks_on_what_was_built() -> None:
    data = b"pad" + build_batch(RECORDS)
    header = read_header(data, 3)
    assert records_are_whole(data, 3, header)
    assert records_are_whole(memoryview(bytearray(data)), 3, header)
    assert not records_are_whole(data, 3, header._replace(record_count=201))
    assert not records_are_whole(data, 3, header._replace(batch_length=header.batch_length + 100))
    assert not records_are_whole(data, 3, header._replace(batch_length=header.batch_length - 1))
    empty = build_batch(RECORDS[:1])[:61]
    assert records_are_whole(empty, 0, read_header(empty)._replace(batch_length=49, record_count=0))


@pytest.mark.parametrize("walk", WALKS)
def test_what_is_wrong_with_single_records(walk: ModuleType) -> None:
    body = build_batch(RECORDS)[61:]
    first = RECORDS[0].timestamp
    found = found_errors()
    largest = walk.examine(body, 0, len(body), 200, first, first + 2, first + 197, BAD_TIMESTAMP | NULL_KEY, found)
    assert largest == first + 199
    keyless = [(index, NULL_KEY) for index in range(1, 200, 2)]
    assert found[0] == 100 + 2
    named = [(found[at], found[at + 1]) for at in range(1, 201, 2)]
    assert named == [(0, BAD_TIMESTAMP), *keyless, (198, BAD_TIMESTAMP)][:100]
    short = found_errors(1)
    walk.examine(body, 0, len(body), 200, first, 0, first * 2, NULL_KEY, short)
    assert list(short) == [100, 1, NULL_KEY]
    assert walk.examine(body, 0, len(body), 200, first, 0, 0, 0, found) == first + 199 and found[0] == 0
    gaps = encode_records([RECORDS[0]._replace(offset=at) for at in (0, 2, 2, 3)], 0, first)
    walk.examine(gaps, 0, len(gaps), 4, first, 0, 2 * first, BAD_OFFSET, found)
    assert list(found[:3]) == [1, 1, BAD_OFFSET]


@pytest.mark.parametrize("walk", WALKS)
def test_a_timestamp_of_more_than_64_bits_is_out_of_any_range(walk: ModuleType) -> None:
    body = encode_records([Record(at, at, b"k", b"v") for at in range(2)], None, 0)
    lowest, highest = -(2**63), 2**63 - 1
    found = found_errors()
    assert walk.largest_timestamp(body, 0, len(body), 2, highest - 1) == highest
    assert walk.largest_timestamp(body, 0, len(body), 2, highest) == MALFORMED
    assert walk.examine(body, 0, len(body), 2, highest, lowest, highest, BAD_TIMESTAMP, found) == highest
    assert list(found[:3]) == [1, 1, BAD_TIMESTAMP]
    assert walk.largest_timestamp(body, 0, len(body), 2, lowest) == -1


def record(*fields: bytes) -> bytes:
    content = b"".join(fields)
    return varint(len(content)) + content


ZERO, NULL = varint(0), varint(-1)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(
    "body",
    [
        b"\x80",
        b"\x0c" + bytes(5),
        varint(-6) + bytes(6),
        varint(5) + bytes(5),
        b"\x8c\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00" + bytes(6),
        varint(6) + bytes(6) + b"\x00",
        varint(2**31) + bytes(6),
        record(b"\0", ZERO, ZERO, varint(9), b"k", NULL, ZERO),  # a key longer than its record
        record(b"\0", ZERO, ZERO, varint(-2), NULL, ZERO),
        record(b"\0", ZERO, ZERO, varint(2**62), NULL, ZERO),
        record(b"\0", ZERO, ZERO, NULL, varint(3), b"v", ZERO),
        record(b"\0", ZERO, ZERO, NULL, NULL, NULL),  # -1 headers
        record(b"\0", ZERO, ZERO, NULL, NULL, varint(1)),  # one header, and nothing follows
        record(b"\0", ZERO, ZERO, NULL, NULL, varint(1), NULL, NULL),  # a header without a key
        record(b"\0", ZERO, ZERO, NULL, NULL, ZERO, b"x"),  # a byte too many
        record(b"\0", ZERO, b"\xff" * 9 + b"\x7f", NULL, NULL, ZERO),  # a number of more than 64 bits
    ],
)
def test_malformed_records_are_refused(walk: ModuleType, body: bytes) -> None:
    assert walk.largest_timestamp(body, 0, len(body), 1, 0) == MALFORMED
    assert walk.examine(body, 0, len(body), 1, 0, 0, 0, 7, found_errors()) == MALFORMED


@pytest.mark.parametrize("walk", WALKS)
def test_every_field_of_a_whole_record_is_read(walk: ModuleType) -> None:
    bodies = [
        record(b"\0", varint(7), ZERO, NULL, NULL, ZERO),
        record(b"\0", varint(7), ZERO, varint(1), b"k", varint(1), b"v", varint(2), varint(1), b"h", NULL, ZERO, ZERO),
        record(b"\0", varint(7), varint(2**40), ZERO, varint(200), b"v" * 200, ZERO),
    ]
    for body in bodies:
        assert walk.largest_timestamp(body, 0, len(body), 1, 5) == 12


@given(st.data())
def test_compiled_and_plain_walks_agree_on_anything(data: st.DataObject) -> None:
    body = data.draw(
        st.one_of(
            st.binary(max_size=60),
            st.lists(st.binary(max_size=20), max_size=5).map(
                lambda parts: b"".join(varint(len(part)) + part for part in parts)
            ),
        )
    )
    at = data.draw(st.integers(0, len(body) + 2))
    end = data.draw(st.integers(0, len(body) + 2))
    expected = data.draw(st.sampled_from([1, 2, 3, 5]))
    base = data.draw(st.sampled_from([0, 1000, 2**63 - 1, -(2**63)]))
    largest = PLAIN.largest_timestamp(body, at, end, expected, base)
    assert _walk.largest_timestamp(body, at, end, expected, base) == largest
    errors, same = found_errors(2), found_errors(2)
    assert _walk.examine(body, at, end, expected, base, 0, 2000, 7, errors) == PLAIN.examine(
        body, at, end, expected, base, 0, 2000, 7, same
    )
    assert errors == same
    if at <= end <= len(body):
        outcomes = []
        for codec in CODECS:
            try:
                outcomes.append(codec.decode_records(body, at, end, expected, 5, 1000, None, Record))
            except ValueError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_header_layout_is_the_formats() -> None:
    raw = struct.pack(">qiibIhiqqqhii", 1, 49, 2, 2, 3, 0x7C, 4, 5, 6, 7, 8, 9, 10)
    header = read_header(raw)
    assert tuple(header) == (1, 49, 2, 2, 3, 0x7C, 4, 5, 6, 7, 8, 9, 10)
    assert header.compression == 4 and header.is_control and header.has_delete_horizon and header.is_transactional


@given(st.data())
def test_what_the_walk_takes_can_be_decoded(data: st.DataObject) -> None:
    """And the other way round, whatever byte of a body was changed; names of headers that are no UTF-8 aside."""
    records = [Record(0, 1000 + at, b"key" * at, None if at else b"v", [("h", b"x")] * at) for at in range(3)]
    body = bytearray(encode_records(records, None, 1000))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at : at + data.draw(st.integers(1, 3))] = data.draw(st.binary(min_size=1, max_size=3))
    largest = _walk.largest_timestamp(body, 0, len(body), 3, 1000)
    try:
        decoded = decode_records(bytes(body), 0, len(body), 3, 0, 1000, None, Record)
    except UnicodeDecodeError:
        return
    except ValueError:
        assert largest == MALFORMED
        return
    assert largest == max(-1, *(each.timestamp for each in decoded))


@given(st.data())
def test_the_first_record_at_or_after_a_time_and_an_offset(data: st.DataObject) -> None:
    times = data.draw(st.lists(st.integers(990, 1010), min_size=1, max_size=8))
    records = [Record(at, time, b"k", b"v" * at) for at, time in enumerate(times)]
    body = bytes(encode_records(records, None, 1000))
    timestamp, offset = data.draw(st.integers(985, 1015)), data.draw(st.integers(95, 112))
    expected = [(100 + at, time) for at, time in enumerate(times) if time >= timestamp and 100 + at >= offset]
    for walk in WALKS:
        found = array("q", (0, 0))
        assert walk.find(body, 0, len(body), 100, 1000, timestamp, offset, found) == bool(expected)
        assert not expected or (found[0], found[1]) == expected[0]
        cut = data.draw(st.integers(0, len(body)))
        walk.find(body[:cut], 0, cut, 100, 1000, timestamp, offset, found)
        assert not walk.find(body, 0, len(body) + 1, 100, 1000, 0, 0, found)
