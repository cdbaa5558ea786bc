"""A machine with a broker: it is started, killed, unplugged or stopped, and started again with what its disk has
kept."""

from __future__ import annotations

import random
from asyncio import Event, Task, sleep
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from headrace.broker.storage.storage_format import StorageError
from headrace.config import BrokerConfig
from headrace.log.manager import CheckpointError, LogDirFailed, LogDirLocked
from headrace.sim.clock import SteadyClock
from headrace.sim.disk import PowerCut, SimDisk
from headrace.sim.node import SimNode
from headrace.sim.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.sim.network import SimStream
    from headrace.sim.world import World

PORT: Final = 9092
BOOT_S: Final = (0.05, 0.5)
"""How long a machine takes from the end of a broker to the start of the next."""
FAST_S: Final = (0.0, 0.002)
"""How long workers wait for a disk that is not slow."""

CANNOT_START: Final = (OSError, StorageError, LogDirLocked, LogDirFailed, CheckpointError)
"""What a start may raise while its disk fails."""


class Served(Protocol):
    """What runs on a machine: a `Broker`, or a `ControllerNode`."""

    on_failure: Callable[[str], None] | None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


S = TypeVar("S", bound=Served)


class Machine(Generic[S]):
    """A machine with one broker. A supervisor of one: what ended, for whatever reason, is started again."""

    def __init__(
        self,
        world: World,
        host: str,
        directories: Sequence[str],
        settings: Mapping[str, str],
        make: Callable[[BrokerConfig, SimNode], S],
        *,
        interrupts: bool = False,
    ) -> None:
        """`directories` are the log directories that `settings` name; `make` gives what runs, not started;
        `interrupts`: the work of its workers is interrupted whatever the world has drawn."""
        self._make = make
        self._interrupts = interrupts or world.interrupts
        self.world = world
        self.host = host
        self.directories = list(directories)
        self.disk = SimDisk(world.rng(f"{host} disk"))
        self.disk.writes_pages = world.writes_pages
        self.disk.make_dirs("/data")
        self.settings = {"metrics.listener": "-1", **settings}
        self.broker: S | None = None
        self.node: SimNode | None = None
        self.starts = 0
        self.disks_are_sound = True
        """Whether a start that fails is an objection: no fault of the disk is on."""
        self.wall_set_by_ms = 0
        self.steady = SteadyClock(world)
        self.disk_delay_s = FAST_S
        self._rng = world.rng(host)
        self._supervisor: Task[None] | None = None
        self._life: Task[None] | None = None
        self._stopping: set[Task[None]] = set()
        """Clean stops under way; one whose process is killed within it stays where it is until the world ends."""
        self._ended = Event()
        self._up = Event()
        self._wanted = True
        self._may_start = Event()
        self._may_start.set()

    # --- life

    @property
    def runs(self) -> bool:
        """Whether a process is there."""
        return self.node is not None and not self._ended.is_set()

    def switch_on(self) -> None:
        """Begins to keep a broker running. From now on the machine's steady clock drifts."""
        self.steady.drift(self.world.rng(f"{self.host} steady clock"))
        self._supervisor = self.world.loop.create_task(self._supervise())

    async def ready(self) -> S:
        """The broker, once it serves."""
        await self._up.wait()
        assert self.broker is not None
        return self.broker

    async def _supervise(self) -> None:
        while self._wanted:
            self._ended.clear()
            node = self._new_node()
            self._life = self.world.loop.create_task(self._run(node), context=node.context.copy())
            await self._ended.wait()
            while not self._life.done():
                # Whatever it waits for while it tidies up: a killed process tidies nothing up.
                self._life.cancel()
                await sleep(0)
            await sleep(self._rng.uniform(*BOOT_S))
            await self._may_start.wait()
            self._after(node)
            self.disk.powered = True
            if not self.world.has_power(self.host):
                self.world.set_power(self.host, True)
                self.world.network.power_back(self.host)

    def _new_node(self) -> SimNode:
        self.starts += 1
        node = SimNode(self.world, self.host, self.disk, random.Random(self._rng.getrandbits(64)), self.steady)
        self.steady.on_change = node.clock_changed
        node.clock.set_by_ms = self.wall_set_by_ms
        node.disk_delay_s = self.disk_delay_s
        if self._interrupts:
            node.steps = Steps(node, random.Random(self._rng.getrandbits(64)))
            self.disk.between = node.steps.at_operation
        self.node = node
        self.world.add(node)
        return node

    async def _run(self, node: SimNode) -> None:
        self.world.trace.note("start", self.host, self.starts)
        try:
            broker = self._make(BrokerConfig.load(self.settings, lambda _: None), node)
            broker.on_failure = lambda why: self._failed(node, why)
            await broker.start()
        except CANNOT_START as error:
            self.world.trace.note("no start", self.host, error)
            if self.disks_are_sound:
                self.world.object(f"{self.host} does not start on a sound disk: {error}", error)
            self._ended.set()
            return
        except PowerCut:
            return
        except Exception as error:
            self.world.object(f"{self.host} does not start: {error!r}", error)
            return
        self.broker = broker
        self._up.set()

    def _failed(self, node: SimNode, why: str) -> None:
        """The broker says that it cannot go on: its owner ends it. What is left of a killed process says nothing."""
        if not node.alive:
            return
        self.world.trace.note("failed", self.host, why)
        if self.disks_are_sound:
            self.world.object(f"{self.host} gives up on a sound disk: {why}")
        if node is self.node:
            self.world.loop.call_soon(self.kill)

    def _after(self, node: SimNode) -> None:
        """What must be true of a broker that has ended."""
        if node.running:
            self.world.object(f"a node that was ended still runs {node.running}")
        node.alive = False

    async def start_second(self, settings: Mapping[str, str]) -> None:
        """Starts another process on the directories of the one that runs: it is refused, and takes no lock away.
        `settings` are those in which it differs: the first one has its address."""
        node = SimNode(self.world, self.host, self.disk, random.Random(self._rng.getrandbits(64)), self.steady)
        self.world.add(node)
        before = set(self.disk.locks)

        async def start() -> None:
            try:
                await self._make(BrokerConfig.load({**self.settings, **settings}, lambda _: None), node).start()
            except LogDirLocked as error:
                self.world.trace.note("second process", self.host, error)
            except Exception as error:
                self.world.object(f"a second process on the directories of {self.host} fails late: {error!r}", error)
            else:
                self.world.object(f"a second process starts on the directories of {self.host}")

        await self.world.loop.create_task(start(), context=node.context.copy())
        self.world.demand(self.disk.locks == before, f"a second process changes the locks of {self.host}: {before}")
        node.kill()

    def streams(self) -> Iterable[SimStream]:
        """The connections of the broker that runs, if one does."""
        return list(self.node.streams) if self.node is not None and self.node.alive else []

    def pause(self) -> bool:
        """The process is paused, as after SIGSTOP; whether one runs that can. It holds its connections open."""
        if self.node is None or self.broker is None:
            return False
        self.world.trace.note("pause", self.host)
        self.world.loop.pause(self.node)
        return True

    def resume(self) -> None:
        """The process goes on."""
        if self.node is not None:
            self.world.trace.note("resume", self.host)
            self.world.loop.resume(self.node)
            for stream in list(self.node.streams):
                stream.wake()

    def slow_disk(self, bounds_s: tuple[float, float] = FAST_S) -> None:
        """Workers wait for the disk for so long from now on."""
        self.disk_delay_s = bounds_s
        if self.node is not None:
            self.node.disk_delay_s = bounds_s

    def set_clock(self, by_ms: int) -> None:
        """Sets the wall clock forward or back; a restart does not undo it."""
        self.wall_set_by_ms += by_ms
        if self.node is not None:
            self.node.clock.set_by_ms = self.wall_set_by_ms

    def leap(self, by_s: float) -> None:
        """The steady clock leaps forward, with all that was to come until then."""
        self.world.leapt_s = self.world.loop.time()
        self.world.trace.note("leap", self.host, by_s)
        self.steady.leap(by_s)

    # --- ends

    def kill(self, *, power: bool = False) -> None:
        """Ends the process without notice; with `power` the machine, and what the disk had not synced is at stake."""
        node = self.node
        if node is None or self._ended.is_set():
            return
        self.world.trace.note("power off" if power else "kill", self.host)
        self.broker = None
        self._up.clear()
        node.kill()
        self.world.network.gone(node, power=power)
        if power:
            self.world.set_power(self.host, False)
            self.disk.crash()
        else:
            self.disk.kill()
        self.disk.powered = False
        self._ended.set()

    def hold_back(self) -> None:
        """Starts no other process before `bring_back`."""
        self._may_start.clear()

    def take_away(self) -> None:
        """Ends the process without notice, and starts no other before `bring_back`."""
        self.hold_back()
        self.kill()

    def bring_back(self) -> None:
        """Starts a broker again."""
        self._may_start.set()

    async def stop(self) -> None:
        """A clean stop; the supervisor starts the next broker. It goes on where its caller is cancelled: nobody takes
        back a SIGTERM."""
        broker, node = self.broker, self.node
        if broker is None or node is None:
            return
        self.world.trace.note("stop", self.host)
        self.resume()
        self.broker = None
        self._up.clear()
        stopping = self.world.loop.create_task(self._stop(broker, node))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
        await self._ended.wait()

    async def _stop(self, broker: S, node: SimNode) -> None:
        try:
            await broker.stop()
        except PowerCut:
            return
        except Exception as error:
            if self._still_runs(node):  # what is left of a killed process runs into what was cancelled under it
                self.world.object(f"{self.host} does not stop: {error!r}", error)
            return
        if self._still_runs(node):
            self.world.network.gone(node, power=False)
            self._ended.set()

    def _still_runs(self, node: SimNode) -> bool:
        return node is self.node and not self._ended.is_set()

    async def switch_off(self) -> None:
        """Starts nothing any more, and stops what runs."""
        self._wanted = False
        await self.stop()
        if self._supervisor is not None:
            await self._supervisor


AnyMachine = Machine[Any]
