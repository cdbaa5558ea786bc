"""Power goes soon after a node has loaded a snapshot of the metadata: what it was told to keep has to be there then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.snapshot_files import SnapshotFiles
from headrace.sim.loop import WORLD
from headrace.sim.moments import after_each

if TYPE_CHECKING:
    from headrace.raft.events import Piece
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

CHANCE: Final = 0.7
WITHIN_S: Final = 0.5


class PowerAfterSnapshots:
    """See the module."""

    def __init__(self, world: World, machines: Iterable[AnyMachine]) -> None:
        self._world = world
        self._machines = {id(machine.disk): machine for machine in machines}
        self._rng = world.rng("power after snapshots")
        self._is_on = False
        self.count = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears of snapshots inside the block; power goes between `begin` and `end`."""
        with after_each(SnapshotFiles, "store", self._stored):
            yield

    def begin(self) -> None:
        """From now on power goes."""
        self._is_on = True

    def end(self) -> None:
        """Power goes no more."""
        self._is_on = False

    def _stored(self, files: SnapshotFiles, piece: Piece, *_: object) -> None:
        if self._is_on and piece.is_last and self._rng.random() < CHANCE:
            machine = self._machines[id(vars(files)["_disk"])]
            self._world.loop.call_later(self._rng.uniform(0.0, WITHIN_S), self._cut, machine, context=WORLD.copy())

    def _cut(self, machine: AnyMachine) -> None:
        if self._is_on:
            self.count += 1
            self._world.trace.note("fault", "power after a snapshot")
            machine.kill(power=True)
