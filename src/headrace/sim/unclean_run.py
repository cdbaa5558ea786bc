"""A cluster with a topic that allows unclean leaders, beside one that does not: see `checkers/loose.py`. The
controllers are separate nodes, so that every broker can be down."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.sim.checkers.loose import LooseHistory, look_at_epochs
from headrace.sim.cluster_faults import ONE_LOSES
from headrace.sim.cluster_options import SNAPSHOT_BYTES_RARE, Options
from headrace.sim.cluster_run import LOOK_S, SETTLE_S, ClusterRun
from headrace.sim.run import Result
from headrace.sim.unclean_faults import UncleanFaults
from headrace.sim.workloads.loose_reading import LooseReader
from headrace.sim.workloads.producing import TIMEOUTS_MS, IdempotentProducer, PlainProducer
from headrace.sim.workloads.reading import read_whole
from headrace.sim.workloads.topics import make_topic
from headrace.sim.world import World

LOOSE: Final = "loose"
PLACES: Final = [(LOOSE, 0), (LOOSE, 1)]
SOONER_S: Final = 0.5
"""Than other faults end these."""
PROGRESS: Final = 3
"""Batches that each producer must get confirmed once nothing is broken."""


def draw(world: World) -> Options:
    """A cluster with little else going on than that brokers go and come back."""
    rng = world.rng("options")
    drawn = Options.draw(rng)
    return replace(
        drawn,
        nodes=3,
        cluster_kinds=tuple(kind for kind in drawn.cluster_kinds if kind not in (ONE_LOSES, "leave in turn")),
        members=0,
        topics_come_and_go=False,
        is_reborn=False,
        is_administered=False,
        calm_trouble="",
        transactors=0,
        copiers=0,
        mean_s=rng.uniform(3.0, 12.0),
        faults_s=rng.uniform(8.0, 16.0),
        snapshot_bytes=SNAPSHOT_BYTES_RARE,
    )


class UncleanRun(ClusterRun):
    """A run with a topic of unclean elections."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        drawing = World(seed)
        super().__init__(seed, say, draw(drawing), apart=True)
        drawing.end()
        self.loose = LooseHistory(self.world)
        self.logs.loose = self.replication.loose = frozenset({LOOSE})
        self.readers: list[LooseReader] = []
        self._producers: list[PlainProducer | IdempotentProducer] = []
        self._chance = self.world.rng("loose")

    def _start_clients(self) -> None:
        super()._start_clients()
        self._nemesis = self.world.loop.create_task(self._begin())

    async def _begin(self) -> None:
        configs = {
            "unclean.leader.election.enable": "true",
            "min.insync.replicas": self._chance.choice(("1", "1", "2")),
        }
        over = self.world.loop.time() + self.options.faults_s - SOONER_S
        await make_topic(self._client("admin"), LOOSE, len(PLACES), configs, replicas=3)
        for place in PLACES:
            self.loose.track(place)
            reader = LooseReader(self._client("loose-reader"), self.loose, place)
            self.readers.append(reader)
            reader.client.owner.spawn(reader.run())
        plain = PlainProducer(self._client("loose-plain"), self.loose, PLACES)
        self._producers = [plain, IdempotentProducer(self._client("loose-idempotent"), self.loose, PLACES)]
        for producer in self._producers:
            producer.timeout_ms = self._chance.choice(TIMEOUTS_MS)
            producer.client.owner.spawn(producer.run())
        faults = UncleanFaults(self.world, self.machines, self._client("elector"), PLACES)
        task = self.world.loop.create_task(faults.run())
        await sleep(max(over - self.world.loop.time(), 0.0))
        task.cancel()
        faults.heal()

    async def _settle(self, *, is_whole: bool = True) -> None:
        await self._nemesis
        wanted = [(producer, producer.acknowledged + PROGRESS) for producer in self._producers]
        await super()._settle(is_whole=is_whole)
        until = self.world.loop.time() + SETTLE_S
        while late := [each.client.host for each, count in wanted if each.acknowledged < count]:
            if self.world.loop.time() > until:
                self.world.object(f"{SETTLE_S:.0f} s after the last fault {late} get nothing confirmed")
            if self.world.objection is not None:
                return
            await sleep(LOOK_S)

    async def _end(self) -> None:
        for producer in self._producers:
            self._clients.pop(producer.client.host).die()
        await sleep(5.0)  # each reader gets to the end
        judge = self._client("judge")
        for reader in self.readers:
            await read_whole(judge, self.loose, reader.place)
            found = self.loose.whole.get(reader.place, {})
            text = f"{reader.place} ends at {len(found)}, and a reader that goes by epochs is at {reader.offset}"
            self.world.demand(reader.offset == len(found), text)
            for late in reader.differences(found):
                self.world.object(late)
        for node, machine in self.machines.items():
            for place in PLACES:
                if machine.broker is not None and (replica := machine.broker.replicas.held(place)) is not None:
                    look_at_epochs(self.world, node, replica, machine.disk)
        await super()._end()

    def _look(self) -> None:
        super()._look()
        for broker in self._up():
            for place in PLACES:
                replica = broker.replicas.held(place)
                if replica is not None and not replica.is_held:
                    mark, end = replica.high_watermark, replica.log.end_offset
                    text = f"{place} is committed to {mark} on {broker.node_id}, and ends at {end}"
                    self.world.demand(mark <= end, text)


def run_unclean_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster with a topic of which leaders may lack what was acknowledged."""
    return UncleanRun(seed, say).run()
