"""What compaction keeps of transactions: their data, their markers, and the index of those that were aborted."""

from __future__ import annotations

import struct

import pytest

from headrace.log.compaction import OffsetMap, Rules, Transactions, clean_batch
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.batch import read_header
from headrace.wire.records import Record, build_batch, decode_batch

NOW_MS = 1_700_000_000_000
DELETE_RETENTION_MS = 1000
MARKERS = {"abort": 0, "commit": 1}


def data(offset: int, producer: int, *keys: bytes) -> bytes:
    records = [Record(0, NOW_MS, key, b"v") for key in keys]
    return build_batch(
        records, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=offset, transactional=True
    )


def marker(offset: int, producer: int, kind: str) -> bytes:
    record = Record(0, NOW_MS, struct.pack(">hh", 0, MARKERS[kind]), struct.pack(">hi", 0, 0))
    return build_batch(
        [record], base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True, control=True
    )


def rules(now_ms: int = NOW_MS, latest: dict[bytes, int] | None = None, end: int = 100) -> Rules:
    offsets = OffsetMap(1 << 16)
    for key, offset in (latest or {}).items():
        assert offsets.add([Record(offset, NOW_MS, key, b"v")], 0)
    offsets.end_offset = end
    return Rules(offsets, now_ms, DELETE_RETENTION_MS, end)


def cleaned(batches: list[bytes], decided: Rules, transactions: Transactions) -> list[bytes]:
    kept = (clean_batch(read_header(batch), batch, decided, transactions) for batch in batches)
    return [bytes(batch) for batch in kept if batch is not None]


def offsets(batches: list[bytes]) -> list[int]:
    return [record.offset for batch in batches for record in decode_batch(batch)]


def aborted(*entries: tuple[int, int, int]) -> Transactions:
    transactions = Transactions()
    transactions.add_aborted(AbortedTransaction(producer, first, last, last + 1) for producer, first, last in entries)
    return transactions


def test_the_data_of_an_aborted_transaction_goes_and_its_marker_stays_while_data_was_seen() -> None:
    transactions = aborted((1, 0, 2))
    kept = cleaned([data(0, 1, b"a", b"b"), marker(2, 1, "abort"), data(3, 2, b"a")], rules(), transactions)
    assert offsets(kept) == [2, 3]
    assert [(entry.producer_id, entry.first_offset) for entry in transactions.kept] == [(1, 0)]


def test_the_marker_goes_in_the_round_after_once_its_horizon_has_passed() -> None:
    transactions = aborted((1, 0, 2))
    (dying,) = cleaned([marker(2, 1, "abort")], rules(), transactions)
    assert read_header(dying).has_delete_horizon
    assert transactions.kept == []
    for now_ms, stays in ((NOW_MS + DELETE_RETENTION_MS - 1, True), (NOW_MS + DELETE_RETENTION_MS, False)):
        assert bool(cleaned([dying], rules(now_ms), aborted((1, 0, 2)))) is stays


@pytest.mark.parametrize("with_data", [True, False])
def test_a_commit_marker_stays_as_long_as_data_of_its_transaction_does(with_data: bool) -> None:
    batches = [data(0, 1, b"a")] if with_data else []
    kept = cleaned([*batches, marker(1, 1, "commit")], rules(), Transactions())
    assert read_header(kept[-1]).has_delete_horizon is not with_data
    last = cleaned([kept[-1]], rules(NOW_MS + DELETE_RETENTION_MS), Transactions())
    assert bool(last) is with_data


def test_two_transactions_of_one_producer_are_told_apart() -> None:
    """Aborted, then committed: the second one's data and marker stay."""
    transactions = aborted((1, 0, 1))
    batches = [data(0, 1, b"a"), marker(1, 1, "abort"), data(2, 1, b"b"), marker(3, 1, "commit")]
    assert offsets(cleaned(batches, rules(), transactions)) == [1, 2, 3]


def test_a_record_of_a_committed_transaction_gives_way_to_a_later_one() -> None:
    kept = cleaned([data(0, 1, b"a", b"b")], rules(latest={b"a": 5, b"b": 1}), Transactions())
    assert offsets(kept) == [1]


def test_plain_batches_between_belong_to_no_transaction() -> None:
    plain = build_batch([Record(0, NOW_MS, b"a", b"v")], base_offset=1)
    kept = cleaned([data(0, 1, b"a"), plain, marker(2, 1, "abort")], rules(), aborted((1, 0, 2)))
    assert offsets(kept) == [1, 2]


def test_an_unknown_control_record_stays() -> None:
    record = Record(0, NOW_MS, struct.pack(">hh", 0, 5), b"")
    batch = build_batch([record], base_offset=4, control=True)
    assert cleaned([batch], rules(), Transactions()) == [batch]
