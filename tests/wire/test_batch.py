"""The batch header, its checksum and what is changed in place; the walks, compiled and as plain Python."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from types import ModuleType

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from hypothesis import given
from hypothesis import strategies as st

import headrace.wire
from headrace.wire import _walk
from headrace.wire.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    CorruptBatch,
    check_crc,
    iter_headers,
    null_key_indexes,
    read_header,
    set_log_append_time,
    stamp,
    walk_record_count,
)
from headrace.wire.records import Record, build_batch, decode_batch


def plain() -> ModuleType:
    """The walk's source file as it runs without a compiler."""
    spec = importlib.util.spec_from_file_location("plain_walk", Path(headrace.wire.__file__).parent / "_walk.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = plain()
WALKS = [_walk, PLAIN]


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


def test_walks_on_what_was_built() -> None:
    data = b"pad" + build_batch(RECORDS)
    header = read_header(data, 3)
    assert walk_record_count(data, 3, header)
    assert walk_record_count(memoryview(bytearray(data)), 3, header)
    assert not walk_record_count(data, 3, header._replace(record_count=201))
    assert not walk_record_count(data, 3, header._replace(batch_length=header.batch_length + 100))
    assert not walk_record_count(data, 3, header._replace(batch_length=header.batch_length - 1))
    assert null_key_indexes(data, 3, header) == list(range(1, 200, 2))
    assert null_key_indexes(data, 3, header._replace(record_count=199)) is None


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(
    "body",
    [
        b"\x80",
        b"\x0c" + bytes(5),
        varint(-6) + bytes(6),
        varint(5) + bytes(5),
        b"\x8c\x80\x80\x80\x80\x80\x00" + bytes(6),
        varint(6) + bytes(6) + b"\x00",
        varint(2**31) + bytes(6),
    ],
)
def test_malformed_lengths_are_refused(walk: ModuleType, body: bytes) -> None:
    assert walk.count_records(body, 0, len(body)) == -1
    assert walk.null_keys(body, 0, len(body), 1) is None


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
    count = PLAIN.count_records(body, at, end)
    assert _walk.count_records(body, at, end) == count
    expected = data.draw(st.sampled_from([count, 1]))
    assert _walk.null_keys(body, at, end, expected) == PLAIN.null_keys(body, at, end, expected)
    if at <= end <= len(body):
        outcomes = []
        for walk in WALKS:
            try:
                outcomes.append(walk.decode_records(body, at, end, expected, 5, 1000, None, Record))
            except ValueError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_header_layout_is_the_formats() -> None:
    raw = struct.pack(">qiibIhiqqqhii", 1, 49, 2, 2, 3, 0x7C, 4, 5, 6, 7, 8, 9, 10)
    header = read_header(raw)
    assert tuple(header) == (1, 49, 2, 2, 3, 0x7C, 4, 5, 6, 7, 8, 9, 10)
    assert header.compression == 4 and header.is_control and header.has_delete_horizon and header.is_transactional
