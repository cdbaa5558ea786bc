"""Client batches: the checks of their producers, and their staging.

`validate` has the checks of the batch itself. `LogWriter` stages plain batches without this module's `stage`.
"""

from __future__ import annotations

from struct import Struct

from headrace.config.topic import TopicConfig
from headrace.log.append_results import AppendResult, Parts, Staged
from headrace.log.guards import Guard
from headrace.log.producers import Producers, Refusal
from headrace.log.validate import Accepted, Invalid
from headrace.wire.batch import TRANSACTIONAL_BIT, BatchHeader, read_header, set_log_append_time
from headrace.wire.errors import ErrorCode

_pack_prefix = Struct(">qii").pack
_PREFIX_BYTES = 16


def refusal(invalid: Invalid, log_start_offset: int) -> AppendResult:
    """Returns the answer to a batch that failed its checks."""
    start_offset = log_start_offset if invalid.examined else -1
    return AppendResult(invalid.error, -1, -1, -1, start_offset, invalid.message, invalid.record_errors)


def stage(
    checked: Accepted,
    config: TopicConfig,
    producers: Producers,
    offset: int,
    log_start_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> tuple[BatchHeader, Staged, Parts] | Refusal:
    """Returns a batch that passed its checks as it is to be written at `offset`, with its header as it was received;
    or why its producer may not append it. Changes nothing."""
    data, max_timestamp, append_time = checked.data, checked.max_timestamp, -1
    if config.log_append_time:
        append_time = max_timestamp = now_ms
        data = bytearray(data)
        set_log_append_time(data, 0, now_ms)
    header = read_header(data)
    producer_id = header.producer_id
    delta = header.last_offset_delta
    if producer_id >= 0:
        transactional = header.attributes & TRANSACTIONAL_BIT != 0
        guard = checked.guard if transactional else None
        epoch, sequence = header.producer_epoch, header.base_sequence
        refused = check_producer(producers, offset, producer_id, epoch, sequence, delta, transactional, guard)
        if refused is not None:
            return refused
    last_offset = offset + delta
    result = AppendResult(ErrorCode.NONE, offset, last_offset, append_time, log_start_offset)
    staged = (offset, last_offset, len(data), max_timestamp, leader_epoch, result, None)
    prefix = _pack_prefix(offset, header.batch_length, leader_epoch)
    return header, staged, (prefix, memoryview(data)[_PREFIX_BYTES:])


def check_producer(
    producers: Producers,
    offset: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    delta: int,
    transactional: bool,
    guard: Guard | None = None,
) -> Refusal | None:
    """Returns why a batch may not follow its producer's last one, None if it may.

    `delta`: last offset less base offset. `guard`: the claim of the batch, if transactions are verified (KIP-890).
    """
    refused = producers.check(producer_id, epoch, sequence, (sequence + delta) & 0x7FFFFFFF, offset)
    if guard is not None and (refused is None or refused.duplicate is None):
        refused = producers.check_guard(producer_id, epoch, sequence, offset, guard) or refused
    return producers.check_transaction(producer_id, transactional, offset) if refused is None else refused


def refused_producer(refused: Refusal, name: str, log_start_offset: int, *, stamps: bool) -> AppendResult:
    """Returns the answer to a batch that its producer may not append to the log `name`: an error, or the offsets of the
    batch that it repeats, with its time if the topic `stamps` records itself."""
    first = refused.duplicate
    if first is None:
        return AppendResult(
            refused.error, log_start_offset=log_start_offset, error_message=f"{refused.message} in {name}"
        )
    append_time = first.timestamp if stamps else -1
    return AppendResult(
        ErrorCode.NONE, first.first_offset, first.last_offset, append_time, log_start_offset, duplicate=True
    )
