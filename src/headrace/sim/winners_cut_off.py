"""Steered faults: a new active controller is cut off, and its voters restart: the others elect another one, without a
voter that votes twice in the same epoch."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.raft.machine import Raft
from headrace.sim.moments import MomentFaults, before_each

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.5
"""How often an election is met."""
LASTS_S: Final = (2.0, 8.0)
"""The others may need several elections."""


class WinnersCutOff(MomentFaults):
    """Isolates a controller that was just elected."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine]) -> None:
        super().__init__(world, "winners cut off")
        self._machines = machines
        self._lasts = False

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [before_each(Raft, "become_leader", self._elected)]

    def _elected(self, raft: Raft, granting: Sequence[int]) -> None:
        if not self._is_on or self._lasts or self._rng.random() > CHANCE:
            return
        winner = self._machines[raft.me.id]
        if not self._world.strikes("winner cut off", winner.host):
            return
        self._lasts = True
        others = [machine.host for machine in self._machines.values() if machine is not winner]
        self._world.network.cut_off(winner.host, others)  # before anybody hears that it leads
        voters = [self._machines[node] for node in granting if node != raft.me.id]
        self._owner.spawn(self._go_on(winner, others, voters))

    async def _go_on(self, winner: AnyMachine, others: list[str], voters: list[AnyMachine]) -> None:
        for voter in voters:
            voter.kill()
        await sleep(self._rng.uniform(*LASTS_S))
        self._world.network.rejoin(winner.host, others)
        self._lasts = False
