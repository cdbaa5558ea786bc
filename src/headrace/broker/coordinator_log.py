"""A coordinator partition and its log: decided records into batches, and the log back into the shard at a load."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.groups.records import decode
from headrace.wire.batch import BATCH_OVERHEAD, BatchHeader, CorruptBatch, pack_batch, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.groups.shard import GroupShard
    from headrace.log.log import Log

Pair = tuple[bytes, bytes | None]
"""A record's key and value; None makes it a tombstone."""

_LOAD_BYTES: Final = 64 * 1024
"""How much of a log is read and replayed before others get their turn: a few milliseconds' work."""

_MARKER_KEY = struct.Struct(">hh")
_COMMIT_MARKER: Final = 1


def build_coordinator_batch(pairs: Sequence[Pair], timestamp_ms: int) -> bytes:
    """One uncompressed batch with these records, as Kafka's coordinator writes them."""
    parts: list[bytes] = []
    for delta, (key, value) in enumerate(pairs):
        body = b"".join(
            (
                b"\x00\x00",  # attributes, timestamp delta
                _varint(delta),
                _varint(len(key)),
                key,
                b"\x01" if value is None else _varint(len(value)),
                value or b"",
                b"\x00",  # no headers
            )
        )
        parts.append(_varint(len(body)))
        parts.append(body)
    batch = pack_batch(
        b"".join(parts),
        record_count=len(pairs),
        last_offset_delta=len(pairs) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
    )
    return bytes(batch)


def _varint(value: int) -> bytes:
    """A zigzag varint of a value that is not negative."""
    if value < 64:
        return bytes((value << 1,))
    value <<= 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


async def replay_log(log: Log, shard: GroupShard) -> int:
    """Feeds a log to a fresh shard, a slice at a time; returns how many records there were.

    Raises OSError, CorruptBatch or DecodeError where the log cannot be read to its end.
    """
    count = 0
    offset = log.log_start_offset
    while offset < log.end_offset:
        read = log.read(offset, max_bytes=_LOAD_BYTES, max_offset=log.end_offset, min_one=True)
        if read.error is not ErrorCode.NONE:
            raise OSError(f"offset {offset} cannot be read: {read.error.name}")
        if read.slice is None:
            break
        data = read.slice.file.read(read.slice.position, read.slice.size)
        before = offset
        at = 0
        while at + BATCH_OVERHEAD <= len(data):
            header = read_header(data, at)
            if at + header.size > len(data):
                break
            if header.next_offset > offset:
                count += _replay_batch(shard, data, at, header)
                offset = header.next_offset
            at += header.size
        if offset == before:
            raise CorruptBatch(f"no batch at offset {offset} of the log")
        await asyncio.sleep(0)
    return count


def _replay_batch(shard: GroupShard, data: bytes, at: int, header: BatchHeader) -> int:
    records = decode_batch(data, at)
    if header.is_control:
        for record in records:
            kind = _MARKER_KEY.unpack_from(record.key or b"\x00\x00\xff\xff")[1]
            if kind in (0, _COMMIT_MARKER):
                shard.replay_marker(header.producer_id, kind == _COMMIT_MARKER)
        return len(records)
    producer_id = header.producer_id if header.is_transactional else -1
    for record in records:
        said = decode(record.key or b"", record.value, record.offset)
        if said is not None:
            shard.replay(said, producer_id)
    return len(records)
