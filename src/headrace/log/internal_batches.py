"""Batches that do not come from clients: those of coordinators, of the controller, and of a leader (for its follower).

Their records are not checked, their frames are. The batches that a follower appends already have offsets and epochs.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from headrace.config.topic import TopicConfig
from headrace.log.append_results import AppendResult, Parts, Staged
from headrace.log.producer_batches import stage_producer
from headrace.log.producers import Origin, Producers, Refusal
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
from headrace.wire.markers import marker_of
from headrace.wire.primitives import Buffer
from headrace.wire.records import CorruptBatch

_pack_prefix = Struct(">qii").pack
_PREFIX_BYTES = 16
_FROM_COORDINATORS: Final[tuple[Origin, ...]] = ("coordinator", "marker", "raising marker")

Placed = list[tuple[int, BatchHeader]]
"""The batches of an append, each with its position in the bytes."""


def read_batches(
    view: memoryview,
    origin: Origin,
    offset: int,
    producers: Producers,
    config: TopicConfig,
    topic_partition: tuple[str, int],
) -> Placed | AppendResult:
    """Returns the batches in `view` that are to be appended at `offset`, or why none may be. Changes nothing."""
    batches: Placed = []
    if origin != "replica" and len(view) >= BATCH_OVERHEAD:
        header = read_header(view)
        if header.batch_length == len(view) - LENGTH_OVERHEAD and header.magic == MAGIC:
            batches = [(0, header)]  # as most of this broker's own are
    if not batches:
        try:
            batches = list(iter_headers(view))
        except CorruptBatch as error:
            return AppendResult(ErrorCode.CORRUPT_MESSAGE, error_message=f"{error} in {_name(topic_partition)}")
    if not batches:
        message = f"There is no batch to append to {_name(topic_partition)}"
        return AppendResult(ErrorCode.INVALID_RECORD, error_message=message)
    if origin in _FROM_COORDINATORS and len(view) > config.segment_bytes:
        size, most = len(view), config.segment_bytes
        message = f"An append of {size} bytes exceeds a segment of {most} in {_name(topic_partition)}."
        return AppendResult(ErrorCode.RECORD_LIST_TOO_LARGE, error_message=message)
    next_offset = offset
    for at, header in batches:
        if not check_crc(view, at, header):
            name = _name(topic_partition)
            message = f"Record is corrupt (stored crc = {header.crc}) in topic partition {name}."
            return AppendResult(ErrorCode.CORRUPT_MESSAGE, error_message=message)
        if header.last_offset_delta < 0:
            message = f"Batch has an invalid offset range in topic partition {_name(topic_partition)}"
            return AppendResult(ErrorCode.INVALID_RECORD, error_message=message)
        if origin == "replica":
            if header.base_offset < next_offset:
                message = f"Offset {header.base_offset} is below the end {next_offset} of {_name(topic_partition)}"
                return AppendResult(ErrorCode.OFFSET_OUT_OF_RANGE, error_message=message)
            next_offset = header.next_offset
        elif (size := header.size) > config.max_message_bytes:
            message = f"A batch of {size} bytes exceeds {config.max_message_bytes} in {_name(topic_partition)}."
            return AppendResult(ErrorCode.MESSAGE_TOO_LARGE, error_message=message)
        elif header.producer_id >= 0:
            refusal = _check_producer(producers, header, view[at : at + size], next_offset, origin)
            if refusal is not None:
                message = f"{refusal.message} in {_name(topic_partition)}"
                return AppendResult(refusal.error, error_message=message)
    return batches


def _name(topic_partition: tuple[str, int]) -> str:
    return f"{topic_partition[0]}-{topic_partition[1]}"


def _check_producer(
    producers: Producers, header: BatchHeader, batch: Buffer, offset: int, origin: Origin
) -> Refusal | None:
    marker = marker_of(header, batch) if header.is_control and header.record_count else None
    if marker is None:
        return producers.check_epoch(header.producer_id, header.producer_epoch, offset)
    return producers.check_marker(
        header.producer_id, header.producer_epoch, marker[1], offset, raises=origin == "raising marker"
    )


def stage(
    batch: memoryview, header: BatchHeader, offset: int, leader_epoch: int, producers: Producers, result: AppendResult
) -> tuple[Staged, Parts]:
    """Returns one batch as it is to be written at `offset`, and stages its producer. `result` is the answer to its
    append, which may be of several batches."""
    last_offset = offset + header.last_offset_delta
    aborted = None
    if header.producer_id >= 0:
        aborted = stage_producer(producers, BatchHeader(offset, *header[1:]), lambda: batch)
    prefix = _pack_prefix(offset, header.batch_length, leader_epoch)
    staged = (offset, last_offset, len(batch), header.max_timestamp, leader_epoch, result, aborted)
    return staged, (prefix, batch[_PREFIX_BYTES:])
