"""Staging a client's batch that is not plain: the full checks, and the rewriting that its topic asks for.

`Log` stages the others itself, in one go.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from headrace.log.results import AppendResult
from headrace.log.validate import Accepted, Invalid, Opening, check_client_batch
from headrace.wire.batch import TRANSACTIONAL_BIT, read_header, set_log_append_time
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.log.appender import Appender
    from headrace.log.guards import Guard

_pack_prefix = Struct(">qii").pack
_PREFIX_BYTES = 16


def stage(log: Appender, data: memoryview, leader_epoch: int, now_ms: int) -> AppendResult:
    """Checks a batch, however long that takes, and stages it. Raises OSError where a segment must be rolled and
    cannot."""
    opening = Opening(log.config.max_decompressed_bytes, aside=True)
    checked = check_client_batch(data, log.config, log.name, now_ms, opening)
    assert checked is not None, "a batch opened aside gets a decision"
    return refusal(log, checked) if isinstance(checked, Invalid) else stage_checked(log, checked, leader_epoch, now_ms)


def refusal(log: Appender, invalid: Invalid) -> AppendResult:
    """The answer to a batch that failed its checks."""
    start_offset = log.log_start_offset if invalid.examined else -1
    return AppendResult(invalid.error, -1, -1, -1, start_offset, invalid.message, invalid.record_errors)


def stage_checked(log: Appender, checked: Accepted, leader_epoch: int, now_ms: int) -> AppendResult:
    """Stages a batch that passed its checks. Raises OSError as `stage` does."""
    data, max_timestamp, append_time = checked.data, checked.max_timestamp, -1
    if log.config.log_append_time:
        append_time = max_timestamp = now_ms
        data = bytearray(data)
        set_log_append_time(data, 0, now_ms)
    header = read_header(data)
    transactional = header.attributes & TRANSACTIONAL_BIT != 0
    delta = header.last_offset_delta
    producer_id, producer_epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
    if producer_id >= 0:
        guard = checked.guard if transactional else None
        refused = check_producer(log, producer_id, producer_epoch, sequence, delta, transactional, guard)
        if refused is not None:
            return refused
    offset = log.staged_offset
    last_offset = offset + delta
    log.roll_before(last_offset, len(data), max_timestamp, now_ms)
    if producer_id >= 0:
        log.producers.stage(producer_id, producer_epoch, sequence, offset, last_offset, max_timestamp, transactional)
    result = AppendResult(ErrorCode.NONE, offset, last_offset, append_time, log.log_start_offset)
    log.stage(
        (_pack_prefix(offset, header.batch_length, leader_epoch), memoryview(data)[_PREFIX_BYTES:]),
        (offset, last_offset, len(data), max_timestamp, leader_epoch, result, None),
    )
    return result


def check_producer(
    log: Appender,
    producer_id: int,
    epoch: int,
    sequence: int,
    delta: int,
    transactional: bool,
    guard: Guard | None = None,
) -> AppendResult | None:
    """The answer to a batch that may not follow its producer's last one, None where it may. `guard` is what it has
    claimed, where transactions are verified."""
    offset = log.staged_offset
    producers = log.producers
    refusal = producers.check(producer_id, epoch, sequence, (sequence + delta) & 0x7FFFFFFF, offset)
    if guard is not None and (refusal is None or refusal.duplicate is None):
        refusal = producers.check_guard(producer_id, epoch, sequence, offset, guard) or refusal
    if refusal is None:
        refusal = producers.check_transaction(producer_id, transactional, offset)
    if refusal is None:
        return None
    if refusal.duplicate is not None:
        first = refusal.duplicate
        append_time = first.timestamp if log.config.log_append_time else -1
        return AppendResult(
            ErrorCode.NONE, first.first_offset, first.last_offset, append_time, log.log_start_offset, duplicate=True
        )
    return AppendResult(
        refusal.error, log_start_offset=log.log_start_offset, error_message=f"{refusal.message} in {log.name}"
    )
