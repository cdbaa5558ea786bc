"""Faults of one log directory of a broker: its disk fails until it is replaced or repaired and the broker restarted, is
read-only for a while, or is full for a while.

A disk is replaced by an empty one only if each partition of the broker has another replica that may lead; otherwise it
is repaired, with its data.
"""

from __future__ import annotations

import errno
from asyncio import sleep
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.metadata.image import ClusterImage, Partition
    from headrace.sim.machine import Machine
    from headrace.sim.world import World

LOOK_S: Final = 0.1
PATIENCE_S: Final = 20.0
"""How long it is waited for that others have all that was on a disk, before it is repaired."""
WRITING: Final = ("write", "sync", "make", "rename", "remove")
GROWING: Final = ("write", "make")
"""What a disk without room refuses; a sync that it refuses takes the directory offline, as any that fails."""


class Failure(Enum):
    """How a directory fails."""

    DEAD = "dead"
    """Nothing can be read or written there any more."""
    UNWRITABLE = "unwritable"
    """What is written does not get there (EIO), and can be read."""
    READ_ONLY = "read-only"
    """For a while (EROFS)."""
    FULL = "full"
    """For a while (ENOSPC)."""


PASSING: Final = (Failure.READ_ONLY, Failure.FULL)
_ERRORS: Final = {
    Failure.DEAD: errno.EIO,
    Failure.UNWRITABLE: errno.EIO,
    Failure.READ_ONLY: errno.EROFS,
    Failure.FULL: errno.ENOSPC,
}


class DirectoryFaults:
    """One after the other, one broker at a time."""

    def __init__(
        self,
        world: World,
        machines: Mapping[int, Machine[Broker]],
        directory: str,
        mean_s: float,
        newest: Callable[[], ClusterImage | None],
    ) -> None:
        """`directory` is the one that fails, of any broker; `newest` is the newest image that any node has applied."""
        self._world = world
        self._machines = dict(machines)
        self._directory = directory
        self._mean_s = mean_s
        self._newest = newest
        self._rng = world.rng("directories")
        self._failing: dict[int, Failure] = {}
        self.replaced = self.repaired = 0

    async def run(self) -> None:
        """One failure after the other; its task is cancelled when it is enough."""
        while True:
            await sleep(self._rng.expovariate(1 / self._mean_s))
            node = self._rng.choice(list(self._machines))
            failure = self._rng.choice(list(Failure))
            if self._world.strikes(f"directory is {failure.value}", self._machines[node].host):
                self.fail(node, failure)
                await sleep(self._rng.uniform(0.5, 5.0))
                await self.end(node)

    def fail(self, node: int, failure: Failure) -> None:
        """Begins with it."""
        self._failing[node] = failure
        prefix, number = self._directory + "/", _ERRORS[failure]
        disk = self._machines[node].disk

        def broken(operation: str, path: str) -> OSError | None:
            is_made = operation == "make" and disk.exists(path)
            writes = operation in (GROWING if failure is Failure.FULL else WRITING) and not is_made
            fails = failure is Failure.DEAD or writes
            is_there = path == self._directory or path.startswith(prefix)
            return OSError(number, f"the disk is {failure.value}", path) if fails and is_there else None

        disk.broken = broken

    async def end(self, node: int) -> None:
        """It is over, and the broker works with what is there then. A disk that has room again needs no restart."""
        failure = self._failing.get(node)
        if failure is None:
            return
        machine = self._machines[node]
        if failure is Failure.FULL:
            machine.disk.broken = None
            del self._failing[node]
            return
        machine.take_away()
        is_replaced = failure not in PASSING and await self._others_have_all_of(node)
        machine.take_away()  # somebody may have brought it back
        if is_replaced:
            self.replaced += 1
            machine.disk.replace(self._directory)
        else:
            self.repaired += 1
        machine.disk.broken = None
        del self._failing[node]
        machine.bring_back()

    async def end_all(self) -> None:
        """See `end`."""
        for node in list(self._failing):
            await self.end(node)

    async def _others_have_all_of(self, node: int) -> bool:
        until = self._world.loop.time() + PATIENCE_S
        while self._world.loop.time() < until:
            image = self._newest()
            if image is not None and all(
                self._may_lead(partition) and node not in self._may_lead(partition)
                for topic in image.topics
                for partition in topic.partitions
                if node in partition.replicas
            ):
                return True
            await sleep(LOOK_S)
        return False

    @staticmethod
    def _may_lead(partition: Partition) -> set[int]:
        return {*partition.isr, *partition.eligible_leaders}
