"""Steered faults: the controllers add a replica to an ISR, and its leader does not notice: their answer and their
metadata are lost, and the replica no longer fetches.

The new member must have everything that the leader may commit meanwhile: it may be elected.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.replicas.partition import PartitionState
from headrace.sim.moments import MomentFaults, after_each

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.6
"""How often a join is met."""
LASTS_S: Final = (1.5, 5.0)


class LostAnswers(MomentFaults):
    """Loses the controllers' answers to in-sync set changes."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine]) -> None:
        super().__init__(world, "lost answers")
        self._machines = machines
        self._lasts = False

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [after_each(PartitionState, "_ask_for", self._asked)]

    def _asked(self, state: PartitionState, isr: tuple[int, ...]) -> None:
        joining = [each for each in isr if each not in state.isr]
        if not joining or not self._is_on or self._lasts or self._rng.random() > CHANCE:
            return
        controller = self._controller()
        if controller is None or controller is self._machines[state.node_id]:
            return
        leader = self._machines[state.node_id]
        if not self._world.strikes("lost answer", leader.host):
            return
        self._lasts = True
        silent = {controller.host: None, **{self._machines[each].host: None for each in joining}}
        for host in silent:
            self._world.network.cut_one_way(host, leader.host)
        self._owner.spawn(self._heal(list(silent), leader.host))

    async def _heal(self, silent: list[str], host: str) -> None:
        await sleep(self._rng.uniform(*LASTS_S))
        for each in silent:
            self._world.network.reconnect(each, host)
        self._lasts = False

    def _controller(self) -> AnyMachine | None:
        """The machine whose node decides, if one does."""
        running = [each for each in self._machines.values() if each.broker is not None]
        return next((each for each in running if each.broker is not None and each.broker.quorum.decides), None)
