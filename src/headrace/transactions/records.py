"""The records of transactional ids, in the format of `__transaction_state`: a key behind its type, a value behind its
version. See docs/formats/transaction-records.md.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from headrace.machine.batches import Pair
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import Removed, Transaction, TransactionRecord
from headrace.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from headrace.wire.primitives import DecodeError

_KEY: Final = 0
_KEYS_MAX: Final = 1_000
"""Keys that are remembered: a transaction has three records."""
_INT16: Final = Struct(">h")
_VALUE_VERSION_MAX: Final = TransactionLogValue.MAX_VERSION
_STATES: Final = {state.value: state for state in TransactionState}


def encode(record: TransactionRecord, value_version: int) -> Pair:
    """Key and value; `value_version` 0 leaves out what transaction.version 0 does not know. Raises EncodeError."""
    key = _key(record.transactional_id)
    if isinstance(record, Removed):
        return key, None
    value = TransactionLogValue(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state.value,
        transaction_partitions=_partitions(record),
        transaction_last_update_timestamp_ms=record.updated_ms,
        transaction_start_timestamp_ms=record.start_ms,
    )
    if value_version >= 1:
        value.previous_producer_id = record.previous_producer_id
        value.next_producer_id = record.next_producer_id
        value.client_transaction_version = record.version
    encoded = bytearray(_INT16.pack(value_version))
    value.encode_onto(encoded, value_version)
    return key, bytes(encoded)


@lru_cache(maxsize=_KEYS_MAX)
def _key(transactional_id: str) -> bytes:
    return _INT16.pack(_KEY) + TransactionLogKey(transactional_id).encode(0)


def _partitions(record: Transaction) -> list[PartitionsSchema] | None:
    if record.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(record.partitions):
        topics.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic, indexes) for topic, indexes in topics.items()]


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """What a record says; None for a key of a type that is not known, which Apache Kafka's coordinator passes over too.

    Raises DecodeError.
    """
    if len(key) < _INT16.size:
        raise DecodeError("the key of a transaction's record ends within its type")
    if _INT16.unpack_from(key)[0] != _KEY:
        return None
    transactional_id = TransactionLogKey.decode(key, 0, _INT16.size).transactional_id
    if value is None:
        return Removed(transactional_id)
    if len(value) < _INT16.size:
        raise DecodeError("a transaction's record ends within its version")
    version = _INT16.unpack_from(value)[0]
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise DecodeError(f"a transaction's record has version {version}")
    told = TransactionLogValue.decode(value, version, _INT16.size)
    state = _STATES.get(told.transaction_status)
    if state is None or state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        raise DecodeError(f"a transaction's record has state {told.transaction_status}")
    return Transaction(
        transactional_id,
        told.producer_id,
        told.producer_epoch,
        told.transaction_timeout_ms,
        state,
        frozenset((each.topic, index) for each in told.transaction_partitions or () for index in each.partition_ids),
        told.transaction_start_timestamp_ms,
        told.transaction_last_update_timestamp_ms,
        told.previous_producer_id,
        told.next_producer_id,
        version=told.client_transaction_version,
    )
