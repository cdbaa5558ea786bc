"""Records in and out, against other people's encoders and decoders, with every codec."""

from __future__ import annotations

import gzip
from io import BytesIO
from typing import Any

import cramjam
import pytest
from aiokafka.record._crecords.default_records import (
    DefaultRecordBatch as AioBatch,
)
from aiokafka.record._crecords.default_records import (
    DefaultRecordBatchBuilder as AioBuilder,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
from kio.records.readers import read_batch
from kio.records.writers import write_batch
from peers.tried import tried

from headrace.wire.batch import check_crc, read_header
from headrace.wire.records import (
    Compression,
    CorruptBatch,
    Record,
    build_batch,
    build_plain_batch,
    compress,
    decode_batch,
    decompress,
    rebuild_batch,
)

NAMES = st.text(max_size=6)
BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(NAMES, BYTES), max_size=3)
RECORDS = st.lists(st.builds(Record, st.just(0), st.integers(0, 2**42), BYTES, BYTES, HEADERS), min_size=1, max_size=12)
CODECS = st.sampled_from(Compression)


def plain(record: Any) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value, [tuple(header) for header in record.headers]


@given(RECORDS, CODECS, st.integers(0, 2**40))
def test_round_trip(records: list[Record], codec: Compression, base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec)
    decoded = decode_batch(b"xx" + batch, 2)
    assert [plain(record) for record in decoded] == [plain(record) for record in records]
    assert [record.offset for record in decoded] == list(range(base_offset, base_offset + len(records)))


@pytest.mark.parametrize("reader", [AioBatch, KafkaBatch])
@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=tried(25))
@given(records=RECORDS)
def test_others_read_ours(reader: Any, codec: Compression, records: list[Record]) -> None:
    if reader is KafkaBatch and codec not in (Compression.NONE, Compression.GZIP):
        return  # kafka-python brings no codec of its own for these
    batch = build_batch(records, base_offset=3, compression=codec)
    other = reader(batch)
    assert other.validate_crc()
    assert [(r.offset, *plain(r)) for r in other] == [(3 + i, *plain(r)) for i, r in enumerate(records)]


@pytest.mark.parametrize("builder", [AioBuilder, KafkaBuilder])
@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=tried(25))
@given(records=RECORDS)
def test_ours_reads_others(builder: Any, codec: Compression, records: list[Record]) -> None:
    if builder is KafkaBuilder and codec not in (Compression.NONE, Compression.GZIP):
        return
    other = builder(2, int(codec), 0, 7, 1, 9, 1 << 20)
    for index, record in enumerate(records):
        other.append(index, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(other.build())
    header = read_header(batch)
    assert check_crc(batch, 0, header) and header.record_count == len(records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 9)
    assert [plain(record) for record in decode_batch(batch)] == [plain(record) for record in records]


@given(RECORDS)
def test_an_uncompressed_batch_is_the_same_bytes_as_others_make(records: list[Record]) -> None:
    other = AioBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for index, record in enumerate(records):
        other.append(index, record.timestamp, record.key, record.value, list(record.headers))
    # the other one takes no leader epoch; ours is the producer's -1
    ours = build_batch(records)
    assert bytes(other.build())[16:] == ours[16:]


@given(st.lists(st.tuples(st.binary(), st.none() | st.binary()), min_size=1, max_size=5), st.integers(0, 2**62))
def test_the_short_way_of_plain_records_is_the_long_one(
    pairs: list[tuple[bytes, bytes | None]], timestamp_ms: int
) -> None:
    records = [Record(0, timestamp_ms, key, value) for key, value in pairs]
    assert build_plain_batch(records) == build_batch(records)


def test_offsets_kept_as_after_compaction() -> None:
    records = [Record(12, 5, b"a", b"1"), Record(19, 6, b"b", b"2"), Record(30, 4, None, None)]
    batch = build_batch(records, base_offset=10, keep_offsets=True)
    assert [record.offset for record in decode_batch(batch)] == [12, 19, 30]
    header = read_header(batch)
    assert (header.last_offset, header.max_timestamp, header.record_count) == (30, 6, 3)
    body = memoryview(batch)[61:]
    fields = {"base_timestamp": header.base_timestamp, "max_timestamp": 5}
    smaller = rebuild_batch(header, body[: 1 + body[0] // 2], record_count=1, attributes=Compression.ZSTD, **fields)
    after = read_header(smaller)
    assert (after.base_offset, after.last_offset, after.record_count, after.max_timestamp) == (10, 30, 1, 5)
    assert decode_batch(smaller) == [Record(12, 5, b"a", b"1", [])]
    empty = rebuild_batch(header, b"", record_count=0, attributes=Compression.NONE, **fields)
    assert decode_batch(empty) == [] and check_crc(empty, 0, read_header(empty))


@pytest.mark.parametrize("codec", list(Compression)[1:])
@pytest.mark.parametrize("size", [0, 1, 1000, 200_000])
def test_codecs_of_any_size(codec: Compression, size: int) -> None:
    data = bytes(i * i & 0xFF for i in range(size))
    assert bytes(decompress(codec, compress(codec, data))) == data
    assert bytes(decompress(codec, memoryview(bytes(compress(codec, memoryview(data)))))) == data


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_bomb_stops_at_the_limit(codec: Compression) -> None:
    bomb = bytes(compress(codec, bytes(1_000_000)))
    assert len(decompress(codec, bomb, limit=1_000_000)) == 1_000_000
    with pytest.raises(CorruptBatch, match="more than 999999 bytes"):
        decompress(codec, bomb, limit=999_999)


@pytest.mark.parametrize("codec", list(Compression)[1:])
@given(data=st.binary(max_size=80))
def test_garbage_is_a_corrupt_batch(codec: Compression, data: bytes) -> None:
    good = bytes(compress(codec, b"some text, some text, some text"))
    for bad in (data, good[:-1], good + data, bytes(data[:8]) + good[8:]):
        try:
            decompress(codec, bad, limit=1 << 20)
        except CorruptBatch:
            continue


def test_forms_that_other_writers_use() -> None:
    text = b"some text, " * 9000
    assert bytes(decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(text)))) == text
    assert bytes(decompress(Compression.GZIP, gzip.compress(text[:50_000]) + gzip.compress(text[50_000:]))) == text
    linked = cramjam.lz4.Compressor(content_checksum=True, block_linked=True)
    linked.compress(text)
    assert bytes(decompress(Compression.LZ4, bytes(linked.finish()))) == text
    streamed = cramjam.zstd.Compressor()
    streamed.compress(text)
    assert bytes(decompress(Compression.ZSTD, bytes(streamed.finish()) * 2)) == text * 2


def test_lz4_blocks_are_independent_for_javas_reader() -> None:
    assert bytes(compress(Compression.LZ4, b"x"))[4] & 0x20
    assert bytes(compress(Compression.SNAPPY, b"x")).startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


@given(st.binary(max_size=120), st.integers(0, 119))
def test_a_mangled_batch_decodes_or_is_corrupt(noise: bytes, at: int) -> None:
    batch = bytearray(build_batch([Record(0, 1, b"key", b"value" * 3, [("h", b"x")])] * 2))
    batch[at : at + len(noise)] = noise
    try:
        decode_batch(batch)
    except CorruptBatch as error:
        assert str(error)


@given(RECORDS)
def test_kio_reads_ours_and_we_read_kios(records: list[Record]) -> None:
    # kio's times lose milliseconds to rounding, so these are whole seconds
    records = [record._replace(timestamp=record.timestamp // 1_000_000 * 1000) for record in records]
    batch = build_batch(records, base_offset=3, producer_id=8, producer_epoch=2, base_sequence=0)
    other, size = read_batch(batch, 0)
    assert size == len(batch) and (other.base_offset, other.producer_id, other.crc) == (3, 8, read_header(batch).crc)
    theirs = [
        (
            round(record.timestamp.timestamp() * 1000),
            record.key,
            record.value,
            [((header.key or b"").decode(), header.value) for header in record.headers],
        )
        for record in other.records
    ]
    assert theirs == [plain(record) for record in records]
    out = BytesIO()
    write_batch(out, other)
    assert out.getvalue() == batch
