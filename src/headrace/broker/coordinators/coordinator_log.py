"""A coordinator partition and its log: decided records into batches, and the log back into the shard at a load."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.groups.records import Record, decode
from headrace.wire.batch import BATCH_OVERHEAD, BatchHeader, CorruptBatch, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Compression, build_batch, decode_batch
from headrace.wire.records import Record as LogRecord

if TYPE_CHECKING:
    from headrace.env.workers import Workers
    from headrace.groups.shard import GroupShard
    from headrace.log.log import Log

Pair = tuple[bytes, bytes | None]
"""A record's key and value; None makes it a tombstone."""

_LOAD_BYTES: Final = 64 * 1024
"""How much of a log is read at a time: what it says is replayed in about a millisecond, then others get their turn."""

_MARKER_KEY = struct.Struct(">hh")
_COMMIT_MARKER: Final = 1


BATCH_BYTES_MAX: Final = 512 * 1024
"""How large a batch of several records gets; what a decision has beyond it goes into further batches."""

_RECORD_OVERHEAD_MAX: Final = 23
"""What surrounds key and value in a record, at most: its length, attributes, two deltas, two lengths, header count."""


def build_coordinator_batches(
    pairs: Sequence[Pair], timestamp_ms: int, max_bytes: int = BATCH_BYTES_MAX, codec: int = Compression.NONE
) -> list[tuple[int, bytes]]:
    """(record count, batch) of each batch that these records need: one, unless they are huge.

    A batch has no more than `max_bytes`, unless a single record is larger: then it has a batch of its own.
    """
    batches = []
    first = 0
    size = BATCH_OVERHEAD
    for at, (key, value) in enumerate(pairs):
        record_size = len(key) + len(value or b"") + _RECORD_OVERHEAD_MAX
        if size + record_size > max_bytes and at > first:
            batches.append((at - first, build_coordinator_batch(pairs[first:at], timestamp_ms, codec)))
            first = at
            size = BATCH_OVERHEAD
        size += record_size
    batches.append((len(pairs) - first, build_coordinator_batch(pairs[first:], timestamp_ms, codec)))
    return batches


def build_coordinator_batch(pairs: Sequence[Pair], timestamp_ms: int, codec: int = Compression.NONE) -> bytes:
    """One batch with these records, as Kafka's coordinator writes them."""
    return build_batch([LogRecord(0, timestamp_ms, key, value) for key, value in pairs], compression=codec)


class Marker(NamedTuple):
    """The end of a transaction, as the log tells it."""

    committed: bool


class LogPiece(NamedTuple):
    """What a stretch of a log says, decoded: each record with the id of its transaction's producer, -1 outside one."""

    said: list[tuple[Record | Marker, int]]
    record_count: int
    next_offset: int


def read_piece(log: Log, offset: int) -> LogPiece:
    """What the log says from `offset` on, as far as one read goes; for a worker, because the disk may be cold.

    Raises OSError, CorruptBatch or DecodeError where that cannot be read.
    """
    said: list[tuple[Record | Marker, int]] = []
    read = log.read(offset, max_bytes=_LOAD_BYTES, max_offset=log.end_offset, min_one=True)
    if read.error is not ErrorCode.NONE:
        raise OSError(f"offset {offset} cannot be read: {read.error.name}")
    if read.slice is None:
        # Compaction left nothing up to the end.
        return LogPiece(said, 0, log.end_offset)
    data = read.slice.file.read(read.slice.position, read.slice.size)
    count = 0
    next_offset = offset
    at = 0
    while at + BATCH_OVERHEAD <= len(data):
        header = read_header(data, at)
        if at + header.size > len(data):
            break
        if header.next_offset > next_offset:
            count += _decode_batch(data, at, header, said)
            next_offset = header.next_offset
        at += header.size
    if next_offset == offset:
        raise CorruptBatch(f"no batch at offset {offset} of the log")
    return LogPiece(said, count, next_offset)


def _decode_batch(data: bytes, at: int, header: BatchHeader, said: list[tuple[Record | Marker, int]]) -> int:
    records = decode_batch(data, at)
    if header.is_control:
        for record in records:
            kind = _MARKER_KEY.unpack_from(record.key or b"\x00\x00\xff\xff")[1]
            if kind in (0, _COMMIT_MARKER):
                said.append((Marker(kind == _COMMIT_MARKER), header.producer_id))
        return len(records)
    producer_id = header.producer_id if header.is_transactional else -1
    for record in records:
        decoded = decode(record.key or b"", record.value, record.offset)
        if decoded is not None:
            said.append((decoded, producer_id))
    return len(records)


async def replay_log(log: Log, shard: GroupShard, workers: Workers) -> int:
    """Feeds a log to a fresh shard, a piece at a time: a worker reads and decodes, the event loop replays.

    Returns how many records there were. Raises OSError, CorruptBatch or DecodeError where the log cannot be read to its
    end.
    """
    count = 0
    offset = log.log_start_offset
    while offset < log.end_offset:
        piece = await workers.run(partial(read_piece, log, offset))
        for said, producer_id in piece.said:
            if isinstance(said, Marker):
                shard.replay_marker(producer_id, said.committed)
            else:
                shard.replay(said, producer_id)
        count += piece.record_count
        offset = piece.next_offset
    return count
