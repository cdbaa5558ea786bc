"""A cluster of brokers with two log directories each, one of which fails now and then: see `directory_faults.py`.

No acknowledged record is lost. If nothing else is broken, other replicas lead the affected partitions soon, and all
clients make progress; once the disk is replaced and the broker restarted, its replicas return.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.broker.storage.storage_format import is_formatted
from headrace.sim.checkers.directories import Directories
from headrace.sim.cluster_faults import ONE_LOSES
from headrace.sim.cluster_options import SNAPSHOT_BYTES_RARE, Options
from headrace.sim.cluster_run import ClusterRun
from headrace.sim.directory_faults import DirectoryFaults, Failure
from headrace.sim.run import Result
from headrace.sim.workloads.moving import Mover
from headrace.sim.world import World

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.sim.node import SimNode

DIRECTORIES: Final = ("/data/a", "/data/b")
"""The metadata log is in the first, and the second fails."""
ALWAYS: Final = "a directory fails"
OF_THE_DISK: Final = ("full disk", "disk error", "slow disk")
LEFT_S: Final = 5.0
"""How soon others lead what lay in a directory that failed, where nothing else is broken."""


def draw(world: World) -> Options:
    """A cluster with little else going on than that disks fail, and machines now and then."""
    rng = world.rng("options")
    drawn = Options.draw(rng)
    return replace(
        drawn,
        nodes=3,
        kinds=tuple(kind for kind in drawn.kinds if kind not in OF_THE_DISK),
        cluster_kinds=tuple(kind for kind in drawn.cluster_kinds if kind != ONE_LOSES),
        members=rng.choice((0, 0, 2)),
        topics_come_and_go=False,
        is_reborn=False,
        is_administered=rng.random() < 0.3,
        calm_trouble=ALWAYS,
        transactors=0,
        copiers=0,
        mean_s=rng.uniform(3.0, 12.0),
        faults_s=rng.uniform(6.0, 14.0),
        snapshot_bytes=SNAPSHOT_BYTES_RARE,
    )


class FailingRun(ClusterRun):
    """A run of brokers whose log directories fail."""

    directories = DIRECTORIES

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        drawing = World(seed)
        super().__init__(seed, say, draw(drawing))
        drawing.end()
        self._chance = self.world.rng("failing")
        mean_s = self._chance.uniform(1.0, 5.0)
        self.directory_faults = DirectoryFaults(
            self.world, self.machines, DIRECTORIES[1], mean_s, lambda: self.quorum.newest
        )
        self.checker = Directories(self.world, self._up, lambda: self.quorum.newest)
        self.left = 0
        """Partitions of which another replica came to lead where nothing else was broken."""

    def _format(self, config: BrokerConfig, node: SimNode) -> None:
        """Once: a disk that is replaced later is no operator's business."""
        if not is_formatted(node.disk, config.metadata_log_dir):
            super()._format(config, node)

    def _look(self) -> None:
        super()._look()
        self.checker.look()

    def _start_clients(self) -> None:
        super()._start_clients()
        if self._chance.random() < 0.4:
            mover = Mover(self._client("mover"), self._places, DIRECTORIES)
            mover.client.owner.spawn(mover.run())
        self._nemesis = self.world.loop.create_task(self._fail())

    async def _fail(self) -> None:
        faults = self.world.loop.create_task(self.directory_faults.run())
        await sleep(self.options.faults_s)
        faults.cancel()
        await self.directory_faults.end_all()

    async def _settle(self, *, is_whole: bool = True) -> None:
        await self._nemesis
        await super()._settle(is_whole=is_whole)
        if is_whole:
            await self._wait_for(self.checker.differences, "120 s after the last fault")

    async def _trouble(self) -> None:
        for name in [each for each in self._clients if each.startswith("mover")]:
            self._clients.pop(name).die()
        await self._settle()
        brokers = {node: await machine.ready() for node, machine in self.machines.items()}
        lies_there = {node: self.checker.lie_in(broker, DIRECTORIES[1]) for node, broker in brokers.items()}
        node = self._chance.choice([each for each, keys in lies_there.items() if keys] or list(brokers))
        failure = self._chance.choice([each for each in Failure if each is not Failure.FULL])
        self.world.trace.note("directory", node, failure.value)
        self.directory_faults.fail(node, failure)
        await self._wait_for(lambda: self.checker.not_left(node, lies_there[node]), "after a directory failed", LEFT_S)
        self.left += len(lies_there[node])
        await super()._settle(is_whole=False)
        await self.directory_faults.end(node)
        await self.machines[node].ready()


def run_failing_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster of which log directories fail."""
    return FailingRun(seed, say).run()
