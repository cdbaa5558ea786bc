"""Steered faults: two candidates in one epoch.

When the first has votes, it dies or one of its voters does, and then the second's requests arrive: no voter may vote
twice in an epoch, whatever it has lost.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.raft.machine import Raft
from headrace.sim.moments import MomentFaults, after_each, before_each

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.8
"""How often a candidate is met."""
LASTS_S: Final = 3.0
"""How long the first waits for a second: longer than an election."""
LEADS_S: Final = (0.0, 0.005)
"""How long after the first follower somebody ends: it may have what the winner appended, or not."""
LATE_S: Final = (0.0, 0.3)
"""How much later the second is heard."""


class Duels(MomentFaults):
    """Makes two candidates in one epoch."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine]) -> None:
        super().__init__(world, "duels")
        self._machines = machines
        self._hosts = [machine.host for machine in machines.values()]
        self._epoch: int | None = None
        """The epoch for two candidates; None while there is none."""
        self._first = self._second = 0

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [
            before_each(Raft, "become_candidate", self._becomes_candidate),
            after_each(Raft, "become_follower", self._followed),
        ]

    def _cut_off(self, node: int) -> None:
        self._world.network.cut_off(self._machines[node].host, self._hosts)

    def _rejoin(self, node: int) -> None:
        self._world.network.rejoin(self._machines[node].host, self._hosts)

    def _becomes_candidate(self, raft: Raft) -> None:
        node, epoch = raft.me.id, raft.epoch + 1
        if not self._is_on:
            return
        if self._epoch is None:
            if self._rng.random() < CHANCE and self._world.strikes("duel", self._machines[node].host):
                self._epoch, self._first, self._second = epoch, node, 0
                self._cut_off(node)  # before anybody is asked
                self._owner.spawn(self._give_up(epoch))
        elif epoch == self._epoch and node != self._first and not self._second:
            self._second = node
            self._rejoin(self._first)
            self._cut_off(node)  # of the first it must not hear either

    def _followed(self, raft: Raft, epoch: int, leader_id: int) -> None:
        if self._is_on and self._second and epoch == self._epoch and leader_id == self._first:
            ends = [self._machines[node] for node in (leader_id, raft.me.id) if self._rng.random() < 0.5]
            if self._rng.random() < 0.5:
                self._cut_off(leader_id)  # before it is asked for what it has appended
            self._owner.spawn(self._go_on(ends or [self._machines[leader_id]], leader_id, self._second))
            self._epoch = None

    async def _give_up(self, epoch: int) -> None:
        await sleep(LASTS_S)
        if self._epoch == epoch:
            self._epoch = None
            for node in (self._first, self._second):
                if node:
                    self._rejoin(node)

    async def _go_on(self, ends: list[AnyMachine], first: int, second: int) -> None:
        await sleep(self._rng.uniform(*LEADS_S))
        for machine in ends:
            machine.kill()
        self._rejoin(first)
        self._cut_off(second)
        await sleep(self._rng.uniform(*LATE_S))
        self._rejoin(second)
