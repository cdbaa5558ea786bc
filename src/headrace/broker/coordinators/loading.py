"""Reads a coordinator's log, piece by piece; runs on workers, because the disk may be cold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace.log.read_results import OutOfRange
from headrace.machine.runtime import LoadedRecord, LogPiece, Marker
from headrace.wire.batch import BATCH_OVERHEAD, BatchHeader, CorruptBatch, read_header
from headrace.wire.markers import COMMIT, read_marker
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.log.log import Log

Decode: TypeAlias = Callable[[bytes, bytes | None], Any]
"""Decodes a record's key and value; returns None for a record that does not matter. Raises DecodeError."""

_LOAD_BYTES: Final = 64 * 1024
"""Bytes of a log read at a time, which take about a millisecond to replay; then others get their turn."""


def read_piece(log: Log, offset: int, decode: Decode) -> LogPiece:
    """Returns the records of the log from `offset` on that one read covers.

    Raises OSError, CorruptBatch or DecodeError if they cannot be read.
    """
    entries: list[LoadedRecord | Marker] = []
    read = log.reader.read(offset, max_bytes=_LOAD_BYTES, max_offset=log.end_offset, min_one=True)
    if isinstance(read, OutOfRange):
        raise OSError(f"offset {offset} cannot be read: the log has {read.log_start_offset} to {read.end_offset}")
    if read.slice is None:
        # Compaction left nothing up to the end.
        return LogPiece(entries, 0, log.end_offset)
    data = read.slice.file.read(read.slice.position, read.slice.size)
    count = 0
    next_offset = offset
    at = 0
    while at + BATCH_OVERHEAD <= len(data):
        header = read_header(data, at)
        if at + header.size > len(data):
            break
        if header.next_offset > next_offset:
            count += _decode_batch(data, at, header, decode, entries)
            next_offset = header.next_offset
        at += header.size
    if next_offset == offset:
        raise CorruptBatch(f"no batch at offset {offset} of the log")
    return LogPiece(entries, count, next_offset)


def _decode_batch(
    data: bytes, at: int, header: BatchHeader, decode: Decode, entries: list[LoadedRecord | Marker]
) -> int:
    records = decode_batch(data, at)
    if header.is_control:
        for record in records:
            marker = read_marker(record)
            if marker is not None:
                entries.append(Marker(record.offset, header.producer_id, marker[0] == COMMIT))
        return len(records)
    producer_id = header.producer_id if header.is_transactional else -1
    for record in records:
        decoded = decode(record.key or b"", record.value)
        if decoded is not None:
            entries.append(LoadedRecord(decoded, record.offset, producer_id))
    return len(records)
