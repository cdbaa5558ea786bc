"""Encodes decided records as batches, as Kafka's coordinators write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.wire.batch import BATCH_OVERHEAD
from headrace.wire.records import Compression, Record, build_batch, build_plain_batch

Producer = tuple[int, int] | None
"""(producer id, epoch) of the transaction in which records are written."""

Pair = tuple[bytes, bytes | None]
"""A record's key and value; None makes it a tombstone."""

BATCH_BYTES_MAX: Final = 512 * 1024
"""The size limit of a batch of several records; further records of a decision go into further batches."""

_FEW: Final = 100
"""The number of records that go into one batch before sizes are checked: nearly always they fit."""

_RECORD_OVERHEAD_MAX: Final = 23
"""The largest overhead of a record beside key and value: its length, attributes, two deltas, two lengths, header
count."""


def build_coordinator_batches(
    pairs: Sequence[Pair],
    timestamp_ms: int,
    max_bytes: int = BATCH_BYTES_MAX,
    codec: int = Compression.NONE,
    producer: Producer = None,
) -> list[tuple[int, bytes]]:
    """Returns (record count, batch) of each batch for these records: usually one.

    A batch has no more than `max_bytes`, unless a single record is larger: then it has a batch of its own.
    """
    if len(pairs) <= _FEW:
        batch = build_coordinator_batch(pairs, timestamp_ms, codec, producer)
        if len(batch) <= max_bytes or len(pairs) == 1:
            return [(len(pairs), batch)]
    batches = []
    first = 0
    size = BATCH_OVERHEAD
    for at, (key, value) in enumerate(pairs):
        record_size = len(key) + len(value or b"") + _RECORD_OVERHEAD_MAX
        if size + record_size > max_bytes and at > first:
            batches.append((at - first, build_coordinator_batch(pairs[first:at], timestamp_ms, codec, producer)))
            first = at
            size = BATCH_OVERHEAD
        size += record_size
    batches.append((len(pairs) - first, build_coordinator_batch(pairs[first:], timestamp_ms, codec, producer)))
    return batches


def build_coordinator_batch(
    pairs: Sequence[Pair], timestamp_ms: int, codec: int = Compression.NONE, producer: Producer = None
) -> bytes:
    """Encodes one batch. Coordinators have no sequences: in a transaction the sequence is 0."""
    records = [Record(0, timestamp_ms, key, value) for key, value in pairs]
    if producer is None:
        return build_batch(records, compression=codec) if codec else build_plain_batch(records)
    producer_id, epoch = producer
    return build_batch(
        records,
        compression=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
