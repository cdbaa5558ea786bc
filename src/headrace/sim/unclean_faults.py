"""Unclean elections: brokers stop one after the other, and return in such an order that the first one lacks records of
the last; or an operator asks for such a leader."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.sim.checkers.history import Place
    from headrace.sim.client import SimClient
    from headrace.sim.machine import Machine
    from headrace.sim.world import World

UNCLEAN: Final = 1
"""The type of election that takes any replica that is there."""
ASKED: Final = 0.5
"""How often an operator asks for it, while a broker is alone."""


class UncleanFaults:
    """One after the other."""

    def __init__(
        self, world: World, machines: Mapping[int, Machine[Broker]], client: SimClient, places: Sequence[Place]
    ) -> None:
        """`client` is the operator's, `places` those whose leaders may lack something."""
        self._world = world
        self._machines = list(machines.values())
        self._client = client
        self._places = list(places)
        self._rng = world.rng("unclean")

    async def run(self) -> None:
        """Until it is cancelled, when it is enough."""
        rng = self._rng
        while True:
            await sleep(rng.uniform(0.5, 4.0))
            if not self._world.strikes("one is left behind"):
                continue
            behind, *others = rng.sample(self._machines, len(self._machines))
            behind.take_away()
            await sleep(rng.uniform(0.3, 3.0))
            for each in others:
                each.take_away()
                await sleep(rng.choice((0.0, rng.uniform(0.0, 3.0))))
            behind.bring_back()
            await sleep(rng.uniform(1.0, 4.0))
            if rng.random() < ASKED:
                await self._ask()
            for each in others:
                each.bring_back()
                await sleep(rng.choice((0.0, rng.uniform(0.0, 2.0))))

    def heal(self) -> None:
        """Every broker comes back."""
        for machine in self._machines:
            machine.bring_back()

    async def _ask(self) -> None:
        names = sorted({name for name, _ in self._places})
        wanted = [
            TopicPartitions(topic=name, partitions=[index for topic, index in self._places if topic == name])
            for name in names
        ]
        request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=wanted, timeout_ms=10_000)
        try:
            await self._client.ask(request, ElectLeadersResponse)
        except ClientError:
            return
