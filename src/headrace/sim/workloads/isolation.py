"""The transactors, copiers and readers of a run: they start together, must make progress without faults, and their
history is checked at the end."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.sim.checkers.isolation import Appends, anomalies
from headrace.sim.workloads.copying import Copier, committed_offset
from headrace.sim.workloads.group_committing import GroupDriver, GroupTask, task_id
from headrace.sim.workloads.reading import LATEST, edge
from headrace.sim.workloads.transacting import NEW, OLD, Pauses, Poller, Transactor
from headrace.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from headrace.sim.checkers.isolation import Key
    from headrace.sim.cluster_client import ClusterClient
    from headrace.sim.world import World

TOPIC: Final = "ledger"
ABORTED_S: Final = 40.0
"""How long what nobody ends may stay open: the timeout, the coordinator's next look, and the way of the markers."""
REPEATED_S: Final = 5.0
"""A marker whose answer was lost is written again: by then the last one is on every replica."""
POLLERS: Final = 2
TASKS: Final = 3
"""Of a group, beside its driver."""
SLOW_PAUSE_S: Final = 0.8
SHOWN_MAX: Final = 5
"""Anomalies of one objection: it says how many there are."""


class Transactions:
    """The transactors, copiers and readers of a run."""

    def __init__(self, world: World, new_client: Callable[[str], ClusterClient], keys: int, pause_s: float) -> None:
        """`keys` partitions are appended to; a producer pauses for `pause_s` at most between two transactions."""
        self.history = Appends()
        self.keys: list[Key] = [(TOPIC, index) for index in range(keys)]
        self._world = world
        self._new_client = new_client
        self._transactors: list[Transactor] = []
        self._copiers: list[Copier] = []
        self._numbers = count()
        self._pauses = Pauses(pause_s)

    def start(self, transactors: int, copiers: int) -> None:
        """So many of each kind; of three of a kind the last two have one id. Half of them speak as of old."""
        for number in range(transactors):
            client = self._new_client("transactor")
            name = f"id-{min(number, max(transactors - 2, 1))}"
            protocol = (NEW, OLD)[number % 2]
            made = Transactor(client, self.history, self.keys, name, protocol, self._numbers)
            self._begin(made, transactors, number)
        for number in range(copiers):
            client = self._new_client("copier")
            one = min(number, max(copiers - 2, 1))
            protocol = (OLD, NEW)[number % 2]
            args = (self.history, self.keys, f"copies-{one}", protocol, self._numbers)
            copier = Copier(client, *args, self.keys[one % len(self.keys)])
            self._copiers.append(copier)
            self._begin(copier, copiers, number)
        for _ in range(POLLERS if self._transactors else 0):
            poller = Poller(self._new_client("poller"), self.history, self.keys)
            poller.pauses = self._pauses
            poller.client.owner.spawn(poller.run())

    def start_groups(self, groups: int, state_partitions: int) -> None:
        """So many groups that commit as one; of three the last two have the same ids. `state_partitions` are those of
        `__transaction_state`."""
        for number in range(groups):
            one = min(number, max(groups - 2, 1))
            name, source = f"group-{one}", self.keys[-1 - one % len(self.keys)]
            keys = [key for key in self.keys if key != source]
            tasks = [
                GroupTask(
                    self._new_client("task"),
                    self.history,
                    keys,
                    task_id(name, task, state_partitions),
                    NEW,
                    self._numbers,
                )
                for task in range(TASKS)
            ]
            driver = GroupDriver(
                self._new_client("driver"), self.history, self.keys, name, self._numbers, source, tasks
            )
            self._copiers.append(driver)
            self._begin(driver, groups, number)

    def _begin(self, made: Transactor, kind_count: int, number: int) -> None:
        made.pauses = self._pauses
        made.is_shared = kind_count > 2 and number >= kind_count - 2
        self._transactors.append(made)
        made.client.owner.spawn(made.run())

    @property
    def committed(self) -> int:
        """Transactions whose producers have heard of their commit."""
        return sum(each.committed for each in self._transactors)

    @property
    def judged(self) -> int:
        """Transactions of a history that is whole, and was judged."""
        return len(self.history.transactions) if self.history.is_settled else 0

    def slow_down(self) -> None:
        """Once the faults are over, little is left to find: each goes on, and costs less."""
        self._pauses.pause_s = max(self._pauses.pause_s, SLOW_PAUSE_S)

    def expectation(self) -> Callable[[], list[str]]:
        """From now on each gets a transaction through: the function that is returned names those that have not."""
        wanted = [(each, each.committed) for each in self._transactors if not each.is_shared]

        def late() -> list[str]:
            return [f"{each.client.host} commits nothing" for each, before in wanted if each.committed <= before]

        return late

    async def judge(self) -> None:
        """Once no transactor lives: what they left open is aborted, and then everything is seen that ever will be."""
        if not self._transactors:
            return
        until = self._world.loop.time() + ABORTED_S
        reader = Poller(self._new_client("judge"), self.history, self.keys)
        for key in self.keys:
            while (end := await self._end_of(reader.client, key)) < 0 or reader.positions[key] < end:
                if self._world.loop.time() > until:
                    text = f"{key} is committed up to {reader.positions[key]} and ends at {end}: a transaction hangs"
                    self._world.object(text)
                    return
                await reader.poll(key)
        await self.look_at_coordinators(reader.client, until)
        for group, source in sorted({(each.group, each.source) for each in self._copiers}):
            while (read := await committed_offset(reader.client, group, source)) is None:
                if self._world.loop.time() > until:
                    self._world.object(f"{group} does not say what is committed")
                    return
                await reader.client.rest()
            self.history.offset_reads.append(read)
        self.history.is_settled = True
        found = anomalies(self.history)
        if found:
            answers = "; ".join(f"{each.kind}: {each.text}" for each in found[:SHOWN_MAX])
            self._world.object(f"{len(found)} anomalies: {answers}")
        await sleep(REPEATED_S)

    async def _end_of(self, client: ClusterClient, key: Key) -> int:
        try:
            end = await edge(client, key, LATEST)
        except ClientError:
            end = -1
        if end < 0:
            await client.rest()
        return end

    async def look_at_coordinators(self, client: ClusterClient, until: float) -> None:
        """No coordinator has a transaction that is not over."""
        request = ListTransactionsRequest(state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"])
        while True:
            try:
                answers = await client.ask_each(request, ListTransactionsResponse, 0)
                left = [
                    (each.transactional_id, each.transaction_state)
                    for one in answers
                    for each in one.transaction_states
                ]
                if not left and not any(one.error_code for one in answers):
                    return
            except ClientError as error:
                left = [("nobody says", str(error))]
            if self._world.loop.time() > until:
                self._world.object(f"transactions hang: {left}")
                return
            await client.rest()
