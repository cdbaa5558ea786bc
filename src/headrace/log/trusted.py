"""Staging batches that do not come from clients: a coordinator's, the controller's, a leader's (as its replica).

Their records are trusted, their frames are checked all the same. A replica's batches have offsets and epochs already.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.log.producers import Origin, Producers, Refusal
from headrace.log.results import AppendResult
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.batch import (
    BATCH_OVERHEAD,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    check_crc,
    iter_headers,
    read_header,
)
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import ABORT, marker_of
from headrace.wire.primitives import Buffer
from headrace.wire.records import CorruptBatch

if TYPE_CHECKING:
    from headrace.log.appender import Appender

_pack_prefix = Struct(">qii").pack
_PREFIX_BYTES = 16
_FROM_COORDINATORS: Final[tuple[Origin, ...]] = ("coordinator", "marker", "raising marker")


def stage(log: Appender, data: Buffer, leader_epoch: int, now_ms: int, origin: Origin) -> AppendResult:
    """Stages every batch in `data`, or none of them. Raises OSError where a segment must be rolled and cannot.

    Only a replica's batches may be spread over segments: a leader's go into one, so that one write has all of them.
    """
    view = memoryview(data)
    if origin != "replica" and len(view) >= BATCH_OVERHEAD:
        header = read_header(view)
        if header.batch_length == len(view) - LENGTH_OVERHEAD and header.magic == MAGIC:
            return _stage_one(log, view, header, leader_epoch, now_ms, origin)
    try:
        batches = list(iter_headers(view))
    except CorruptBatch as error:
        return AppendResult(ErrorCode.CORRUPT_MESSAGE, error_message=f"{error} in {log.name}")
    refused = _check(log, view, batches, origin)
    if refused is not None:
        return refused
    first_offset = batches[0][1].base_offset if origin == "replica" else log.staged_offset
    result = AppendResult(ErrorCode.NONE, first_offset, -1, -1, log.log_start_offset)
    if origin != "replica":
        last_offset = first_offset - 1 + sum(header.last_offset_delta + 1 for _, header in batches)
        log.roll_before(last_offset, len(view), max(header.max_timestamp for _, header in batches), now_ms)
    for at, header in batches:
        size = header.size
        base_offset, epoch = log.staged_offset, leader_epoch
        if origin == "replica":
            base_offset, epoch = header.base_offset, header.partition_leader_epoch
        last_offset = base_offset + header.last_offset_delta
        if origin == "replica":
            log.roll_before(last_offset, size, header.max_timestamp, now_ms)
        aborted = None
        if header.producer_id >= 0:
            placed = header._replace(base_offset=base_offset)
            aborted = stage_producer(log.producers, placed, lambda at=at, size=size: view[at : at + size])  # type: ignore[misc]
        prefix = _pack_prefix(base_offset, header.batch_length, epoch)
        staged = (base_offset, last_offset, size, header.max_timestamp, epoch, result, aborted)
        log.stage((prefix, view[at + _PREFIX_BYTES : at + size]), staged)
        result.last_offset = last_offset
    return result


def _stage_one(
    log: Appender, view: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int, origin: Origin
) -> AppendResult:
    """The same for one batch of this broker's own: so are most."""
    refused = _check(log, view, [(0, header)], origin)
    if refused is not None:
        return refused
    offset, size, max_timestamp = log.staged_offset, len(view), header.max_timestamp
    last_offset = offset + header.last_offset_delta
    log.roll_before(last_offset, size, max_timestamp, now_ms)
    aborted = None
    if header.producer_id >= 0:
        aborted = stage_producer(log.producers, BatchHeader(offset, *header[1:]), lambda: view)
    result = AppendResult(ErrorCode.NONE, offset, last_offset, -1, log.log_start_offset)
    log.stage(
        (_pack_prefix(offset, header.batch_length, leader_epoch), view[_PREFIX_BYTES:]),
        (offset, last_offset, size, max_timestamp, leader_epoch, result, aborted),
    )
    return result


def _check(
    log: Appender, view: memoryview, batches: list[tuple[int, BatchHeader]], origin: Origin
) -> AppendResult | None:
    if not batches:
        return AppendResult(ErrorCode.INVALID_RECORD, error_message=f"There is no batch to append to {log.name}")
    if origin in _FROM_COORDINATORS and len(view) > log.config.segment_bytes:
        message = f"An append of {len(view)} bytes exceeds a segment of {log.config.segment_bytes} in {log.name}."
        return AppendResult(ErrorCode.RECORD_LIST_TOO_LARGE, error_message=message)
    next_offset = log.staged_offset
    for at, header in batches:
        if not check_crc(view, at, header):
            message = f"Record is corrupt (stored crc = {header.crc}) in topic partition {log.name}."
            return AppendResult(ErrorCode.CORRUPT_MESSAGE, error_message=message)
        if header.last_offset_delta < 0:
            message = f"Batch has an invalid offset range in topic partition {log.name}"
            return AppendResult(ErrorCode.INVALID_RECORD, error_message=message)
        if origin == "replica":
            if header.base_offset < next_offset:
                message = f"Offset {header.base_offset} is below the end {next_offset} of {log.name}"
                return AppendResult(ErrorCode.OFFSET_OUT_OF_RANGE, error_message=message)
            next_offset = header.next_offset
        elif (size := header.size) > log.config.max_message_bytes:
            message = f"A batch of {size} bytes exceeds {log.config.max_message_bytes} in {log.name}."
            return AppendResult(ErrorCode.MESSAGE_TOO_LARGE, error_message=message)
        elif header.producer_id >= 0:
            refusal = _check_producer(log.producers, header, view[at : at + size], next_offset, origin)
            if refusal is not None:
                return AppendResult(refusal.error, error_message=f"{refusal.message} in {log.name}")
    return None


def _check_producer(
    producers: Producers, header: BatchHeader, batch: Buffer, offset: int, origin: Origin
) -> Refusal | None:
    marker = marker_of(header, batch) if header.is_control and header.record_count else None
    if marker is None:
        return producers.check_epoch(header.producer_id, header.producer_epoch, offset)
    return producers.check_marker(
        header.producer_id, header.producer_epoch, marker[1], offset, raises=origin == "raising marker"
    )


def note_producer(producers: Producers, header: BatchHeader, batch: Callable[[], Buffer]) -> AbortedTransaction | None:
    """Takes in a batch of a producer that is in the log; see `stage_producer`."""
    aborted = stage_producer(producers, header, batch)
    producers.commit()
    return aborted


def stage_producer(producers: Producers, header: BatchHeader, batch: Callable[[], Buffer]) -> AbortedTransaction | None:
    """Stages a batch of a producer; returns what the transaction index must know of it.

    `batch` gives the whole batch, and is asked for markers alone.
    """
    if not header.is_control:
        producers.stage(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
        )
        return None
    if not header.record_count:
        return None  # the cleaner dropped the marker with its transaction
    marker = marker_of(header, batch())
    if marker is None:
        return None
    kind, coordinator_epoch, timestamp = marker
    return producers.stage_marker(
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        header.base_offset,
        timestamp,
        abort=kind == ABORT,
    )


def marker_kind(header: BatchHeader, batch: Buffer) -> int | None:
    """`ABORT` or `COMMIT` where a control batch ends a transaction, None for others."""
    marker = marker_of(header, batch) if header.record_count else None
    return None if marker is None else marker[0]
