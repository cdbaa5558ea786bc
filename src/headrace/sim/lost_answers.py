"""The controllers take a replica into an in-sync set, and its leader does not hear of it: their answer is lost, their
metadata do not come, and the replica fetches no more.

What the leader may count as committed meanwhile, the one that joins must have: it may be elected.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headrace.replicas.partition import PartitionState
from headrace.sim.moments import after_each
from headrace.sim.owner import WorldOwner

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.6
"""How often a join is met."""
LASTS_S: Final = (1.5, 5.0)


class LostAnswers:
    """See the module."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine]) -> None:
        self._world = world
        self._machines = machines
        self._rng = world.rng("lost answers")
        self._owner = WorldOwner(world)
        self._is_on = False
        self._lasts = False
        self.count = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Meets joins inside the block, between `begin` and `end`."""
        with after_each(PartitionState, "_ask_for", self._asked):
            yield

    def begin(self) -> None:
        """From now on joins are met."""
        self._is_on = True

    def end(self) -> None:
        """No join is met any more. The network is healed by `Faults.heal`."""
        self._is_on = False
        self._owner.close()

    def _asked(self, state: PartitionState, isr: tuple[int, ...]) -> None:
        joining = [each for each in isr if each not in state.isr]
        if not joining or not self._is_on or self._lasts or self._rng.random() > CHANCE:
            return
        controller = self._controller()
        if controller is None or controller is self._machines[state.node_id]:
            return
        leader = self._machines[state.node_id]
        self._lasts = True
        self.count += 1
        self._world.trace.note("fault", "lost answer")
        silent = {controller.host: None, **{self._machines[each].host: None for each in joining}}
        for host in silent:
            self._world.network.cut_one_way(host, leader.host)
        self._owner.spawn(self._mend(list(silent), leader.host))

    async def _mend(self, silent: list[str], host: str) -> None:
        await sleep(self._rng.uniform(*LASTS_S))
        for each in silent:
            self._world.network.mend(each, host)
        self._lasts = False

    def _controller(self) -> AnyMachine | None:
        """The machine whose node decides, if one does."""
        running = [each for each in self._machines.values() if each.broker is not None]
        return next((each for each in running if each.broker is not None and each.broker.quorum.decides), None)
