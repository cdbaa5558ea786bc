"""Records and compression: what lies inside a batch, for those who open it. The produce and fetch paths do not.

Source: Kafka's message format v2 (KIP-98, headers KIP-82, zstd KIP-110). A compressed batch is its header and then the
compressed body. Snappy is the xerial framing of Kafka's clients, or one raw block; lz4 is the frame format with
independent blocks; all of them are read in any form that Kafka's reader reads (see `framing`), and lz4 in more.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Final, NamedTuple

import cramjam

from headrace.wire import _codec
from headrace.wire.batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_BIT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    read_header,
    seal_batch,
    sealed,
    unsealed,
)
from headrace.wire.framing import (
    XERIAL_HEADER,
    BodyTooLarge,
    gunzip,
    lz4_blocks,
    lz4_frame,
    snappy_pieces,
    zstd_blocks,
    zstd_frames,
)
from headrace.wire.primitives import Buffer

__all__ = [
    "MAX_DECOMPRESSED_BYTES",
    "BodyTooLarge",
    "Compression",
    "CorruptBatch",
    "Record",
    "batch_body",
    "build_batch",
    "compress",
    "decode_batch",
    "decompress",
    "opened_size",
    "rebuild_batch",
    "recompress_batch",
]

MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""What one batch may decompress to, unless the caller says otherwise."""


class Compression(IntEnum):
    """The codecs, by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Record(NamedTuple):
    """One record. `offset` is absolute when decoded; `timestamp` in ms, -1 for none; header values may be null."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


# --- compression

_XERIAL_BLOCK: Final = 32 * 1024
BLOCKS_MAX: Final = 4096
"""Blocks of a body whose sizes are looked at, one by one: what the clients write holds 128 MB in so many."""


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` as Kafka's clients write it. `level` is the codec's own scale; None is its default."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return memoryview(cramjam.gzip.compress(data, level=level))
    if codec == Compression.SNAPPY:
        return _snappy_compress(data)
    if codec == Compression.LZ4:
        # Kafka's Java reader refuses blocks that depend on each other, which are cramjam's default
        lz4 = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        lz4.compress(bytes(data))
        return memoryview(lz4.finish())
    if codec == Compression.ZSTD:
        return memoryview(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise ValueError(f"no codec has the number {codec}")


def decompress(
    codec: int,
    data: Buffer,
    limit: int = MAX_DECOMPRESSED_BYTES,
    room: memoryview | None = None,
    *,
    narrow: bool = False,
) -> Buffer:
    """The bytes that `data` was made from: at most `limit` of them, else `BodyTooLarge`. Memory stays below it.

    They lie in `room`, of at least `limit` bytes, where that is given. Raises `CorruptBatch`; if `narrow`, for all that
    Kafka's own reader cannot read, which a broker must not store. The interpreter's lock is free while a codec
    works.
    """
    if codec == Compression.NONE:
        return data
    size = opened_size(codec, data, limit)
    try:
        if codec == Compression.LZ4:
            data = lz4_frame(data, narrow)
        if codec == Compression.SNAPPY:
            if size > limit:
                raise _too_large(limit)
            return _snappy_decompress(data, _room(room, size))
        try:
            return _decompress_into(codec, data, _room(room, min(size, limit)))
        except BodyTooLarge:
            if size >= limit:
                raise _too_large(limit) from None
            return _decompress_into(codec, data, _room(room, limit))  # several members of gzip, or a lie
    except (cramjam.DecompressionError, zlib.error, OSError, struct.error, IndexError) as error:
        raise CorruptBatch(f"a body does not decompress as {Compression(codec).name.lower()}: {error}") from None


def opened_size(codec: int, data: Buffer, limit: int) -> int:
    """What `data` may become when it is decompressed, by what it says of itself; `limit` + 1 for more than `limit`.

    An upper bound, but for gzip, which may lie. Cheap: a body of very many blocks is not looked through, and counts as
    larger than the limit. Raises `CorruptBatch`.
    """
    if codec == Compression.NONE:
        return len(data)
    try:
        if codec == Compression.GZIP:
            size: int = struct.unpack_from("<I", data, len(data) - 4)[0]
            return min(max(size, 64), limit + 1)
        size = 0
        for count, block in enumerate(_BLOCKS[codec](data)):
            size += block
            if size > limit or count == BLOCKS_MAX:
                return limit + 1
        return size
    except KeyError:
        raise CorruptBatch(f"no codec has the number {codec}") from None
    except (cramjam.DecompressionError, struct.error, IndexError) as error:
        raise CorruptBatch(f"a body does not begin as {Compression(codec).name.lower()} does: {error}") from None


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body decompresses to more than {limit} bytes")


def _room(room: memoryview | None, size: int) -> memoryview:
    return memoryview(bytearray(size)) if room is None else room[:size]


def _decompress_into(codec: int, data: Buffer, out: memoryview) -> memoryview:
    if codec == Compression.GZIP:
        return out[: gunzip(data, out)]
    try:
        if codec == Compression.LZ4:
            return out[: cramjam.lz4.decompress_into(data, out)]
        try:
            return out[: cramjam.zstd.decompress_into(data, out)]
        except cramjam.DecompressionError as error:
            whole = zstd_frames(data)
            if len(whole) == len(data) or "whole buffer" in str(error):
                raise
            return out[: cramjam.zstd.decompress_into(whole, out)]
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise _too_large(len(out)) from None
        raise


def _snappy_blocks(data: Buffer) -> Iterator[int]:
    """How large each block of a snappy body becomes: of Kafka's clients' framing, or the one raw block that it is."""
    for block in snappy_pieces(data):
        yield cramjam.snappy.decompress_raw_len(block)


def _snappy_decompress(data: Buffer, out: memoryview) -> memoryview:
    at = 0
    for piece in snappy_pieces(data):
        at += cramjam.snappy.decompress_raw_into(piece, out[at:])
    return out[:at]


_BLOCKS: Final[dict[int, Callable[[Buffer], Iterator[int]]]] = {
    Compression.SNAPPY: _snappy_blocks,
    Compression.LZ4: lz4_blocks,
    Compression.ZSTD: zstd_blocks,
}


def _snappy_compress(data: Buffer) -> bytearray:
    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK])
        out += struct.pack(">i", len(block))
        out += memoryview(block)
    return out


# --- batches


def batch_body(buf: Buffer, at: int, header: BatchHeader, limit: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The records of a batch that lies wholly in `buf`, decompressed. Raises `CorruptBatch`."""
    body = memoryview(buf)[at + BATCH_OVERHEAD : at + header.size]
    return decompress(header.compression, body, limit)


def decode_batch(buf: Buffer, at: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """Every record of the batch at `at`; raises `CorruptBatch`. The checksum is not looked at."""
    left = len(buf) - at
    if left < BATCH_OVERHEAD:
        raise CorruptBatch(f"{left} bytes are less than the header of a batch")
    header = read_header(buf, at)
    if header.magic != MAGIC or not BATCH_OVERHEAD <= header.size <= left or header.record_count < 0:
        raise CorruptBatch(
            f"magic {header.magic}, {header.size} bytes with {header.record_count} records: not a batch of {left} bytes"
        )
    body = bytes(batch_body(buf, at, header, limit))
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    try:
        return _codec.decode_records(
            body, 0, len(body), header.record_count, header.base_offset, header.base_timestamp, append_time, Record
        )
    except (ValueError, OverflowError) as error:
        raise CorruptBatch(f"the batch at offset {header.base_offset}: {error}") from None


_timestamp_of = attrgetter("timestamp")


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: int = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    log_append_time: int | None = None,
    keep_offsets: bool = False,
) -> bytes:
    """One batch of at least one record.

    The records get consecutive offsets from `base_offset`; with `keep_offsets` their own ones (ascending) stay,
    as after compaction. `log_append_time` in ms makes that the timestamp of all of them.
    """
    assert records, "a batch holds a record"
    base_timestamp = records[0].timestamp
    body = _codec.encode_records(records, base_offset if keep_offsets else None, base_timestamp)
    attributes = compression
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    max_timestamp = max(map(_timestamp_of, records))
    if log_append_time is not None:
        attributes |= TIMESTAMP_TYPE_BIT
        max_timestamp = log_append_time
    batch = seal_batch(
        unsealed(compress(compression, body, level)),
        record_count=len(records),
        last_offset_delta=records[-1].offset - base_offset if keep_offsets else len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return bytes(batch)


def build_plain_batch(records: Sequence[Record]) -> bytes:
    """One batch of records that have one timestamp, as `build_batch` makes it by default."""
    timestamp_ms = records[0].timestamp
    return sealed(_codec.encode_records(records, None, timestamp_ms), len(records), timestamp_ms)


def rebuild_batch(
    header: BatchHeader,
    body: Buffer,
    *,
    record_count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    level: int | None = None,
) -> Buffer:
    """The batch of `header` around other records, or the same ones in another codec: they lie encoded in `body`, which
    is compressed as `attributes` say.

    All the rest stays: base and last offset, leader epoch, producer, sequence.
    """
    return seal_batch(
        unsealed(compress(attributes & COMPRESSION_MASK, body, level)),
        record_count=record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def recompress_batch(
    header: BatchHeader, body: Buffer, *, compression: int, level: int | None = None, max_timestamp: int
) -> Buffer:
    """The batch of `header` around its records, which lie decompressed in `body`, in another codec.

    The timestamp type becomes CreateTime, with that largest timestamp.
    """
    return rebuild_batch(
        header,
        body,
        record_count=header.record_count,
        attributes=header.attributes & ~(COMPRESSION_MASK | TIMESTAMP_TYPE_BIT) | compression,
        base_timestamp=header.base_timestamp,
        max_timestamp=max_timestamp,
        level=level,
    )


assert LENGTH_OVERHEAD + 49 == BATCH_OVERHEAD
