"""The coordinator's records: there and back, as an older level writes them, and bytes that nobody wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.transactions.records import decode, encode
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import Removed, Transaction
from headrace.wire.messages.transaction_records import PartitionsSchema, TransactionLogValue
from headrace.wire.primitives import DecodeError

TEXT = st.text(st.characters(codec="utf-8"), max_size=80)
WRITTEN = [state for state in TransactionState if state.value < TransactionState.DEAD]
TRANSACTIONS = st.builds(
    Transaction,
    TEXT,
    st.integers(0, 2**63 - 1),
    st.integers(0, 32767),
    st.integers(1, 2**31 - 1),
    st.sampled_from(WRITTEN),
    st.frozensets(st.tuples(TEXT, st.integers(0, 2**31 - 1)), max_size=20),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.just(-1),
    st.integers(0, 2),
).map(lambda each: each._replace(partitions=frozenset()) if each.state is TransactionState.EMPTY else each)


@given(TRANSACTIONS)
def test_there_and_back(record: Transaction) -> None:
    assert decode(*encode(record, 1)) == record


@given(TRANSACTIONS)
def test_the_older_version_leaves_out_what_it_cannot_say(record: Transaction) -> None:
    told = decode(*encode(record, 0))
    assert told == record._replace(previous_producer_id=-1, next_producer_id=-1, version=0)


@given(TRANSACTIONS, st.integers(0, 1))
def test_the_short_way_is_the_formats(record: Transaction, version: int) -> None:
    """What is remembered of a value, and packed around it, is what the generated codec says."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(record.partitions):
        topics.setdefault(topic, []).append(index)
    partitions = [PartitionsSchema(topic, indexes) for topic, indexes in topics.items()]
    value = TransactionLogValue(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state.value,
        transaction_partitions=None if record.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=record.updated_ms,
        transaction_start_timestamp_ms=record.start_ms,
    )
    if version:
        value.previous_producer_id = record.previous_producer_id
        value.next_producer_id = record.next_producer_id
        value.client_transaction_version = record.version
    expected = version.to_bytes(2, "big") + value.encode(version)
    assert encode(record, version)[1] == expected
    assert encode(record, version)[1] == expected, "and when it is remembered"


def test_bytes_of_a_known_record() -> None:
    record = Transaction("id", 7, 3, 60_000, TransactionState.PREPARE_COMMIT, frozenset({("t", 1)}), 5, 6, 7, -1, -1, 2)
    key, value = encode(record, 1)
    assert key == bytes.fromhex("0000 0002 6964")
    assert value == bytes.fromhex(
        "0001 0000000000000007 0003 0000ea60 02 02 0274 02 00000001 00 0000000000000006 0000000000000005"
        "02 00 08 0000000000000007 02 02 0002"
    )


def test_a_tombstone() -> None:
    assert decode(*encode(Removed("id"), 1)) == Removed("id")


def test_a_key_of_another_type_is_passed_over() -> None:
    assert decode(b"\x00\x01anything", b"at all") is None


KEY, VALUE = encode(Transaction("id", 7, 3, 60_000, TransactionState.ONGOING, frozenset({("t", 1)})), 1)
assert VALUE is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", VALUE),
        (b"\x00", VALUE),
        (b"\x00\x00\x00\x09id", VALUE),
        (KEY, b""),
        (KEY, b"\x00\x02" + VALUE[2:]),
        (KEY, b"\xff\xff" + VALUE[2:]),
        (KEY, VALUE[:-3]),
        (KEY, VALUE[:16] + b"\x06" + VALUE[17:]),
        (KEY, VALUE[:16] + b"\x07" + VALUE[17:]),
        (KEY, VALUE[:16] + b"\x7f" + VALUE[17:]),
    ],
)
def test_bytes_that_nobody_wrote(key: bytes, value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(key, value)
