"""Group commit: a driver and its tasks, each with its own transactional id; one request ends their transactions with
the driver's, which has the source offsets.

The group is one transaction to the checker. Each round has new tasks, as batches have; some come late, with the id of a
task that has handed its transaction over, while that is being committed.
"""

from __future__ import annotations

from asyncio import Task as Running
from asyncio import gather
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.sim.checkers.isolation import Transaction
from headrace.sim.workloads.copying import Copier
from headrace.sim.workloads.transacting import NEW, Attempt, Transactor
from headrace.wire.messages.k19900_headrace_group_end_txn import (
    GroupEndTxnChild,
    HeadraceGroupEndTxnRequest,
    HeadraceGroupEndTxnResponse,
)
from headrace.wire.sharding import partition_of

if TYPE_CHECKING:
    from headrace.sim.checkers.isolation import Appends, Key
    from headrace.sim.cluster_client import ClusterClient

OUTPUTS_MAX: Final = 2
"""Partitions that a task writes to."""
COMES_LATE: Final = 0.1
"""How often another attempt at a task begins when its driver is about to end all."""
WRITES: Final = 0.9
"""How often a task has something to write."""


def task_id(main_id: str, number: int, partitions: int) -> str:
    """The id of a task, in the partition of `__transaction_state` that the driver's is of."""
    name, salt = f"{main_id}-{number}", 0
    while partition_of(f"{name}~{salt}", partitions) != partition_of(main_id, partitions):
        salt += 1
    return f"{name}~{salt}"


class GroupTask(Transactor):
    """Writes, and hands its transaction over."""

    _late: Running[None] | None = None

    async def write(self, transaction: Transaction) -> GroupEndTxnChild | None:
        """Its part of one unit, open; None where it is not all written."""
        if self._late is not None:
            await self._late
            self._late = None
        await self.initialize()
        assert self._identity is not None
        attempt, rng = Attempt(transaction, *self._identity), self.client.rng
        keys = rng.sample(self.keys, rng.randint(1, min(OUTPUTS_MAX, len(self.keys))))
        is_whole = await self.write_all(attempt, keys)
        attempt.is_over = True
        return GroupEndTxnChild(self.transactional_id, *self._identity) if is_whole else None

    def come_late(self) -> None:
        """Another attempt begins, and aborts what the one before has left, if that is open."""
        self._late = self.client.owner.spawn(self.initialize())


class GroupDriver(Copier):
    """A driver whose group commit ends its tasks' transactions."""

    def __init__(
        self,
        client: ClusterClient,
        history: Appends,
        keys: Sequence[Key],
        transactional_id: str,
        numbers: Any,
        source: Key,
        tasks: Sequence[GroupTask],
    ) -> None:
        super().__init__(client, history, keys, transactional_id, NEW, numbers, source)
        self._tasks = list(tasks)
        self._children: list[GroupEndTxnChild] = []

    async def work(self, attempt: Attempt) -> bool:
        """See Transactor.work."""
        rng = self.client.rng
        self._children = []
        consumed = await self._consume(attempt)
        tasks = [each for each in self._tasks if rng.random() < WRITES]
        writing = [each.client.owner.spawn(each.write(attempt.transaction)) for each in tasks]
        is_whole, *written = await gather(self._produce(attempt, consumed), *writing)
        self._children = [each for each in written if each is not None]
        for each in tasks:
            if rng.random() < COMES_LATE:
                each.come_late()
        return is_whole and None not in written

    def _end_request(self, attempt: Attempt, commits: bool) -> tuple[Any, type, int]:
        who = (self.transactional_id, attempt.producer_id, attempt.producer_epoch)
        return HeadraceGroupEndTxnRequest(*who, commits, self._children), HeadraceGroupEndTxnResponse, 0
