"""Steered faults between leaders and followers only: the controllers, on other machines, do not notice.

Leaders alternate: an operator moves the same partitions between two brokers that do not reach each other. Each
continues its own log, so that each log has epochs which the other lacks.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.client.errors import ClientError
from headrace.sim.cluster_faults import LOOK_S, ClusterFaults
from headrace.sim.workloads.administering import PREFERRED
from headrace.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from headrace.sim.checkers.history import Place
    from headrace.sim.client import SimClient
    from headrace.sim.machine import Machine
    from headrace.sim.world import World

IN_TURN: Final = "leaders in turn"
APART: Final = "two apart"
UNHEARD: Final = "leader unheard"
TURNS: Final = (2, 4)
LEADS_S: Final = (0.2, 0.5)
"""How long each leads: less than a leader's patience with its followers."""
THIRD: Final = 0.5
"""How often the last one to lead, which reaches the other again, does not reach the third broker."""
APART_S: Final = (1.6, 2.2)
"""How long a follower does not reach its leader: longer than that one's patience."""
BACK_S: Final = 0.5
"""Within that time it joins again."""
UNHEARD_S: Final = (1.8, 2.6)
"""How long a leader does not reach the controllers: longer than its patience, and less than theirs."""
TIMEOUT_MS: Final = 10_000


class ReplicaFaults(ClusterFaults):
    """Faults between leaders and followers alone."""

    def __init__(
        self,
        world: World,
        brokers: Mapping[int, Machine[Any]],
        kinds: Sequence[str],
        mean_s: float,
        *,
        controllers: Sequence[str],
        places: Sequence[Place],
        client: Callable[[str], SimClient],
        lasts: Callable[[], bool],
    ) -> None:
        """`controllers` are hosts; `places` are replicated by all `brokers`, which are three; `client` makes a client
        machine of that kind; `lasts` tells whether a moment that began with a fault of these still goes on."""
        super().__init__(world, brokers, kinds, mean_s, in_sync=lambda: True, leading=lambda: (), may_be_emptied=())
        self._brokers = dict(brokers)
        self._controllers = list(controllers)
        self._places = list(places)
        self._client = client
        self._lasts = lasts
        self._handlers |= {IN_TURN: self._in_turn, APART: self._apart, UNHEARD: self._unheard}

    def _shuffled(self) -> list[int]:
        return self._rng.sample(list(self._brokers), len(self._brokers))

    async def _in_turn(self) -> None:
        rng, network = self._rng, self._world.network
        operator = self._client("operator")
        one, other, third = self._shuffled()
        hosts = {node: machine.host for node, machine in self._brokers.items()}
        await self._hand_over(operator, [one, other, third])
        await sleep(rng.uniform(*LEADS_S))
        network.partition(hosts[one], hosts[other])
        for _ in range(rng.randint(*TURNS)):
            await sleep(rng.uniform(*LEADS_S))
            one, other = other, one
            await self._hand_over(operator, [one, other, third])
        await sleep(rng.uniform(*LEADS_S))
        one, other = other, one
        network.reconnect(hosts[one], hosts[other])  # before it follows: who connects while it is cut off waits long
        if rng.random() < THIRD:
            network.partition(hosts[one], hosts[third])
        await self._hand_over(operator, [one, other, third])
        await sleep(rng.uniform(*LEADS_S))
        network.reconnect(hosts[one], hosts[third])

    async def _hand_over(self, operator: SimClient, replicas: list[int]) -> None:
        """The first of the replicas, which are all of them, leads."""
        topics: dict[str, list[int]] = {}
        for topic, index in self._places:
            topics.setdefault(topic, []).append(index)
        ordered = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[ReassignablePartition(partition_index=each, replicas=replicas) for each in indexes],
                )
                for name, indexes in topics.items()
            ],
        )
        elected = ElectLeadersRequest(
            election_type=PREFERRED,
            topic_partitions=[TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()],
            timeout_ms=TIMEOUT_MS,
        )
        try:
            await operator.ask(ordered, AlterPartitionReassignmentsResponse)
            await operator.ask(elected, ElectLeadersResponse)
        except ClientError:
            pass  # the same one leads on

    async def _apart(self) -> None:
        """Two brokers do not reach each other; and what a moment makes of it has its time."""
        one, other = self._some(2)
        self._world.network.partition(one.host, other.host)
        await sleep(self._rng.uniform(*APART_S))
        await self._wait()
        self._world.network.reconnect(one.host, other.host)
        await sleep(BACK_S)
        await self._wait()

    async def _wait(self) -> None:
        while self._lasts():  # noqa: ASYNC110
            await sleep(LOOK_S)

    async def _unheard(self) -> None:
        """A leader does not reach the controllers, nor one of its followers, and the other one follows it."""
        leader, follower = self._some(2)
        hosts = [*self._controllers, follower.host]
        await self._world.network.cut_off_for(self._rng.uniform(*UNHEARD_S), leader.host, hosts)
        await sleep(BACK_S)
