"""A cluster whose clients use the asyncio client of `headrace.client` as applications do: idempotent and transactional
producers, and fetchers. Brokers, links and disks fail meanwhile.

Checked as in `cluster_run`: every acknowledged record is there once and in order, and readers see nothing else. At the
end every producer gets an acknowledgement, and every fetcher reads up to the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.sim.cluster_options import Options, undisturbed
from headrace.sim.cluster_run import SETTLE_S
from headrace.sim.replica_faults import APART, IN_TURN
from headrace.sim.steered_run import SteeredRun
from headrace.sim.workloads.async_clients import RecordFetcher, RecordProducer, TransactionProducer

if TYPE_CHECKING:
    from headrace.sim.run import Result

PRODUCERS_MAX: Final = 2
STEERED: Final = 0.5
"""The share of runs in which leaders change all the time, and nothing else fails."""
PROGRESS: Final = 3
"""Batches or transactions that each producer must get confirmed once nothing is broken."""


def _draw(rng: random.Random) -> Options:
    drawn = Options.draw(rng)
    if rng.random() < STEERED:
        drawn = replace(undisturbed(drawn), mean_s=0.5, faults_s=rng.uniform(7.0, 12.0))
    return replace(
        drawn,
        plain=0,
        idempotent=0,
        members=0,
        topics_come_and_go=False,
        is_reborn=False,
        transactors=0,
        copiers=0,
    )


class ClientsRun(SteeredRun):
    """A run of a cluster that the asyncio client uses."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, say, _draw(random.Random(f"{seed}/clients")), apart=True)
        rng = self.world.rng("asyncio clients")
        if not self.options.kinds:
            self._steer(rng.choice(([IN_TURN], [APART], [IN_TURN, APART])))
        self._records = rng.randint(1, PRODUCERS_MAX)
        self._transactional = rng.randint(0, PRODUCERS_MAX)
        self._producers: list[RecordProducer | TransactionProducer] = []
        self._fetchers: list[RecordFetcher] = []

    def _start_clients(self) -> None:
        super()._start_clients()
        for place in self._places:
            self.history.track(place, has_markers=self._transactional > 0)
        for _ in range(self._records):
            self._produce(RecordProducer(self._client("asyncio"), self.hosts, self.history, self._places))
        for _ in range(self._transactional):
            self._produce(TransactionProducer(self._client("transactional"), self.hosts, self.history, self._places))
        fetcher = RecordFetcher(self._client("fetcher"), self.hosts, self.history, self._places)
        self._fetchers.append(fetcher)
        fetcher.client.owner.spawn(fetcher.run())

    def _produce(self, producer: RecordProducer | TransactionProducer) -> None:
        self._producers.append(producer)
        producer.client.owner.spawn(producer.run())

    async def _end(self) -> None:
        """Lets every transaction end first."""
        transactional = [each for each in self._producers if isinstance(each, TransactionProducer)]
        for producer in transactional:
            producer.is_last = True
        await self._wait_for(
            lambda: [f"{each.client.host} has a transaction" for each in transactional if not each.has_ended],
            f"{SETTLE_S:.0f} s after it was to end",
        )
        await super()._end()

    async def _settle(self, *, is_whole: bool = True) -> None:
        """Waits until the clients get on too."""
        await super()._settle(is_whole=is_whole)
        wanted = {producer: producer.acknowledged + PROGRESS for producer in self._producers}
        ends = {place: self.history.end(place) for place in self._places}

        def late() -> list[str]:
            waiting = [each.client.host for each, count in wanted.items() if each.acknowledged < count]
            behind = [
                f"{each.client.host} is at {each.positions[place]} of {place}, not at {end}"
                for each in self._fetchers
                for place, end in ends.items()
                if each.positions[place] < end
            ]
            return [f"{host} gets nothing confirmed" for host in waiting] + behind

        await self._wait_for(late, f"{SETTLE_S:.0f} s after the last fault")


def run_clients_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """Runs a cluster that the asyncio client writes to and reads from, once."""
    return ClientsRun(seed, say).run()
