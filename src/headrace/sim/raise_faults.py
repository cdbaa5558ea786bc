"""Steered faults: nodes fail while kraft.version is raised: the active controller when the records are in its log only,
and others when they apply them.

One dies at once or soon, with its machine if power may fail; one freezes until another leads, and resumes; one is cut
off from all others.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.driver import QuorumDriver
from headrace.raft.machine import Raft
from headrace.sim.loop import PROCESS
from headrace.sim.moments import MomentFaults, after_each

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

LEADS: Final = 0.8
"""How often the controller fails that raises it."""
FOLLOWS: Final = 0.3
"""How often one fails that reads of it in its log."""
FAILURES_MAX: Final = 4
SOON_S: Final = 0.02
LASTS_S: Final = (3.5, 7.0)
"""Longer than the others wait for a leader."""


class RaiseFaults(MomentFaults):
    """Faults of nodes while kraft.version is raised."""

    def __init__(self, world: World, machines: Mapping[int, AnyMachine], *, may_die: bool, power: bool) -> None:
        """`may_die`: an end of a process loses nothing that was acknowledged; `power`: that of a machine neither."""
        super().__init__(world, "faults of a raise")
        self._machines = {machine.host: machine for machine in machines.values()}
        deadly = ("dies", "dies", *(("loses power", "loses power") if power else ()))
        self._failures = 0
        self._kinds = ("stands still", "is cut off", *(deadly if may_die else ()))

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [after_each(QuorumDriver, "_raise_version", self._raised), after_each(Raft, "append", self._appended)]

    def _raised(self, *_: object) -> None:
        self._met(LEADS)

    def _appended(self, raft: Raft, *_: object) -> None:
        if self._is_on and not raft.leads and raft.kraft_version > 0 and raft.sets.newest_offset >= raft.high_watermark:
            self._met(FOLLOWS)

    def _met(self, chance: float) -> None:
        if not self._is_on or self._failures >= FAILURES_MAX or self._rng.random() > chance:
            return
        machine = self._machines.get(getattr(PROCESS.get(), "host", ""))
        if machine is None:
            return
        kind = self._rng.choice(self._kinds)
        if not self._world.strikes(f"who raises {kind}", machine.host):
            return
        self._failures += 1
        work = {"stands still": self._freezes, "is cut off": self._is_cut_off}.get(kind, self._dies)
        if kind == "stands still":
            machine.pause()  # what it is about to do it does when it goes on
        self._owner.spawn(work(machine, kind))

    async def _dies(self, machine: AnyMachine, kind: str) -> None:
        await sleep(self._rng.choice((0.0, self._rng.uniform(0.0, SOON_S))))
        machine.kill(power=kind == "loses power")

    async def _freezes(self, machine: AnyMachine, _: str) -> None:
        await sleep(self._rng.uniform(*LASTS_S))
        machine.resume()

    async def _is_cut_off(self, machine: AnyMachine, _: str) -> None:
        await self._world.network.cut_off_for(self._rng.uniform(*LASTS_S), machine.host, self._machines)
