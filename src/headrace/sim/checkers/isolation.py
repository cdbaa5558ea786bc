"""Whether a history of transactional appends and reads keeps what Kafka's transactions promise: a checker in the manner
of Elle (Kingsbury and Alvaro, 2020), of lists that are appended to. A key is a partition, its list the partition's log.

Offsets give the order of the appends of each key, and every value is appended once, so that all dependencies are known:
ww from an append to the next one of its key, wr from an append to its readers, rw from a read to the first append
behind what it saw. `cycle` finds a cycle of any of them.

**What is promised, and `anomalies` finds broken:**
- No append is lost, doubled, moved, or made up. A committed transaction has all of its appends, an aborted one none,
  one whose end its producer never heard of all or none (torn).
- G1a: a reader of what is committed never sees an append of a transaction that is aborted, or that nobody asked to
  commit.
- A reader's place in a key never passes an append that is seen there by others, then or later: what is open holds it
  up.
- Appends to one key are in real order: one that was acknowledged before another was sent comes before it. So a
  producer that runs one transaction after the other has them in that order everywhere (the G0 that is promised).
- wr alone, and wr with real time: a read of an append comes after its transaction's commit, so that no cycle of
  these exists (of G1c the part that is promised), and nobody reads from the future.
- A transaction's offsets are committed if and only if its appends are: what a group's transactions consumed follows
  without a gap and without an overlap, a group's offset is one that a transaction committed, never goes back, is at
  least that of every transaction that was known to be committed when it was asked for, and at last that of the last.

**What is not, and no anomaly here:**
- ww cycles between transactions that overlap (G0), and all cycles with a ww between such: an append has its offset when
  it is sent, not when it is committed, and keys are not locked.
- G1b: a poll may end within a transaction's appends to a key, and another open one may hold up the rest.
- G-single, G2: a reader sees each key by itself, and a marker comes to one key before it comes to the next. Reads are
  no part of a transaction, and no snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple

Key = tuple[str, int]
"""A topic and a partition."""


class Fate(Enum):
    """What is known of a transaction's end."""

    OPEN = "open"
    """Nobody asked for its commit: if its producer ends here, it is aborted."""
    UNKNOWN = "unknown"
    """Its commit was asked for, and the answer never came."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Append:
    """One value, appended to one key. Times are seconds of one clock."""

    key: Key
    value: int
    sent_at: float
    acknowledged_at: float = inf


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a transaction read of a key for a group, [first, after): it commits `after`."""

    group: str
    key: Key
    first: int
    after: int


@dataclass(slots=True, eq=False)
class Read:
    """What one poll of read_committed gave: every committed append of the key within [first, after)."""

    key: Key
    first: int
    after: int
    values: list[tuple[int, int]]
    """(offset, value)"""


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer."""

    name: str
    began_at: float
    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    """What its producer read between its begin and its end."""
    consumed: list[Consumed] = field(default_factory=list)
    fate: Fate = Fate.OPEN
    ended_at: float = inf
    """When its producer learned of its end."""


@dataclass(frozen=True, slots=True)
class OffsetRead:
    """The committed offset that a group's coordinator returned, -1 for none; for stable offsets only (KIP-447)."""

    group: str
    key: Key
    asked_at: float
    answered_at: float
    offset: int


@dataclass(slots=True, eq=False)
class Appends:
    """A history: what transactions did, and what readers and groups saw."""

    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    """All polls, those of transactions too."""
    offset_reads: list[OffsetRead] = field(default_factory=list)
    is_settled: bool = False
    """Whether everything was read, and every group's offset asked for, once nothing was open any more."""


class Anomaly(NamedTuple):
    """A promise that is broken."""

    kind: str
    text: str


class Dependency(Enum):
    """Why one transaction comes before another; REAL_TIME: it ended before that one began."""

    WW = "ww"
    WR = "wr"
    RW = "rw"
    REAL_TIME = "real time"


PROMISED: Final = frozenset({Dependency.WR, Dependency.REAL_TIME})
"""Dependencies of which Kafka allows no cycle."""


class _Index:
    """A history by value and by place."""

    def __init__(self, history: Appends) -> None:
        self.history = history
        self.writer: dict[int, Transaction] = {}
        self.append: dict[int, Append] = {}
        self.offset: dict[int, int] = {}
        """Where each value is that anybody saw."""
        self.seen: dict[Key, dict[int, int]] = {}
        """By key: offset -> value."""
        for transaction in history.transactions:
            for append in transaction.appends:
                self.writer[append.value] = transaction
                self.append[append.value] = append
        for read in history.reads:
            there = self.seen.setdefault(read.key, {})
            for offset, value in read.values:
                there.setdefault(offset, value)
                self.offset.setdefault(value, offset)
        self.offsets = {key: sorted(there) for key, there in self.seen.items()}

    def took_effect(self, transaction: Transaction) -> bool:
        """Whether it is committed, as far as anybody can tell."""
        if transaction.fate is Fate.UNKNOWN:
            return any(each.value in self.offset for each in transaction.appends)
        return transaction.fate is Fate.COMMITTED


def anomalies(history: Appends) -> list[Anomaly]:
    """Every promise that the history breaks (see the module); of cycles one."""
    index = _Index(history)
    found = [*_reads(index), *_wholeness(index), *_order(index), *_offsets(index)]
    circle = cycle(history, PROMISED)
    if circle is not None:
        found.append(Anomaly("G1c", " -> ".join(circle)))
    return found


# --- appends and reads -----------------------------------------------------------------------------------------------


def _reads(index: _Index) -> Iterator[Anomaly]:
    for read in index.history.reads:
        for offset, value in read.values:
            yield from _read(index, read.key, offset, value)
        known = index.offsets.get(read.key, [])
        there = {offset for offset, _ in read.values}
        for offset in known[bisect_left(known, read.first) : bisect_left(known, read.after)]:
            if offset not in there:
                value = index.seen[read.key][offset]
                text = f"{read.key}: a poll of [{read.first}, {read.after}) lacks {value}, which is seen at {offset}"
                yield Anomaly("passed over", text)


def _read(index: _Index, key: Key, offset: int, value: int) -> Iterator[Anomaly]:
    transaction = index.writer.get(value)
    if transaction is None:
        yield Anomaly("made up", f"{key} has {value} at {offset}, and nobody appended it")
        return
    if (first := index.seen[key][offset]) != value:
        yield Anomaly("changed", f"{key} has {first} at {offset}, and {value} too")
    wanted = index.append[value].key
    if (key, offset) != (wanted, index.offset[value]):
        yield Anomaly("doubled", f"{value} is at {key}:{offset} and at {wanted}:{index.offset[value]}")
    if transaction.fate in (Fate.ABORTED, Fate.OPEN):
        text = f"transaction {transaction.name} is {transaction.fate.value}, and {value} is seen at {key}:{offset}"
        yield Anomaly("G1a", text)


def _wholeness(index: _Index) -> Iterator[Anomaly]:
    if not index.history.is_settled:
        return
    for transaction in index.history.transactions:
        missing = [each.value for each in transaction.appends if each.value not in index.offset]
        if not missing:
            continue
        if transaction.fate is Fate.COMMITTED:
            yield Anomaly("lost", f"transaction {transaction.name} is committed, and nobody sees {missing}")
        elif transaction.fate is Fate.UNKNOWN and len(missing) < len(transaction.appends):
            count = len(transaction.appends)
            yield Anomaly("torn", f"of transaction {transaction.name} nobody sees {missing}, of {count} appends")


def _order(index: _Index) -> Iterator[Anomaly]:
    """Appends to a key are linearizable: none comes behind one that was sent after it was acknowledged."""
    for key, offsets in index.offsets.items():
        earliest: Append | None = None
        for offset in reversed(offsets):
            append = index.append.get(index.seen[key][offset])
            if append is None or index.offset[append.value] != offset:
                continue  # made up, or doubled
            if earliest is not None and earliest.acknowledged_at < append.sent_at:
                text = f"{key} has {append.value} at {offset}, before {earliest.value}"
                yield Anomaly("order", f"{text}, which was acknowledged before it was sent")
            if earliest is None or append.acknowledged_at < earliest.acknowledged_at:
                earliest = append


# --- offsets of groups -----------------------------------------------------------------------------------------------


def _offsets(index: _Index) -> Iterator[Anomaly]:
    effective: dict[tuple[str, Key], list[tuple[Consumed, Transaction]]] = {}
    for transaction in index.history.transactions:
        if index.took_effect(transaction):
            for each in transaction.consumed:
                effective.setdefault((each.group, each.key), []).append((each, transaction))
    asked: dict[tuple[str, Key], list[OffsetRead]] = {}
    for read in index.history.offset_reads:
        asked.setdefault((read.group, read.key), []).append(read)
    for place in sorted({*effective, *asked}):
        taken = sorted(effective.get(place, ()), key=lambda pair: pair[0].first)
        yield from _tiles(place, taken)
        yield from _committed(place, taken, sorted(asked.get(place, ()), key=lambda read: read.answered_at))
        if index.history.is_settled and taken:
            last = max((read.offset for read in asked.get(place, ())), default=-1)
            if last != taken[-1][0].after:
                text = f"{place} is committed at {last} at last, and {taken[-1][1].name} consumed to "
                yield Anomaly("offsets", text + str(taken[-1][0].after))


def _tiles(place: tuple[str, Key], taken: list[tuple[Consumed, Transaction]]) -> Iterator[Anomaly]:
    """Every input is consumed once."""
    position, before = 0, "nobody"
    for consumed, transaction in taken:
        if consumed.first != position:
            what = "consumed twice" if consumed.first < position else "not consumed"
            text = f"{place}: {transaction.name} begins at {consumed.first}, and {before} ended at {position}"
            yield Anomaly(what, text)
        position, before = max(position, consumed.after), transaction.name


def _committed(
    place: tuple[str, Key], taken: list[tuple[Consumed, Transaction]], asked: list[OffsetRead]
) -> Iterator[Anomaly]:
    """What a coordinator says is committed is so, and stays so."""
    possible = {-1, 0, *(consumed.after for consumed, _ in taken)}
    highest_by_time: list[tuple[float, int]] = []
    ends = sorted((transaction.ended_at, consumed.after) for consumed, transaction in taken)
    floors = sorted([*ends, *((read.answered_at, read.offset) for read in asked)])
    highest = -1
    for at, offset in floors:
        highest = max(highest, offset)
        highest_by_time.append((at, highest))
    for read in asked:
        if read.offset not in possible:
            text = f"{place} is committed at {read.offset}, which no committed transaction says"
            yield Anomaly("offset of nobody", text)
        before = bisect_left(highest_by_time, (read.asked_at, -1))
        floor = highest_by_time[before - 1][1] if before else -1
        if max(read.offset, 0) < floor:
            text = f"{place} is committed at {read.offset}, and {floor} was before it was asked for"
            yield Anomaly("offset went back", text)


# --- cycles ----------------------------------------------------------------------------------------------------------


def cycle(history: Appends, kinds: Collection[Dependency]) -> list[str] | None:
    """The transactions of one cycle of dependencies of these kinds, by name; None where there is none."""
    index = _Index(history)
    # The order of real time is a chain of moments: each transaction that ended comes before the moment of its end, and
    # after the last moment before its begin. So it has as many edges as transactions.
    before: dict[Transaction | int, set[Transaction | int]] = {}
    if Dependency.REAL_TIME in kinds:
        _add_real_time(history, before)
    for one, other, kind in _dependencies(index):
        if kind in kinds and one is not other:
            before.setdefault(other, set()).add(one)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return [each.name for each in error.args[1] if isinstance(each, Transaction)]
    return None


def _add_real_time(history: Appends, before: dict[Transaction | int, set[Transaction | int]]) -> None:
    ended = sorted((each for each in history.transactions if each.ended_at < inf), key=lambda each: each.ended_at)
    times = [each.ended_at for each in ended]
    for moment, transaction in enumerate(ended):
        before[moment] = {transaction} if moment == 0 else {transaction, moment - 1}
    for transaction in history.transactions:
        moment = bisect_left(times, transaction.began_at) - 1
        if moment >= 0:
            before.setdefault(transaction, set()).add(moment)


def _dependencies(index: _Index) -> Iterator[tuple[Transaction, Transaction, Dependency]]:
    """(who comes first, who comes after it, why)."""
    for key, offsets in index.offsets.items():
        writers = [index.writer.get(index.seen[key][offset]) for offset in offsets]
        for one, other in pairwise(writers):
            if one is not None and other is not None:
                yield one, other, Dependency.WW
    for transaction in index.history.transactions:
        for read in transaction.reads:
            for _, value in read.values:
                if (writer := index.writer.get(value)) is not None:
                    yield writer, transaction, Dependency.WR
            known = index.offsets.get(read.key, [])
            at = bisect_left(known, read.after)
            if at < len(known) and (writer := index.writer.get(index.seen[read.key][known[at]])) is not None:
                yield transaction, writer, Dependency.RW
