"""Steered faults: a machine loses power soon after it has loaded a metadata snapshot, which must survive."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.log.snapshot_files import SnapshotFiles
from headrace.sim.loop import WORLD
from headrace.sim.moments import MomentFaults, after_each

if TYPE_CHECKING:
    from headrace.raft.events import Piece
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.7
WITHIN_S: Final = 0.5


class PowerAfterSnapshots(MomentFaults):
    """Cuts the power after a node has loaded a snapshot."""

    def __init__(self, world: World, machines: Iterable[AnyMachine]) -> None:
        super().__init__(world, "power after snapshots")
        self._machines = {id(machine.disk): machine for machine in machines}

    def taps(self) -> list[AbstractContextManager[None]]:
        """See MomentFaults."""
        return [after_each(SnapshotFiles, "store", self._stored)]

    def _stored(self, files: SnapshotFiles, piece: Piece, *_: object) -> None:
        if self._is_on and piece.is_last and self._rng.random() < CHANCE:
            machine = self._machines[id(vars(files)["_disk"])]
            self._world.loop.call_later(self._rng.uniform(0.0, WITHIN_S), self._cut, machine, context=WORLD.copy())

    def _cut(self, machine: AnyMachine) -> None:
        if self._is_on and self._world.strikes("power after a snapshot", machine.host):
            machine.kill(power=True)
