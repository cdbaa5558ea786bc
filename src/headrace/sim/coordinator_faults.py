"""Transaction coordinators that fail during the end of a transaction: when it is decided, when its markers are sent, or
when the last of them is written.

One dies at once or soon; one freezes until another coordinator has ended the transaction, and then sends what it was
about to send; the last messages of one arrive late and out of order, before it dies.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.broker.coordinators.marker_sender import MarkerSender
from headrace.sim.loop import PROCESS
from headrace.sim.moments import MomentFaults, after_each, before_each
from headrace.transactions.shard import TransactionShard

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.1
"""How often a moment is met, if none was met for REST_S."""
REST_S: Final = 0.5
SOON_S: Final = 0.005
PAUSE_S: Final = (3.5, 7.0)
"""Longer than a broker's session: the controllers elect another leader meanwhile."""
LATE_S: Final = 0.5


class CoordinatorFaults(MomentFaults):
    """Faults of transaction coordinators in the middle of an end."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine], *, may_die: bool) -> None:
        super().__init__(world, "faults of coordinators")
        self._machines = {machine.host: machine for machine in machines.values()}
        self._may_die = may_die
        self._rests_until = 0.0

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [
            after_each(TransactionShard, "end", self._met),
            after_each(TransactionShard, "end_group", self._met),
            before_each(MarkerSender, "send", self._met),
            after_each(TransactionShard, "marked", self._met),
        ]

    def _met(self, *_: object) -> None:
        now = self._world.loop.time()
        if not self._is_on or now < self._rests_until or self._rng.random() > CHANCE:
            return
        machine = self._machines.get(getattr(PROCESS.get(), "host", ""))
        if machine is None:
            return
        self._rests_until = now + REST_S + self._rng.expovariate(1.0)
        kind = self._rng.choice(("dies", "speaks late", "stands still") if self._may_die else ("stands still",))
        if not self._world.strikes(f"a coordinator {kind}", machine.host):
            return
        work = {"dies": self._dies, "speaks late": self._speaks_late, "stands still": self._freezes}[kind]
        if kind == "stands still":
            machine.pause()  # what it is about to do it does when it goes on
        self._owner.spawn(work(machine))

    async def _dies(self, machine: AnyMachine) -> None:
        await sleep(self._rng.choice((0.0, self._rng.uniform(0.0, SOON_S))))
        machine.kill()

    async def _speaks_late(self, machine: AnyMachine) -> None:
        others = [host for host in self._machines if host != machine.host]
        for other in others:
            self._world.network.slow_down(machine.host, other, (0.0, LATE_S))
        await sleep(self._rng.uniform(0.0, LATE_S))
        machine.kill()
        self._world.network.rejoin(machine.host, others)

    async def _freezes(self, machine: AnyMachine) -> None:
        await sleep(self._rng.uniform(*PAUSE_S))
        machine.resume()
