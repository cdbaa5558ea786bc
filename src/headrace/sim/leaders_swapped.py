"""Steered faults: of three controllers one is cut off, in turn with the leader: at its election, when no other has its
new entries, or when a follower reports its log end. Committed records survive under each leader."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.raft.leader import Leader
from headrace.raft.machine import Raft
from headrace.sim.moments import MomentFaults, after_each

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE_AT_ELECTION: Final = 0.5
CHANCE_AT_ANSWER: Final = 0.2
"""When a leader hears what a follower has, and nothing of its epoch was committed before."""
CHANCE_AT_COMMIT: Final = 0.02


class LeadersSwapped(MomentFaults):
    """Keeps one of three controllers away, and swaps it with the leader."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine]) -> None:
        super().__init__(world, "leaders swapped")
        self._machines = machines
        self._away: str | None = None

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [after_each(Raft, "become_leader", self._elected), after_each(Leader, "advance", self._advances)]

    def _elected(self, raft: Raft, *_: object) -> None:
        if self._is_on and self._rng.random() < CHANCE_AT_ELECTION:
            self._swap(raft)

    def _advances(self, _: Leader, raft: Raft) -> None:
        if self._is_on:
            chance = CHANCE_AT_COMMIT if raft.is_active else CHANCE_AT_ANSWER
            if self._rng.random() < chance:
                self._swap(raft)

    def _swap(self, raft: Raft) -> None:
        """The leader goes before anybody hears of it, and who was away comes back."""
        host = self._machines[raft.me.id].host
        if host == self._away or not self._world.strikes("leader swapped", host):
            return
        hosts = [machine.host for machine in self._machines.values()]
        if self._away is not None:
            self._world.network.rejoin(self._away, hosts)
        self._world.network.cut_off(host, hosts)
        self._away = host
