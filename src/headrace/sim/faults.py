"""The faults of a run and their timing: kills, power cuts, clean restarts, disks that fail, fill up or slow down,
clocks that are set, connections that break or fall silent."""

from __future__ import annotations

import errno
from asyncio import sleep
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.sim.disk import PowerCut

if TYPE_CHECKING:
    from headrace.sim.machine import AnyMachine
    from headrace.sim.world import World

KINDS: Final = (
    "kill",
    "power",
    "stop",
    "cut",
    "silence",
    "partition",
    "slow disk",
    "full disk",
    "disk error",
    "clock",
)
DAY_MS: Final = 86_400_000
MID_OPERATION: Final = 0.5
"""The share of ends that come in the middle of some operation on the disk, and not between two of them."""
LEAPS: Final = 0.3
"""How often it is the steady clock that leaps, and not the wall clock that is set."""
LEAP_S: Final = (0.5, 30.0)
PLENTY: Final = 1 << 60


class Faults:
    """Injects faults of some kinds into one machine, now and then, until `heal`."""

    def __init__(
        self,
        world: World,
        machine: AnyMachine,
        clients: Callable[[], Sequence[str]],
        kinds: Sequence[str],
        mean_s: float,
        name: str = "faults",
    ) -> None:
        """`clients` names the machines of those who are connected; `mean_s`: between two faults; `name` seeds them."""
        self._world = world
        self._machine = machine
        self._clients = clients
        self._rng = world.rng(name)
        self._leaps = world.rng(f"{name} leaps")
        self._kinds = list(kinds)
        self._mean_s = mean_s
        self._handlers: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "power": self._power,
            "stop": self._stop,
            "cut": self._cut,
            "silence": self._silence,
            "partition": self._partition,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "disk error": self._disk_error,
            "clock": self._clock,
        }

    async def run(self) -> None:
        """One fault after the other; its task is cancelled when it is enough."""
        while self._kinds:
            await sleep(self._rng.expovariate(1 / self._mean_s))
            kind = self._rng.choice(self._kinds)
            if self._world.strikes(kind, self._machine.host):
                await self._handlers[kind]()

    def heal(self) -> None:
        """Everything works again, and connections that had fallen silent, or whose other end has ended, are gone."""
        machine = self._machine
        machine.disk.fail = None
        machine.disk.room_bytes = PLENTY
        machine.slow_disk()
        self._world.network.heal()
        for node in self._world.nodes():
            for stream in list(node.streams):
                if stream.silent or (stream.peer is not None and stream.peer.closed):
                    self._world.network.cut(stream)

    # --- ends of the broker

    def _end(self, *, power: bool) -> None:
        """Between two operations, or in the middle of the one after the next few."""
        machine = self._machine
        if self._rng.random() > MID_OPERATION:
            machine.kill(power=power)
            return
        at = machine.disk.operations + self._rng.randint(1, 40)

        def cut(_operation: str, _path: str) -> OSError | None:
            if machine.disk.operations < at:
                return None
            machine.disk.fail = None
            machine.kill(power=power)
            raise PowerCut

        machine.disk.fail = cut

    async def _kill(self) -> None:
        self._end(power=False)

    async def _power(self) -> None:
        self._end(power=True)

    async def _stop(self) -> None:
        await self._machine.stop()

    # --- the network

    async def _cut(self) -> None:
        if streams := list(self._machine.streams()):
            self._world.network.cut(self._rng.choice(streams))

    async def _silence(self) -> None:
        if streams := list(self._machine.streams()):
            self._world.network.silence(self._rng.choice(streams))

    async def _partition(self) -> None:
        if clients := self._clients():
            other = self._rng.choice(list(clients))
            self._world.network.partition(self._machine.host, other)
            await sleep(self._rng.uniform(0.5, 5.0))
            self._world.network.reconnect(self._machine.host, other)

    # --- the disk

    async def _slow_disk(self) -> None:
        self._machine.slow_disk((0.0, self._rng.uniform(0.01, 1.0)))
        await sleep(self._rng.uniform(0.5, 4.0))
        self._machine.slow_disk()

    async def _full_disk(self) -> None:
        machine = self._machine
        machine.disks_are_sound = False
        machine.disk.room_bytes = self._rng.randint(0, 20_000)
        await sleep(self._rng.uniform(0.5, 4.0))
        machine.disk.room_bytes = PLENTY

    async def _disk_error(self) -> None:
        machine = self._machine
        machine.disks_are_sound = False
        directory = self._rng.choice(machine.directories)
        operations = self._rng.choice((("write",), ("sync",), ("read",), ("write", "sync"), ("open", "list")))
        chance = self._rng.uniform(0.05, 1.0)

        def fails(operation: str, path: str) -> OSError | None:
            if operation in operations and path.startswith(directory) and self._rng.random() < chance:
                return OSError(errno.EIO, "Input/output error", path)
            return None

        machine.disk.fail = fails
        await sleep(self._rng.uniform(0.1, 2.0))
        if machine.disk.fail is fails:
            machine.disk.fail = None

    # --- the clock

    async def _clock(self) -> None:
        if self._leaps.random() < LEAPS:
            self._machine.leap(self._leaps.uniform(*LEAP_S))
            return
        by = self._rng.choice((-DAY_MS, -3_600_000, -5_000, 5_000, 3_600_000, DAY_MS))
        self._machine.set_clock(by)
