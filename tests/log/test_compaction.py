"""What compaction keeps of a batch, and of transactions: data, markers, and the index of those that were aborted."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from log.cleaning import offset_map, scratch

from headrace.log.compaction import SLOT_BYTES, OffsetMap, Rules, Transactions, clean_batch, open_body
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.batch import check_crc, read_header
from headrace.wire.records import Compression, CorruptBatch, Record, build_batch, decode_batch

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


def taken(offsets: OffsetMap, batch: bytes, from_offset: int = 0) -> bool:
    header = read_header(batch)
    return offsets.add(header, open_body(header, batch, scratch), from_offset)


def rules(now_ms: int = NOW_MS, latest: dict[bytes, int] | None = None, end: int = 100) -> Rules:
    offsets = offset_map()
    for key, offset in (latest or {}).items():
        assert taken(offsets, build_batch([Record(0, NOW_MS, key, b"v")], base_offset=offset))
    offsets.end_offset = end
    return Rules(offsets, now_ms, DELETE_RETENTION_MS, end, scratch)


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


# --- one batch

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"k" * 7, b"k" * 8, b"k" * 9, b"k" * 300]))
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(NOW_MS - 5, NOW_MS + 100_000),
        key=KEYS,
        value=st.one_of(st.none(), st.binary(max_size=200)),
        headers=st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2),
    ),
    min_size=1,
    max_size=30,
)


def expected(records: list[Record], latest: dict[bytes, int], end: int, tombstones: bool) -> list[Record]:
    return [
        record
        for record in records
        if record.offset >= end
        or (
            record.key is not None
            and record.offset >= latest.get(record.key, -1)
            and (tombstones or record.value is not None)
        )
    ]


@example([Record(0, NOW_MS - 5, None, None)], Compression.GZIP, {}, 21, None, False)
@given(
    RECORDS,
    st.sampled_from(Compression),
    st.dictionaries(KEYS.filter(lambda key: key is not None), st.integers(0, 60)),
    st.integers(0, 60),
    st.sampled_from([None, NOW_MS, NOW_MS + 1]),
    st.booleans(),
)
def test_the_records_that_stay_of_a_batch(
    records: list[Record], codec: int, latest: dict[bytes, int], end: int, horizon: int | None, stamped: bool
) -> None:
    """As decided one record at a time. What stays keeps its offset, timestamp, key, value and headers."""
    append_time = NOW_MS + 7 if stamped else None
    batch = build_batch(records, base_offset=20, compression=codec, log_append_time=append_time)
    if horizon is not None:
        # As an earlier round left it: everything with a horizon, as there was a tombstone.
        first = [Record(0, NOW_MS, b"t", None), *records]
        batch = build_batch(first, base_offset=19, compression=codec, log_append_time=append_time)
        (batch,) = cleaned([batch], rules(horizon - DELETE_RETENTION_MS, end=0), Transactions())
        assert read_header(batch).base_timestamp == horizon and read_header(batch).has_delete_horizon
    before = decode_batch(batch)
    want = expected(before, latest, end, tombstones=horizon is None or horizon > NOW_MS)
    kept = cleaned([batch], rules(latest=latest, end=end), Transactions())
    assert [record for each in kept for record in decode_batch(each)] == want
    if not kept:
        return
    header, was = read_header(kept[0]), read_header(batch)
    assert check_crc(kept[0], 0, header)
    assert (header.base_offset, header.last_offset) == (was.base_offset, was.last_offset)
    if not want:  # the last of the cleaned range stays when it is empty
        assert header.record_count == 0 and header.last_offset + 1 == end
        return
    assert header.compression == codec and header.timestamp_type == was.timestamp_type
    assert header.max_timestamp == (NOW_MS + 7 if stamped else max(record.timestamp for record in want))
    dying = horizon is not None or any(record.value is None for record in want)
    assert header.has_delete_horizon is dying
    if dying and horizon is None:
        assert header.base_timestamp == NOW_MS + DELETE_RETENTION_MS
    if len(want) == len(before) and header.has_delete_horizon is was.has_delete_horizon:
        assert kept[0] == batch


@pytest.mark.parametrize("codec", Compression)
def test_an_announced_count_that_is_not_true_is_corrupt(codec: int) -> None:
    batch = build_batch([Record(0, NOW_MS, b"a", b"1"), Record(0, NOW_MS, b"a", b"2")], compression=codec)
    header = read_header(batch)._replace(record_count=3)
    with pytest.raises(CorruptBatch, match="not the 3"):
        clean_batch(header, batch, rules(), Transactions())
    with pytest.raises(CorruptBatch, match="not the 3"):
        offset_map().add(header, open_body(header, batch, scratch), 0)


@given(RECORDS, st.data())
def test_a_body_that_was_mangled_is_cleaned_or_corrupt(records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records, base_offset=20))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    for step in (
        lambda: taken(offset_map(), bytes(batch)),
        lambda: clean_batch(header, bytes(batch), rules(latest={b"a": 22}, end=1 << 62), Transactions()),
    ):
        try:
            step()
        except CorruptBatch:
            pass


# --- the map of keys


def model(records: list[Record], from_offset: int) -> dict[bytes, int]:
    return {record.key: record.offset for record in records if record.key is not None and record.offset >= from_offset}


def known(offsets: OffsetMap, key: bytes, highest: int) -> int:
    """The last offset of a key, as cleaning sees it: the first that would stay."""
    offsets.end_offset = highest + 2
    for offset in range(highest + 2):
        one = build_batch([Record(0, NOW_MS, key, b"v")], base_offset=offset)
        decided = Rules(offsets, NOW_MS, DELETE_RETENTION_MS, -1, scratch)
        if clean_batch(read_header(one), one, decided, Transactions()) is not None:
            return offset
    raise AssertionError("beyond the map, everything stays")


@given(st.lists(RECORDS, min_size=1, max_size=4), st.integers(0, 40))
def test_the_map_holds_the_last_offset_of_each_key(batches: list[list[Record]], from_offset: int) -> None:
    offsets, want, end = offset_map(), dict[bytes, int](), 0
    for records in batches:
        batch = build_batch(records, base_offset=end)
        assert taken(offsets, batch, from_offset)
        want |= model(decode_batch(batch), from_offset)
        end += len(records)
        assert offsets.end_offset == end
    assert len(offsets) == len(want)
    for key in (b"", b"a", b"b", b"k" * 7, b"k" * 8, b"k" * 9, b"k" * 300):
        assert known(offsets, key, end) == want.get(key, 0)


def numbered(first: int, count: int) -> bytes:
    return build_batch([Record(0, NOW_MS, b"%d" % (first + at), b"v") for at in range(count)], base_offset=first)


def test_a_map_that_grows_forgets_nothing() -> None:
    count = 40_000
    offsets = offset_map(2 * count * SLOT_BYTES)
    before = len(offsets.table)
    for first in range(0, count, 10_000):
        assert taken(offsets, numbered(first, 10_000))
    assert len(offsets) == count and len(offsets.table) > 10 * before
    newer = replace(rules(), offsets=offsets)
    for key in (0, 1, 999, 39_999):
        old, last = (build_batch([Record(0, NOW_MS, b"%d" % key, b"v")], base_offset=at) for at in (key - 1, key))
        assert offsets_kept(newer, last) and not (key and offsets_kept(newer, old))


def offsets_kept(decided: Rules, batch: bytes) -> bool:
    return clean_batch(read_header(batch), batch, decided, Transactions()) is not None


@pytest.mark.parametrize(("slots", "load_factor", "keys"), [(10, 0.9, 9), (10, 0.5, 5), (10, 1.0, 9), (0, 0.9, 1)])
def test_a_full_map_ends_inside_a_batch(slots: int, load_factor: float, keys: int) -> None:
    """As in Kafka: the records from there on stay, and are looked at in the next round."""
    offsets = offset_map(slots * SLOT_BYTES, load_factor)
    again = build_batch([Record(0, NOW_MS, b"0", b"v")] * 3)
    assert taken(offsets, again) and len(offsets) == 1
    assert not taken(offsets, numbered(100, 50))
    assert len(offsets) == keys
    assert offsets.end_offset == 100 + keys - 1
    decided = Rules(offsets, NOW_MS, DELETE_RETENTION_MS, -1, scratch)
    later = build_batch([Record(0, NOW_MS, None, b"v")] * 50, base_offset=100)
    assert offsets_of(clean_batch(read_header(later), later, decided, Transactions())) == [*range(100 + keys - 1, 150)]


def offsets_of(batch: Any) -> list[int]:
    return [record.offset for record in decode_batch(bytes(batch))]


@pytest.mark.parametrize("tombstones", [False, True])
def test_many_records_take_the_memory_of_their_bytes(tombstones: bool) -> None:
    """A bomb, accepted long ago: a small batch of very many records. Nothing is made of each of them."""
    count = 300_000
    value = None if tombstones else b""
    batch = build_batch([Record(0, NOW_MS, b"k", value)] * count, compression=Compression.ZSTD)
    header = read_header(batch)
    body_bytes = len(open_body(header, batch, scratch))
    decided = rules()
    tracemalloc.start()
    try:
        assert taken(decided.offsets, batch)
        decided.offsets.end_offset = count
        stays = clean_batch(header, batch, decided, Transactions())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stays is not None and offsets_of(stays) == [count - 1]
    assert 10 * len(batch) < body_bytes
    assert peak < 2 * body_bytes
