"""Steered faults: a partition gets another leader, or a broker loses its replica, while a worker of that broker syncs,
truncates or compacts its log: the worker pauses with its locks until the change is done or the broker waits for it."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from headrace.client.errors import ClientError
from headrace.log import cleaner
from headrace.log.flushing import Flushing
from headrace.log.log import Log
from headrace.metadata.image import INTERNAL_TOPICS
from headrace.sim.moments import MomentFaults, before_each, in_place
from headrace.sim.workloads.administering import PREFERRED
from headrace.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from headrace.env import Disk
    from headrace.sim.checkers.history import Place
    from headrace.sim.client import SimClient
    from headrace.sim.machine import Machine
    from headrace.sim.world import World

CHANCES: Final = {"syncs": 0.1, "cuts": 1.0, "compacts": 0.5}
"""How often work of a kind is met."""
STAYS_S: Final = (0.2, 1.2)
REMOVED: Final = 0.5
"""How often the broker is to have no replica any more, for a while."""
BACK_S: Final = (0.2, 1.0)
TIMEOUT_MS: Final = 10_000


class RolesUnderWorkers(MomentFaults):
    """Changes roles of a partition while workers hold its log.

    `met` counts the changes of role by the work under which they came.
    """

    def __init__(
        self, world: World, machines: Mapping[int, Machine[Any]], topics: tuple[str, ...], client: SimClient
    ) -> None:
        """`machines` are those of all brokers, each of which has a replica of each partition of `topics`; `client` is
        that of the operator who changes roles."""
        super().__init__(world, "roles under workers")
        self._machines = dict(machines)
        self._nodes = {id(machine.disk): node for node, machine in machines.items()}
        self._topics = {*topics, *INTERNAL_TOPICS}
        self._client = client
        self._changing = False
        self.met = dict.fromkeys(CHANCES, 0)

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [
            before_each(Flushing, "flush", self._syncs),
            before_each(Log, "truncate_to", self._cuts),
            in_place(cleaner, "clean", self._compacting(cleaner.clean)),
        ]

    def _syncs(self, flushing: Flushing, *_: object) -> None:
        self._hear("syncs", flushing.state.resources.disk, flushing.state.directory)

    def _cuts(self, log: Log, *_: object, **__: object) -> None:
        self._hear("cuts", log.state.resources.disk, log.directory)

    def _compacting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def clean(found: cleaner.Candidate, *given: Any) -> Any:
            self._hear("compacts", found.log.state.resources.disk, found.log.directory)
            return real(found, *given)

        return clean

    def _hear(self, work: str, disk: Disk, directory: str) -> None:
        """A worker begins its work, on its own thread."""
        topic, _, index = directory.rpartition("/")[2].rpartition("-")
        node = self._nodes.get(id(disk))
        if node is None or topic not in self._topics or not index.isdigit() or not self._is_on or self._changing:
            return
        machine = self._machines[node]
        steps = None if machine.node is None else machine.node.steps
        if steps is None or steps.current is None or self._rng.random() > CHANCES[work]:
            return
        if self._world.strikes("role changes under a worker", machine.host, work, directory):
            self.met[work] += 1
            self._changing = True
            steps.current.stays_s = self._rng.uniform(*STAYS_S)
            self._owner.spawn(self._change(node, (topic, int(index))))

    async def _change(self, node: int, place: Place) -> None:
        others = self._rng.sample([each for each in self._machines if each != node], len(self._machines) - 1)
        is_removed = self._rng.random() < REMOVED
        try:
            if is_removed:
                await self._lie_on(place, others)
                await sleep(self._rng.uniform(*BACK_S))
                await self._lie_on(place, [*others, node])
            else:
                first = self._rng.choice(([node, *others], [*others, node]))
                await self._lie_on(place, first)
                await sleep(self._rng.uniform(*BACK_S))
                await self._lie_on(place, [*first[1:], first[0]])
        except ClientError:
            pass  # it stays as it was, or so
        self._changing = False

    async def _lie_on(self, place: Place, replicas: list[int]) -> None:
        """The first of the brokers leads as soon as it is in sync. Raises ClientError."""
        partition = ReassignablePartition(partition_index=place[1], replicas=replicas)
        await self._client.ask(
            AlterPartitionReassignmentsRequest(
                timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=place[0], partitions=[partition])]
            ),
            AlterPartitionReassignmentsResponse,
        )
        elected = TopicPartitions(topic=place[0], partitions=[place[1]])
        await self._client.ask(
            ElectLeadersRequest(election_type=PREFERRED, topic_partitions=[elected], timeout_ms=TIMEOUT_MS),
            ElectLeadersResponse,
        )
