"""The record batches of the metadata log and of its snapshots: uncompressed, one timestamp, no producer.

Source: the message format v2 (KIP-98) and KIP-595.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.wire.records import Record, build_batch

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""A leader splits what it appends at once into batches of at most this size (KafkaRaftClient.MAX_BATCH_SIZE_BYTES)."""

_RECORD_OVERHEAD: Final = 20


def control_batch(
    entries: Sequence[tuple[bytes, bytes]], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """One control batch of records given as (key, value)."""
    records = [Record(0, timestamp_ms, key, value) for key, value in entries]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def data_batches(
    values: Sequence[bytes], *, base_offset: int, leader_epoch: int, timestamp_ms: int, max_bytes: int = MAX_BATCH_BYTES
) -> list[bytes]:
    """Values without keys as consecutive batches of at most `max_bytes` each (one record may exceed it alone)."""
    batches: list[bytes] = []
    pending: list[Record] = []
    room = max_bytes
    for value in values:
        need = len(value) + _RECORD_OVERHEAD
        if pending and need > room:
            batches.append(build_batch(pending, base_offset=base_offset, leader_epoch=leader_epoch))
            base_offset += len(pending)
            pending, room = [], max_bytes
        pending.append(Record(0, timestamp_ms, None, value))
        room -= need
    if pending:
        batches.append(build_batch(pending, base_offset=base_offset, leader_epoch=leader_epoch))
    return batches
