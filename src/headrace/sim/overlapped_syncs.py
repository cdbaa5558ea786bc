"""Steered faults: a machine loses power soon after a sync during which the log has grown, or before the result of the
sync was delivered: later data are safe only after the next sync. The disk is slow then, so that the next sync takes
long.

If workers can be interrupted, some syncs take long: their files are safe, and appends arrive before they return.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.broker.partitions.flusher import Flusher
from headrace.env.workers import Raised
from headrace.log.flushing import Flushing
from headrace.sim import disk
from headrace.sim.loop import WORLD
from headrace.sim.moments import MomentFaults, after_each, before_each, in_place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.broker.partitions.replica import Replica
    from headrace.log.log import Log
    from headrace.log.state import LogState
    from headrace.sim.machine import AnyMachine
    from headrace.sim.steps import Step
    from headrace.sim.world import World

CHANCE: Final = 0.1
LONG: Final = 0.2
"""The share of syncs on a thread that take long..."""
LONG_S: Final = (0.05, 0.3)
CHANCE_AFTER_LONG: Final = 0.5
"""... and how often the power goes after one of them, if the log has grown."""
WITHIN_S: Final = (0.003, 0.05)
"""As long as an answer needs to reach a client, or longer."""
SLOW_S: Final = (0.1, 0.3)


class PowerAfterOverlaps(MomentFaults):
    """Cuts the power after a sync during which the log has grown."""

    def __init__(self, world: World, machines: Iterable[AnyMachine]) -> None:
        super().__init__(world, "power after overlapped syncs")
        self._machines = {id(machine.disk): machine for machine in machines}
        self._grown: set[LogState] = set()
        """The logs that have grown while they were synced."""
        self._taking_long: dict[Step, LogState] = {}
        """The syncs that take long, from their first file on."""
        self._took_long: set[LogState] = set()

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        real = Flushing.flush

        def flush(flushing: Flushing, up_to: int | None = None) -> int:
            bounds = flushing.state.bounds
            before = bounds.end_offset
            if flushing.flushed_offset < before:
                self._begins(flushing.state)
            reached = real(flushing, up_to)
            if bounds.end_offset > before:
                self._grown.add(flushing.state)
            return reached

        return [
            in_place(Flushing, "flush", flush),
            after_each(vars(disk)["_Node"], "sync", self._is_safe),
            before_each(Flusher, "_synced", self._hears),
        ]

    def _begins(self, state: LogState) -> None:
        step = self._step_of(self._machines[id(state.resources.disk)])
        if self._is_on and step is not None and self._rng.random() < LONG:
            self._taking_long[step] = state

    def _is_safe(self, _: object) -> None:
        """A file is synced, and the sync has not returned."""
        for machine in self._machines.values():
            step = self._step_of(machine)
            if step is not None and (state := self._taking_long.pop(step, None)) is not None:
                step.stays_s = self._rng.uniform(*LONG_S)
                self._took_long.add(state)

    @staticmethod
    def _step_of(machine: AnyMachine) -> Step | None:
        """Returns the work of a machine's worker that is being done."""
        steps = None if machine.node is None else machine.node.steps
        return None if steps is None else steps.current

    def _hears(self, _: Flusher, _replica: Replica, log: Log, reached: int | Raised) -> None:
        """Before the outcome of a sync is delivered, and the next one begins."""
        has_grown = log.state in self._grown or (not isinstance(reached, Raised) and log.end_offset > reached)
        self._grown.discard(log.state)
        chance = CHANCE_AFTER_LONG if log.state in self._took_long else CHANCE
        self._took_long.discard(log.state)
        machine = self._machines[id(log.resources.disk)]
        if not self._is_on or not has_grown or not machine.runs or self._rng.random() > chance:
            return
        if self._world.strikes("power after an overlapped sync", machine.host):
            machine.slow_disk(SLOW_S)
            self._world.loop.call_later(self._rng.uniform(*WITHIN_S), self._cut, machine, context=WORLD.copy())

    def _cut(self, machine: AnyMachine) -> None:
        machine.slow_disk()
        if self._is_on:
            machine.kill(power=True)
