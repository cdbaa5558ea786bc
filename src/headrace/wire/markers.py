"""The batch that ends a transaction on a partition: one control record. Source: KIP-98.

Its key is a version (int16, 0) and a type (int16: 0 abort, 1 commit), its value a version (int16, 0) and the epoch of
the coordinator that wrote it (int32). Producer id and epoch stand in the header of the batch.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from headrace.wire.records import Record, build_batch

ABORT: Final = 0
COMMIT: Final = 1

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class EndMarker(NamedTuple):
    """How a producer's transaction ends."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


def build_marker(marker: EndMarker, timestamp_ms: int) -> bytes:
    """The batch that says so."""
    kind = COMMIT if marker.committed else ABORT
    record = Record(0, timestamp_ms, _KEY.pack(0, kind), _VALUE.pack(0, marker.coordinator_epoch))
    return build_batch(
        [record],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(record: Record) -> tuple[int, int] | None:
    """(type, coordinator epoch) of a control record that ends a transaction, None for another one."""
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(key)[1]
    return (kind, _VALUE.unpack_from(value)[1]) if kind in (ABORT, COMMIT) else None
