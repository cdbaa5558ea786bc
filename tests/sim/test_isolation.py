"""The checker of transactional appends: it finds every anomaly that is planted into a history, and no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sim.checkers.isolation import (
    PROMISED,
    Append,
    Appends,
    Consumed,
    Dependency,
    Fate,
    Key,
    OffsetRead,
    Read,
    Transaction,
    anomalies,
    cycle,
)

A: Key = ("list", 0)
B: Key = ("list", 1)


def _transaction(
    name: str, began_at: float, ended_at: float, appends: dict[Key, list[int]], fate: Fate = Fate.COMMITTED
) -> Transaction:
    """One whose appends are sent and acknowledged at moments of its own, spread over its life."""
    made = Transaction(name, began_at, fate=fate)
    if fate in (Fate.COMMITTED, Fate.ABORTED):
        made.ended_at = ended_at
    for key, values in appends.items():
        for value in values:
            made.appends.append(Append(key, value, began_at + 0.1, ended_at - 0.1))
    return made


def _history(
    transactions: list[Transaction], logs: dict[Key, list[int]], offset_reads: list[OffsetRead] | None = None
) -> Appends:
    """What readers find in the end: `logs` are values at offsets 0, 1, 2."""
    reads = [Read(key, 0, len(values), list(enumerate(values))) for key, values in logs.items()]
    reads += [read for transaction in transactions for read in transaction.reads]
    return Appends(transactions, reads, offset_reads or [], is_settled=True)


def _kinds(history: Appends) -> set[str]:
    return {each.kind for each in anomalies(history)}


def _two(first: Fate = Fate.COMMITTED, second: Fate = Fate.COMMITTED) -> list[Transaction]:
    return [_transaction("one", 0, 10, {A: [1], B: [2]}, first), _transaction("two", 20, 30, {A: [3], B: [4]}, second)]


def test_transactions_one_after_the_other_are_sound() -> None:
    assert anomalies(_history(_two(), {A: [1, 3], B: [2, 4]})) == []


@pytest.mark.parametrize(
    ("kind", "transactions", "logs"),
    [
        ("lost", _two(), {A: [1, 3], B: [2]}),
        ("doubled", _two(), {A: [1, 3, 1], B: [2, 4]}),
        ("doubled", _two(), {A: [1, 3], B: [2, 4, 1]}),
        ("made up", _two(), {A: [1, 3], B: [2, 4, 9]}),
        ("G1a", _two(second=Fate.ABORTED), {A: [1, 3], B: [2]}),
        ("G1a", _two(second=Fate.OPEN), {A: [1, 3], B: [2, 4]}),
        ("torn", _two(second=Fate.UNKNOWN), {A: [1, 3], B: [2]}),
        ("order", _two(), {A: [3, 1], B: [2, 4]}),
    ],
)
def test_what_is_wrong_with_appends_is_found(
    kind: str, transactions: list[Transaction], logs: dict[Key, list[int]]
) -> None:
    assert _kinds(_history(transactions, logs)) == {kind}


def test_a_log_that_is_not_settled_lacks_nothing_yet() -> None:
    history = _history(_two(second=Fate.UNKNOWN), {A: [1, 3], B: [2]})
    history.is_settled = False
    assert anomalies(history) == []


def test_whoever_is_not_told_may_be_committed_or_not() -> None:
    assert anomalies(_history(_two(second=Fate.UNKNOWN), {A: [1], B: [2]})) == []
    assert anomalies(_history(_two(second=Fate.UNKNOWN), {A: [1, 3], B: [2, 4]})) == []


def test_a_value_that_changes_is_found() -> None:
    history = _history(_two(), {A: [1, 3], B: [2, 4]})
    history.reads.append(Read(A, 0, 1, [(0, 3)]))
    assert "changed" in _kinds(history)


def test_a_poll_that_passes_what_others_see_is_found() -> None:
    history = _history(_two(), {A: [1, 3], B: [2, 4]})
    history.reads.append(Read(A, 0, 2, [(0, 1)]))
    assert _kinds(history) == {"passed over"}
    history.reads[-1] = Read(A, 0, 1, [(0, 1)])
    assert anomalies(history) == []


def _overlapping() -> list[Transaction]:
    return [_transaction("one", 0, 30, {A: [1], B: [2]}), _transaction("two", 1, 31, {A: [3], B: [4]})]


def test_write_cycles_of_transactions_that_overlap_are_found_and_permitted() -> None:
    """G0: an append has its place when it is sent."""
    history = _history(_overlapping(), {A: [1, 3], B: [4, 2]})
    assert set(cycle(history, {Dependency.WW}) or ()) == {"one", "two"}
    assert anomalies(history) == []


def test_a_cycle_of_reads_alone_is_an_anomaly() -> None:
    """G1c without a ww: each has read what the other appended."""
    transactions = _overlapping()
    transactions[0].reads.append(Read(B, 0, 2, [(0, 2), (1, 4)]))
    transactions[1].reads.append(Read(A, 0, 1, [(0, 1)]))
    assert _kinds(_history(transactions, {A: [1, 3], B: [2, 4]})) == {"G1c"}


def test_a_cycle_with_a_write_is_found_and_permitted() -> None:
    """G1c with a ww: one appends to A before two does, and reads what two has committed."""
    transactions = _overlapping()
    transactions[0].reads.append(Read(B, 0, 1, [(0, 4)]))
    history = _history(transactions, {A: [1, 3], B: [4, 2]})
    assert cycle(history, {Dependency.WW, Dependency.WR}) is not None
    assert cycle(history, PROMISED) is None
    assert anomalies(history) == []


def test_a_read_skew_is_found_and_permitted() -> None:
    """G-single: a reader sees one key of a transaction, and not yet the other."""
    one, two = _transaction("one", 0, 30, {}), _transaction("two", 1, 9, {A: [1], B: [2]})
    one.reads += [Read(A, 0, 1, [(0, 1)]), Read(B, 0, 0, [])]
    history = _history([one, two], {A: [1], B: [2]})
    assert cycle(history, {Dependency.WR, Dependency.RW}) is not None
    assert anomalies(history) == []


def test_an_intermediate_read_may_end_there_and_not_pass() -> None:
    """G1b: a poll that ends within what a transaction appended to a key is permitted, if the next one has the rest."""
    one = _transaction("one", 0, 10, {A: [1, 2]})
    history = _history([one], {A: [1, 2]})
    history.reads.append(Read(A, 0, 1, [(0, 1)]))
    assert anomalies(history) == []
    history.reads.append(Read(A, 0, 2, [(0, 1)]))
    assert _kinds(history) == {"passed over"}


def test_a_lost_update_is_found_and_permitted() -> None:
    """Both read the key's start, and both append to it: nothing is locked. Of offsets it is no update that is lost, but
    an input that is consumed twice."""
    one, two = _transaction("one", 0, 30, {A: [1]}), _transaction("two", 1, 31, {A: [3]})
    one.reads.append(Read(A, 0, 0, []))
    two.reads.append(Read(A, 0, 0, []))
    history = _history([one, two], {A: [1, 3]})
    assert set(cycle(history, {Dependency.WW, Dependency.RW}) or ()) == {"one", "two"}
    assert anomalies(history) == []
    consumed = Consumed("group", B, 0, 2)
    one.consumed.append(consumed)
    two.consumed.append(consumed)
    history.offset_reads.append(OffsetRead("group", B, 40, 41, 2))
    assert _kinds(history) == {"consumed twice"}


def test_nobody_reads_from_the_future() -> None:
    one, two = _two()
    one.reads.append(Read(A, 1, 2, [(1, 3)]))
    assert _kinds(_history([one, two], {A: [1, 3], B: [2, 4]})) == {"G1c"}


# --- offsets ---------------------------------------------------------------------------------------------------------


def _copies(spans: list[tuple[int, int, Fate]]) -> list[Transaction]:
    found = []
    for number, (first, after, fate) in enumerate(spans):
        made = _transaction(f"copy {number}", number * 10, number * 10 + 9, {B: [number]}, fate)
        made.consumed.append(Consumed("group", A, first, after))
        found.append(made)
    return found


def _asked(at: float, offset: int) -> OffsetRead:
    return OffsetRead("group", A, at, at + 0.5, offset)


C, X, U = Fate.COMMITTED, Fate.ABORTED, Fate.UNKNOWN


@pytest.mark.parametrize(
    ("kinds", "spans", "values", "asked"),
    [
        (set(), [(0, 3, C), (3, 5, C)], [0, 1], [_asked(9.5, 3), _asked(30, 5)]),
        (set(), [(0, 3, C), (3, 4, X), (3, 5, C)], [0, 2], [_asked(30, 5)]),
        (set(), [(0, 3, C), (3, 5, U)], [0], [_asked(30, 3)]),
        (set(), [(0, 3, C), (3, 5, U)], [0, 1], [_asked(30, 5)]),
        ({"offset of nobody", "offsets"}, [(0, 3, C), (3, 5, U)], [0], [_asked(30, 5)]),
        ({"offset of nobody"}, [(0, 3, C), (3, 4, X), (3, 5, C)], [0, 2], [_asked(15, 4), _asked(30, 5)]),
        ({"offsets"}, [(0, 3, C), (3, 5, U)], [0, 1], [_asked(30, 3)]),
        ({"offset went back", "offsets"}, [(0, 3, C), (3, 5, C)], [0, 1], [_asked(30, 3)]),
        ({"offset went back"}, [(0, 3, C), (3, 5, C)], [0, 1], [_asked(12, -1), _asked(30, 5)]),
        ({"offset went back"}, [(0, 3, C), (3, 5, C)], [0, 1], [_asked(12, 5), _asked(14, 3), _asked(30, 5)]),
        ({"consumed twice"}, [(0, 3, C), (2, 5, C)], [0, 1], [_asked(30, 5)]),
        ({"not consumed"}, [(0, 3, C), (4, 5, C)], [0, 1], [_asked(30, 5)]),
        ({"offsets"}, [(0, 3, C)], [0], []),
    ],
)
def test_offsets_agree_with_appends(
    kinds: set[str], spans: list[tuple[int, int, Fate]], values: list[int], asked: list[OffsetRead]
) -> None:
    assert _kinds(_history(_copies(spans), {B: values}, asked)) == kinds


# --- made-up histories ------------------------------------------------------------------------------------------------


def _sound(rng: random.Random, keys: int, transactions: int) -> Appends:
    """What logs, markers and readers that keep every promise would make of transactions that overlap at random."""
    now = count(1)
    logs: dict[Key, list[tuple[int, Transaction] | None]] = {("list", index): [] for index in range(keys)}
    history, numbers, opened = Appends(), count(), list[Transaction]()
    ended: set[Transaction] = set()
    left = transactions
    while left or opened:
        if left and (not opened or rng.random() < 0.4):
            left -= 1
            opened.append(Transaction(f"t{left}", next(now)))
            history.transactions.append(opened[-1])
            continue
        one = rng.choice(opened)
        key = rng.choice(sorted(logs))
        step = rng.random()
        if step < 0.5:
            append = Append(key, next(numbers), next(now), next(now))
            one.appends.append(append)
            logs[key].append((append.value, one))
        elif step < 0.7:
            first = rng.randint(0, len(logs[key]))
            after = first
            while after < len(logs[key]) and ((at := logs[key][after]) is None or at[1] in ended):
                after += 1
            there = [(i, at[0]) for i, at in enumerate(logs[key]) if first <= i < after and at and at[1].fate is C]
            read = Read(key, first, after, there)
            one.reads.append(read)
            history.reads.append(read)
        else:
            opened.remove(one)
            ended.add(one)
            one.fate = rng.choice((C, C, X))
            one.ended_at = next(now)
            for key in {each.key for each in one.appends}:
                logs[key].append(None)
    for key, log in logs.items():
        there = [(i, at[0]) for i, at in enumerate(log) if at and at[1].fate is C]
        history.reads.append(Read(key, 0, len(log), there))
    history.is_settled = True
    return history


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 12))
def test_a_sound_history_has_no_anomaly(seed: int, keys: int, transactions: int) -> None:
    assert anomalies(_sound(random.Random(seed), keys, transactions)) == []


def _lose(history: Appends, value: int) -> None:
    for read in history.reads:
        read.values = [each for each in read.values if each[1] != value]


def _hide_once(history: Appends, value: int) -> None:
    read = Read(*_place(history, value), [])
    history.reads.append(read)


def _place(history: Appends, value: int) -> tuple[Key, int, int]:
    for read in history.reads:
        for offset, found in read.values:
            if found == value:
                return read.key, offset, offset + 1
    raise AssertionError(value)


def _double(history: Appends, value: int) -> None:
    key, _, _ = _place(history, value)
    history.reads.append(Read(key, 10_000, 10_001, [(10_000, value)]))


def _abort(history: Appends, value: int) -> None:
    for transaction in history.transactions:
        if any(each.value == value for each in transaction.appends):
            transaction.fate = X


@pytest.mark.parametrize(
    ("kind", "plant"), [("lost", _lose), ("passed over", _hide_once), ("doubled", _double), ("G1a", _abort)]
)
@given(seed=st.integers(0, 2**32))
def test_an_anomaly_is_found_wherever_it_is(kind: str, plant: Callable[[Appends, int], None], seed: int) -> None:
    rng = random.Random(seed)
    history = _sound(rng, 3, 8)
    seen = sorted({value for read in history.reads for _, value in read.values})
    if seen:
        plant(history, rng.choice(seen))
        assert kind in _kinds(history)
