"""A cluster whose operators delete records during writes, failures and elections: see `checkers/deletions.py`. At the
end all deletions are complete, and all replicas have the same start. In some seeds transactions are open meanwhile, see
`workloads/doomed.py`: at the end none is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.sim.checkers.deletions import Deletions
from headrace.sim.cluster_options import SNAPSHOT_BYTES_RARE, Options
from headrace.sim.cluster_run import SETTLE_S, ClusterRun
from headrace.sim.moments import Listener
from headrace.sim.run import Result
from headrace.sim.workloads.deleting import Deleter
from headrace.sim.workloads.doomed import Doomed
from headrace.sim.workloads.isolation import ABORTED_S
from headrace.sim.world import World

PAUSES: Final = (2, 6, 15)
AFTER_DELETIONS: Final = f"{SETTLE_S:.0f} s after the last deletion"
TRANSACTS: Final = 0.4
"""How often there are transactions."""


def draw(world: World) -> Options:
    """A cluster with little else going on than that records are written, deleted and lost."""
    rng = world.rng("options")
    drawn = Options.draw(rng)
    return replace(
        drawn,
        nodes=3,
        members=0,
        topics_come_and_go=False,
        is_reborn=False,
        is_administered=rng.random() < 0.5,
        calm_trouble="",
        transactors=0,
        copiers=0,
        mean_s=rng.uniform(1.0, 6.0),
        faults_s=rng.uniform(5.0, 12.0),
        snapshot_bytes=SNAPSHOT_BYTES_RARE,
    )


class DeletingRun(ClusterRun):
    """A run in which operators delete records."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        drawing = World(seed)
        super().__init__(seed, say, draw(drawing))
        drawing.end()
        rng = self.world.rng("deleters")
        self._deleters, self._pause = rng.randint(1, 2), rng.choice(PAUSES)
        is_transactional = self.world.rng("transacts").random() < TRANSACTS
        self.doomed = Doomed(self._client) if is_transactional else None
        self.deletions = Deletions(self.world, self._places, self.machines, lambda: self.quorum.newest)

    def _listeners(self) -> list[Listener]:
        return [*super()._listeners(), self.deletions]

    def _look(self) -> None:
        super()._look()
        self.deletions.look()

    def _deleter(self) -> Deleter:
        return Deleter(self._client("deleter"), self.deletions, self.history, self._places, self._pause)

    def _start_clients(self) -> None:
        for place in self._places:
            self.history.track(place, trimmed=True)
        super()._start_clients()
        for _ in range(self._deleters):
            deleter = self._deleter()
            deleter.client.owner.spawn(deleter.run())
        if self.doomed is not None:
            self.doomed.begin()

    async def _settle(self, *, is_whole: bool = True) -> None:
        await super()._settle(is_whole=is_whole)
        if self.doomed is not None:
            self.doomed.calm_down()
            await self._wait_for(self.doomed.expectation(), AFTER_DELETIONS)
        last = self._deleter()
        await self._settle_task(last.client, last.delete_at_last(), "records cannot be deleted")

    async def _end(self) -> None:
        for name in [each for each in self._clients if each.startswith("deleter")]:
            self._clients.pop(name).die()
        await self._wait_for(self.deletions.differences, AFTER_DELETIONS)
        if self.doomed is not None:
            for name in [each for each in self._clients if each.startswith("transactor")]:
                self._clients.pop(name).die()
            await self.transactions.look_at_coordinators(self._client("judge"), self.world.loop.time() + ABORTED_S)
        await super()._end()


def run_deleting_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster of which records are deleted."""
    return DeletingRun(seed, say).run()
