"""Batches that are made already: whose they are is written into them, and those that are too large are split."""

from __future__ import annotations

from crc32c import crc32c

from headrace.wire.batch import TRANSACTIONAL_BIT, read_header
from headrace.wire.primitives import Buffer
from headrace.wire.records import Compression, Record, build_batch, decode_batch

RECORD_OVERHEAD = 24
"""About what a record costs beyond key, value and headers: lengths, deltas."""

_HEADER_OVERHEAD = 4

CRC_AT = 17
ATTRIBUTES_AT = 21
PRODUCER_AT = 43


def stamp_producer(
    batch: bytearray | memoryview, producer_id: int, epoch: int, sequence: int, *, transactional: bool = False
) -> None:
    """Writes producer id, epoch and base sequence into a batch, marks it if it is `transactional`, and corrects its
    checksum."""
    view = memoryview(batch)
    if transactional:
        view[ATTRIBUTES_AT + 1] |= TRANSACTIONAL_BIT
    view[PRODUCER_AT : PRODUCER_AT + 8] = producer_id.to_bytes(8, "big", signed=True)
    view[PRODUCER_AT + 8 : PRODUCER_AT + 10] = epoch.to_bytes(2, "big", signed=True)
    view[PRODUCER_AT + 10 : PRODUCER_AT + 14] = sequence.to_bytes(4, "big", signed=True)
    view[CRC_AT : CRC_AT + 4] = crc32c(view[ATTRIBUTES_AT:]).to_bytes(4, "big")


def record_size(record: Record) -> int:
    """Returns about how many bytes a record takes in a batch that is not compressed."""
    size = RECORD_OVERHEAD + len(record.value or b"") + len(record.key or b"")
    return size + sum(len(name) + len(text or b"") + _HEADER_OVERHEAD for name, text in record.headers)


def half_size(batch: Buffer) -> int:
    """Returns half of what the records of a batch take, uncompressed. Raises CorruptBatch."""
    return max(sum(map(record_size, decode_batch(batch))) // 2, 1)


def split_batch(batch: Buffer, limit: int) -> list[tuple[bytearray, int]]:
    """Returns the parts of a batch, none larger than `limit`, uncompressed, each with its number of records (KIP-126).

    A record that is larger has a part of its own. The parts have the compression of the batch, and no producer. Raises
    CorruptBatch.
    """
    header = read_header(batch)
    records = decode_batch(batch)
    parts: list[tuple[bytearray, int]] = []
    begin = filled = 0
    for at, record in enumerate(records):
        size = record_size(record)
        if at > begin and filled + size > limit:
            parts.append(_part(records[begin:at], header.compression))
            begin, filled = at, 0
        filled += size
    parts.append(_part(records[begin:], header.compression))
    return parts


def _part(records: list[Record], compression: int) -> tuple[bytearray, int]:
    return bytearray(build_batch(records, compression=Compression(compression))), len(records)
