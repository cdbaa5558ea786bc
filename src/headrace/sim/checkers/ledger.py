"""Transactions are all or nothing: what read_committed readers see, against what producers were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.sim.world import World

Place = tuple[str, int]


class Fate(Enum):
    """What is known of a transaction."""

    OPEN = "open"
    """Nobody asked for its commit: if its producer ends here, it is aborted."""
    UNKNOWN = "unknown"
    """Its commit was asked for, and the answer is not there."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer."""

    name: str
    values: dict[bytes, Place] = field(default_factory=dict)
    """What was acknowledged, and where."""
    sent: set[bytes] = field(default_factory=set)
    """What was sent, acknowledged or not."""
    fate: Fate = Fate.OPEN
    seen: set[bytes] = field(default_factory=set)


class Ledger:
    """See the module. A value is written once, in one transaction."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._transactions: list[Transaction] = []
        self._of: dict[bytes, Transaction] = {}
        self._offsets: dict[bytes, tuple[Place, int]] = {}
        self._last: dict[tuple[Place, bytes], int] = {}
        """Of each partition and producer the number of the last value that was seen."""
        self.ends: dict[Place, int] = {}
        """How far readers have come."""
        self.committed_count = 0

    def begins(self, name: str) -> Transaction:
        """A transaction of the producer that `name` names."""
        transaction = Transaction(name)
        self._transactions.append(transaction)
        return transaction

    def sends(self, transaction: Transaction, value: bytes) -> None:
        """A value is on its way."""
        transaction.sent.add(value)
        self._of[value] = transaction

    def acknowledges(self, transaction: Transaction, value: bytes, place: Place) -> None:
        """A value is in the transaction."""
        transaction.values[value] = place

    def ends_as(self, transaction: Transaction, fate: Fate) -> None:
        """What its producer was told of its end, or that it is not told any more."""
        assert transaction.fate is Fate.OPEN or fate is not Fate.OPEN
        transaction.fate = fate
        self.committed_count += fate is Fate.COMMITTED
        if fate is Fate.ABORTED:
            self._demand(not transaction.seen, transaction, f"is aborted, and {transaction.seen} was seen")

    def reads(self, place: Place, offset: int, value: bytes) -> None:
        """A read_committed reader sees a value."""
        transaction = self._of.get(value)
        if transaction is None:
            self._world.object(f"{place} has {value!r} at {offset}, and nobody wrote it")
            return
        known = self._offsets.setdefault(value, (place, offset))
        self._demand(known == (place, offset), transaction, f"{value!r} is at {known} and at {(place, offset)}")
        may_be_seen = transaction.fate in (Fate.COMMITTED, Fate.UNKNOWN)
        self._demand(may_be_seen, transaction, f"is {transaction.fate.value}, and {value!r} is seen in {place}")
        producer, _, number = value.rpartition(b":")
        producer = producer.partition(b":")[0]
        if value not in transaction.seen:
            last = self._last.get((place, producer), -1)
            self._demand(int(number) > last, transaction, f"{value!r} comes after number {last} in {place}")
            self._last[place, producer] = int(number)
        transaction.seen.add(value)

    def is_whole(self) -> None:
        """Every reader has seen all there is, and nothing more comes."""
        for transaction in self._transactions:
            wanted = set(transaction.values)
            if transaction.fate is Fate.COMMITTED:
                missing = sorted(wanted - transaction.seen)
                self._demand(not missing, transaction, f"is committed, and nobody sees {missing}")
            elif transaction.fate is Fate.UNKNOWN:
                is_all = wanted <= transaction.seen
                self._demand(
                    is_all or not transaction.seen,
                    transaction,
                    f"is torn: {sorted(transaction.seen)} of {sorted(wanted)} are seen",
                )

    def _demand(self, holds: bool, transaction: Transaction, otherwise: str) -> None:
        self._world.demand(holds, f"transaction {transaction.name}: {otherwise}")
