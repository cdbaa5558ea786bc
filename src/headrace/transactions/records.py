"""The records of transactional ids in the format of `__transaction_state`: a key with its type, a value with its
version.

See docs/formats/transaction-records.md.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from headrace.machine.batches import Pair
from headrace.transactions.asks import TopicPartition
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import Removed, Transaction, TransactionRecord
from headrace.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from headrace.wire.primitives import DecodeError

_KEY: Final = 0
_KEYS_MAX: Final = 1_000
"""The number of cached keys: a transaction has three records."""
_INT16: Final = Struct(">h")
_VALUE_VERSION_MAX: Final = TransactionLogValue.MAX_VERSION
_NUMBERS: Final = Struct(">hqhib")
"""The first fields of a value: version, producer id and epoch, timeout, state."""
_TIMES: Final = Struct(">qq")
_MARK: Final = 0x1122334455667788
_AROUND_MAX: Final = 1_000
"""The number of cached value parts: two records of a transaction share them, and so does its producer's next one."""
_FEW: Final = 16
"""The most partitions of a transaction whose value parts are cached."""
_STATES: Final = {state.value: state for state in TransactionState}


def encode(record: TransactionRecord, value_version: int) -> Pair:
    """Encodes key and value; `value_version` 0 omits what transaction.version 0 does not know. Raises EncodeError."""
    key = _key(record.transactional_id)
    if isinstance(record, Removed):
        return key, None
    partitions = None if record.state is TransactionState.EMPTY else record.partitions
    around = _remembered if len(record.partitions) <= _FEW else _around_times
    before, after = around(
        value_version, partitions, record.previous_producer_id, record.next_producer_id, record.version
    )
    numbers = _NUMBERS.pack(value_version, record.producer_id, record.producer_epoch, record.timeout_ms, record.state)
    return key, numbers + before + _TIMES.pack(record.updated_ms, record.start_ms) + after


@lru_cache(maxsize=_KEYS_MAX)
def _key(transactional_id: str) -> bytes:
    return _INT16.pack(_KEY) + TransactionLogKey(transactional_id).encode(0)


def _around_times(
    value_version: int, partitions: frozenset[TopicPartition] | None, previous: int, following: int, version: int
) -> tuple[bytes, bytes]:
    """Returns the parts of a value between its numbers and its two times, and after them: those of variable size, which
    are the same bytes for a producer that keeps writing to the same partitions."""
    value = TransactionLogValue(
        transaction_partitions=None if partitions is None else _by_topic(partitions),
        transaction_last_update_timestamp_ms=_MARK,
        transaction_start_timestamp_ms=_MARK,
    )
    if value_version >= 1:
        value.previous_producer_id = previous
        value.next_producer_id = following
        value.client_transaction_version = version
    encoded = value.encode(value_version)
    at = encoded.rindex(_TIMES.pack(_MARK, _MARK))
    return encoded[_NUMBERS.size - _INT16.size : at], encoded[at + _TIMES.size :]


_remembered: Final = lru_cache(maxsize=_AROUND_MAX)(_around_times)


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic, indexes) for topic, indexes in topics.items()]


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decodes a record; None for an unknown key type, which Apache Kafka's coordinator skips too.

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
    stored = TransactionLogValue.decode(value, version, _INT16.size)
    state = _STATES.get(stored.transaction_status)
    if state is None or state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        raise DecodeError(f"a transaction's record has state {stored.transaction_status}")
    return Transaction(
        transactional_id,
        stored.producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        state,
        frozenset((each.topic, index) for each in stored.transaction_partitions or () for index in each.partition_ids),
        stored.transaction_start_timestamp_ms,
        stored.transaction_last_update_timestamp_ms,
        stored.previous_producer_id,
        stored.next_producer_id,
        version=stored.client_transaction_version,
    )
