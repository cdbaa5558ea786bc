"""The batch that ends a transaction on a partition: one control record. Source: KIP-98.

Its key is a version (int16, 0) and a type (int16: 0 abort, 1 commit), its value a version (int16, 0) and the epoch of
the coordinator that wrote it (int32). Producer id and epoch are in the header of the batch.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from headrace.wire.batch import BATCH_OVERHEAD, CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, seal_batch, unsealed
from headrace.wire.primitives import Buffer
from headrace.wire.records import Record, decode_batch

ABORT: Final = 0
COMMIT: Final = 1

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_RECORD: Final = Struct(">5shhBhiB")
"""The whole record as brokers write it: what leads to the key, key, length of the value, value, count of headers."""
_BEFORE_KEY: Final = bytes((2 * (_RECORD.size - 1), 0, 0, 0, 2 * _KEY.size))
"""Length, attributes, no delta of time or offset, length of the key; lengths are zigzag."""
_VALUE_LENGTH: Final = 2 * _VALUE.size
_ATTRIBUTES: Final = TRANSACTIONAL_BIT | CONTROL_BIT
_SIZE: Final = BATCH_OVERHEAD + _RECORD.size


class EndMarker(NamedTuple):
    """How a producer's transaction ends."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


def build_marker(marker: EndMarker, timestamp_ms: int) -> bytes:
    """The batch that says so."""
    producer_id, producer_epoch, coordinator_epoch, committed = marker
    kind = COMMIT if committed else ABORT
    batch = seal_batch(
        unsealed(_RECORD.pack(_BEFORE_KEY, 0, kind, _VALUE_LENGTH, 0, coordinator_epoch, 0)),
        record_count=1,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        attributes=_ATTRIBUTES,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return bytes(batch)


def marker_of(header: BatchHeader, batch: Buffer) -> tuple[int, int, int] | None:
    """(type, coordinator epoch, timestamp) of a control batch that ends a transaction, None for another one.

    `batch` is all of it. Raises `CorruptBatch`.
    """
    if header.size == _SIZE and header.attributes == _ATTRIBUTES:
        before, _, kind, value_length, _, epoch, headers = _RECORD.unpack_from(batch, BATCH_OVERHEAD)
        if before == _BEFORE_KEY and value_length == _VALUE_LENGTH and not headers and kind in (ABORT, COMMIT):
            return kind, epoch, header.base_timestamp
    record = decode_batch(batch)[0]
    read = read_marker(record)
    return None if read is None else (*read, record.timestamp)


def read_marker(record: Record) -> tuple[int, int] | None:
    """(type, coordinator epoch) of a control record that ends a transaction, None for another one."""
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(key)[1]
    return (kind, _VALUE.unpack_from(value)[1]) if kind in (ABORT, COMMIT) else None
