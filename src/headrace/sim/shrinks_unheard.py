"""Steered faults: a follower leaves the ISR, so that its leader commits records that it lacks; before the other
follower learns of the new high watermark, the leader is cut off. The other follower leads then, with an old high
watermark.

A replica that joins its ISR must have everything up to the start of its epoch: that may be committed.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.replicas.partition import PartitionState, Role
from headrace.sim.moments import MomentFaults, after_each

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

LASTS_S: Final = (4.5, 6.0)
"""Longer than a broker's session."""
HELD_UP_S: Final = 0.3
"""How long one that joins does not get what it lacks."""


class ShrinksUnheard(MomentFaults):
    """Isolates a leader right after its in-sync set has shrunk."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine]) -> None:
        """`machines` are all nodes. That followers fall out is the business of others."""
        super().__init__(world, "shrinks unheard")
        self._machines = machines
        self.lasts = False
        """Whether a leader is cut off."""
        self._isr: dict[PartitionState, tuple[int, ...]] = {}
        """With which a leader counted last."""

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [
            after_each(PartitionState, "_commit", self._committed),
            after_each(PartitionState, "_ask_for", self._asked),
        ]

    def _committed(self, state: PartitionState, *_: object) -> None:
        if state.role is not Role.LEADER:
            return
        before, self._isr[state] = self._isr.get(state, ()), state.isr
        is_met = self._is_on and not self.lasts and set(state.isr) < set(before)
        leader = self._machines[state.node_id].host
        if is_met and self._world.strikes("shrink unheard", leader):
            self.lasts = True
            others = [machine.host for machine in self._machines.values() if machine.host != leader]
            self._world.network.cut_off(leader, others)
            self._owner.spawn(self._rejoin(leader, others))

    async def _rejoin(self, leader: str, others: list[str]) -> None:
        await sleep(self._rng.uniform(*LASTS_S))
        self._world.network.rejoin(leader, others)
        self.lasts = False

    def _asked(self, state: PartitionState, isr: tuple[int, ...]) -> None:
        if self._is_on and self.lasts:
            leader = self._machines[state.node_id].host
            for joining in [self._machines[each].host for each in isr if each not in state.isr]:
                self._world.network.cut_one_way(leader, joining)  # before it is answered
                self._owner.spawn(self._reconnect(leader, joining))

    async def _reconnect(self, leader: str, joining: str) -> None:
        await sleep(HELD_UP_S)
        self._world.network.reconnect(leader, joining)
