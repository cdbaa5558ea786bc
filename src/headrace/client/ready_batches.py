"""Batches that are made already: whose they are is written into them, and those that are too large are split."""

from __future__ import annotations

from crc32c import crc32c

from headrace.wire.batch import BATCH_OVERHEAD, TRANSACTIONAL_BIT, read_header
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


def records_size(batch: Buffer) -> int:
    """Returns about how many bytes the records of a batch take, uncompressed. Raises CorruptBatch."""
    return sum(map(record_size, decode_batch(batch)))


def split_batch(batch: Buffer, wanted: int) -> list[tuple[bytearray, int]]:
    """Returns at least two parts of a batch of several records, each with its number of records (KIP-126).

    They have about `wanted` bytes if they compress as the batch does; a record that is larger has a part of its own.
    The parts have the compression of the batch, and no producer. Raises CorruptBatch.
    """
    header = read_header(batch)
    records = decode_batch(batch)
    sizes = list(map(record_size, records))
    total = sum(sizes)
    room = max(wanted - BATCH_OVERHEAD, 1)
    limit = min(total * room // max(len(batch) - BATCH_OVERHEAD, 1), total - 1)
    parts: list[tuple[bytearray, int]] = []
    begin = filled = 0
    for at, size in enumerate(sizes):
        if at > begin and filled + size > limit:
            parts.append(_part(records[begin:at], header.compression))
            begin, filled = at, 0
        filled += size
    parts.append(_part(records[begin:], header.compression))
    return parts


def _part(records: list[Record], compression: int) -> tuple[bytearray, int]:
    return bytearray(build_batch(records, compression=Compression(compression))), len(records)
