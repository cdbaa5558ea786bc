"""The appends to the metadata log: decided records applied and encoded, and the batches that entries become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.broker.quorum.uncommitted import Change
from headrace.metadata import bootstrap, levels
from headrace.metadata.batches import control_batch, data_batches
from headrace.metadata.delta import ImageDelta
from headrace.metadata.framing import encode_record, record_version
from headrace.metadata.image import ClusterImage
from headrace.metadata.new_partitions import NewPartitions
from headrace.raft.control import encode_control
from headrace.raft.messages import Entries
from headrace.wire.messages.metadata_records import AbortTransactionRecord


@dataclass(frozen=True, slots=True)
class Values:
    """What a leader proposes: encoded metadata records, and the time that their batches bear."""

    values: Sequence[bytes]
    timestamp_ms: int


def prepare(
    image: ClusterImage, records: Sequence[Any], base_offset: int, epoch: int, now_ms: int
) -> tuple[Change, Values]:
    """Applies records and encodes them: what cannot be applied must not reach the log. Raises
    InconsistentMetadataError."""
    delta = ImageDelta(image)
    delta.apply_all(records)
    level = image.features.metadata_version or delta.metadata_version
    values: list[bytes] = []
    for record in records:
        if isinstance(record, NewPartitions):
            values += record.values
        else:
            values.append(encode_record(record, record_version(record, level)))
    after = delta.image(offset=base_offset + len(values) - 1, epoch=epoch, timestamp_ms=now_ms)
    return Change(image, after, delta), Values(values, now_ms)


def opening_records(
    image: ClusterImage, stored: Sequence[Any] | None, in_transaction: bool, min_insync_replicas: int
) -> Sequence[Any]:
    """What an active controller writes first: the end of what its predecessor began, and a fresh cluster's levels,
    which formatting has `stored`."""
    records: list[Any] = []
    if in_transaction:
        records.append(AbortTransactionRecord(reason="Controller failover"))
    if image.is_empty:
        if stored is None:
            stored = bootstrap.bootstrap_records(bootstrap.default_levels(levels.LATEST_METADATA_VERSION))
        records += bootstrap.activation_records(stored, min_insync_replicas)
    return records


def batches_of(entries: Entries, now_ms: int) -> Sequence[bytes]:
    """The batches of entries: another leader's are one already (bytes); the others are this node's `Values`, or
    control records."""
    payload = entries.payload
    if isinstance(payload, bytes):
        return [payload]
    if isinstance(payload, Values):
        return data_batches(
            payload.values,
            base_offset=entries.base_offset,
            leader_epoch=entries.epoch,
            timestamp_ms=payload.timestamp_ms,
        )
    records = [encode_control(record) for record in payload]
    return [control_batch(records, base_offset=entries.base_offset, leader_epoch=entries.epoch, timestamp_ms=now_ms)]
