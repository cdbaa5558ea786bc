"""The producers and readers of a run: they start together, and must make progress without faults."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.sim.workloads.producing import TIMEOUT_MS, IdempotentProducer, PlainProducer
from headrace.sim.workloads.reading import Reader, read_whole

if TYPE_CHECKING:
    from headrace.sim.checkers.history import History, Place
    from headrace.sim.client import SimClient
    from headrace.sim.world import World

PROGRESS: Final = 3
"""Batches that each producer must get confirmed once nothing is broken."""
PATIENCE_S: Final = 3.0
"""Far more than what a reader of these runs lets a fetch wait for."""


class Crowd:
    """The producers and readers of a run.

    `new_client` makes a client of a kind; `places` are known when the crowd begins.
    """

    def __init__(
        self, world: World, history: History, places: Sequence[Place], new_client: Callable[[str], SimClient]
    ) -> None:
        self._world = world
        self._rng = world.rng("crowd")
        self._timeouts_ms: Sequence[int] = ()
        self._history = history
        self._places = places
        self._new_client = new_client
        self._producers: list[PlainProducer | IdempotentProducer] = []
        self._readers: list[Reader] = []

    def start(
        self,
        *,
        plain: int,
        idempotent: int,
        acks: tuple[int, ...] = PlainProducer.acks,
        timeouts_ms: Sequence[int] = (TIMEOUT_MS,),
    ) -> None:
        """So many producers of each kind, and a reader of each place; `acks` are those of the plain ones. Of
        `timeouts_ms` each producer has one."""
        self._timeouts_ms = timeouts_ms
        for _ in range(plain):
            producer = PlainProducer(self._new_client("plain"), self._history, self._places)
            producer.acks = acks
            self._begin(producer)
        for _ in range(idempotent):
            self._begin(IdempotentProducer(self._new_client("idempotent"), self._history, self._places))
        for place in self._places:
            reader = Reader(self._new_client("reader"), self._history, place)
            self._readers.append(reader)
            reader.client.owner.spawn(reader.run())

    def _begin(self, producer: PlainProducer | IdempotentProducer) -> None:
        self._producers.append(producer)
        producer.timeout_ms = self._rng.choice(self._timeouts_ms)
        producer.client.owner.spawn(producer.run())

    def expectation(self) -> Callable[[], list[str]]:
        """From now on each gets on: what is returned says of which that is not so yet."""
        wanted = [(producer, producer.acknowledged + PROGRESS) for producer in self._producers]
        ends = [(reader, self._history.end(reader.place)) for reader in self._readers]

        def late() -> list[str]:
            waiting = [(each.client.host, count) for each, count in wanted if each.acknowledged < count]
            behind = [(each.client.host, each.offset, end) for each, end in ends if each.offset < end]
            unconfirmed = [f"{host} gets nothing confirmed" for host, _ in waiting]
            return unconfirmed + [f"{host} is at {offset}, not at {end}" for host, offset, end in behind]

        return late

    async def look_at_answers(self) -> None:
        """Nobody waits longer than he asked for: a fetch that finds nothing is answered all the same."""
        await sleep(2 * PATIENCE_S)
        for reader in self._readers:
            waits_s = reader.client.waits_s
            self._world.demand(waits_s < PATIENCE_S, f"{reader.client.host} has waited {waits_s:.1f} s for an answer")

    async def read_all(self, when: str) -> None:
        """Reads every place as a whole, while nobody writes."""
        self._world.trace.note("read all", when)
        client = self._new_client("judge")
        for place in self._places:
            await read_whole(client, self._history, place)
        client.leave()
        await sleep(1.0)
