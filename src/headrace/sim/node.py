"""A node of the simulator: `env.Node` in virtual time, until its process ends."""

from __future__ import annotations

import pickle
import random
import uuid
from asyncio import Future, Handle, Task, current_task, wait
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.env.completion import Completion, CompletionQueue
from headrace.env.posix import RESERVED_IDS
from headrace.env.workers import Raised
from headrace.sim.clock import SimClock, SteadyClock
from headrace.sim.disk import PowerCut, SimDisk
from headrace.sim.lock import SimLock
from headrace.sim.loop import PROCESS
from headrace.sim.network import NodeNetwork, SimStream

if TYPE_CHECKING:
    from headrace.sim.steps import Steps
    from headrace.sim.world import World

T = TypeVar("T")


class SimEntropy:
    """See `env.entropy.Entropy`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def uuid(self) -> bytes:
        """See Entropy.uuid."""
        while True:
            drawn = uuid.UUID(int=self._rng.getrandbits(128), version=4).bytes
            if drawn not in RESERVED_IDS and drawn[0] >> 2 != 0b111110:
                return drawn

    def secret(self, size: int) -> bytes:
        """See Entropy.secret."""
        return self._rng.randbytes(size)

    def random(self) -> random.Random:
        """See Entropy.random."""
        return random.Random(self._rng.getrandbits(64))


class SimTimer:
    """See `env.node.Timer`."""

    __slots__ = ("due_s", "handle", "owner", "work")

    def __init__(self, owner: SimOwner) -> None:
        self.owner = owner
        self.handle: Handle | None = None
        self.due_s: float | None = None
        """By its node's steady clock; None where it comes with the next turn."""
        self.work: tuple[Callable[..., object], tuple[Any, ...]] | None = None

    def cancel(self) -> None:
        """See Timer.cancel."""
        if self.handle is not None:
            self.handle.cancel()
        self.owner.timers.pop(self, None)


class SimOwner:
    """See `env.node.Owner`."""

    def __init__(self, node: SimNode, name: str) -> None:
        self.name = name
        self.timers: dict[SimTimer, None] = {}
        self.tasks: dict[Task[Any], None] = {}
        self._node = node
        self._closed = False

    def soon(self, callback: Callable[..., object], *args: Any) -> SimTimer:
        """See Owner.soon."""
        timer = SimTimer(self)
        if not self._closed and self._node.alive:
            self.timers[timer] = None
            timer.handle = self._node.world.loop.call_soon(self._call, timer, callback, args)
        return timer

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> SimTimer:
        """See Owner.later."""
        timer = SimTimer(self)
        if not self._closed and self._node.alive:
            self.timers[timer] = None
            timer.work = callback, args
            timer.due_s = self._node.clock.monotonic() + max(0.0, delay_s)
            self._arm(timer, None)
        return timer

    def _arm(self, timer: SimTimer, context: Context | None) -> None:
        assert timer.work is not None and timer.due_s is not None
        delay_s = self._node.clock.steady.until(timer.due_s)
        timer.handle = self._node.world.loop.call_later(delay_s, self._call, timer, *timer.work, context=context)

    def clock_changed(self) -> None:
        """Timers come when the node's clock says so."""
        for timer in self.timers:
            if timer.due_s is not None and timer.handle is not None:
                handle: Any = timer.handle
                context = handle._context  # noqa: SLF001
                timer.handle.cancel()
                self._arm(timer, context)

    def _call(self, timer: SimTimer, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.timers.pop(timer, None)
        self._node.call(callback, *args)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Task[Any]:
        """See Owner.spawn."""
        task = self._node.world.loop.create_task(work)
        self.tasks[task] = None
        task.add_done_callback(self._ended)
        if self._closed or not self._node.alive:
            task.cancel()
        return task

    def _ended(self, task: Task[Any]) -> None:
        self.tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, PowerCut):
            self._node.defects.report(error, f"a task of {self.name}")

    def close(self) -> None:
        """See Owner.close."""
        self._closed = True
        for timer in list(self.timers):
            timer.cancel()
        for task in list(self.tasks):
            task.cancel()

    async def closed(self) -> None:
        """See Owner.closed."""
        self.close()
        current = current_task(self._node.world.loop)
        while tasks := [task for task in self.tasks if task is not current]:
            await wait(tasks)  # what one of them raises keeps none of the others from being waited for


class SimDefects:
    """See `env.node.Defects`: the run fails with the first one."""

    def __init__(self, node: SimNode) -> None:
        self.count = 0
        self.first: BaseException | None = None
        self._node = node

    def report(self, error: BaseException, where: str, **context: object) -> None:
        """See Defects.report."""
        if not self._node.alive:
            return  # what a dying node says of itself says nothing
        self.count += 1
        if self.first is None:
            self.first = error
        self._node.world.object(f"a defect in {where}: {error!r} {context}", cause=error)


class SimLogSink:
    """See `env.node.LogSink`: events go into the trace."""

    def __init__(self, node: SimNode, name: str) -> None:
        self._node = node
        self._name = name

    def _tell(self, level: str, event: str, fields: dict[str, object]) -> None:
        self._node.world.trace.note("log", self._node.host, self._name, level, event, sorted(fields.items()))

    def debug(self, event: str, /, **fields: object) -> None:
        """See LogSink.debug."""

    def info(self, event: str, /, **fields: object) -> None:
        """See LogSink.info."""
        self._tell("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """See LogSink.warning."""
        self._tell("warning", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """See LogSink.error."""
        self._tell("error", event, fields)


class SimHelper:
    """See `env.workers.Helper`: runs in one go, on the worker that calls; what it is sent is copied as it really is."""

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """See Helper.call."""
        there, sent = pickle.loads(pickle.dumps((function, arguments)))
        result: T = pickle.loads(pickle.dumps(there(*sent)))
        return result

    def close(self) -> None:
        """See Helper.close."""


class SimWeb:
    """See `env.web.Web`: there is none."""

    def fetch(self, url: str, *, bytes_max: int, timeout_s: float, context: object = None) -> bytes:
        """See Web.fetch."""
        raise OSError("nothing is published here")


class SimWorkers:
    """See `env.workers.Workers`: work is done in one go, at a moment of the world's choosing; so many at a time."""

    def __init__(self, node: SimNode, threads: int) -> None:
        self._node = node
        self._free = threads
        self._queue: deque[tuple[Callable[[], Any], Completion[Any]]] = deque()
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Completion[T | Raised]:
        """See Workers.submit."""
        assert not self._closed, "work for workers that are closed"
        completion: Completion[T | Raised] = Completion(self._node.completions)
        self._queue.append((work, completion))
        self._start()
        return completion

    def _start(self) -> None:
        while self._queue and self._free:
            self._free -= 1
            work, completion = self._queue.popleft()
            self._node.world.loop.call_later(self._node.disk_delay(), self._work, work, completion)

    def _work(self, work: Callable[[], Any], completion: Completion[Any]) -> None:
        if not self._node.alive:
            return
        clock = self._node.clock
        clock.slept_s = 0.0
        steps = self._node.steps
        if steps is not None and steps.interrupts():
            steps.begin(
                work, lambda result, error: self._worked(completion, result if error is None else Raised(error))
            )
            return
        outcome: Any
        try:
            outcome = work()
        except BaseException as error:
            outcome = Raised(error)
        self._worked(completion, outcome)

    def _worked(self, completion: Completion[Any], outcome: Any) -> None:
        if isinstance(outcome, Raised) and isinstance(outcome.error, PowerCut):
            return
        delay = self._node.disk_delay() + self._node.clock.slept_s
        self._node.world.loop.call_later(delay, self._done, completion, outcome)

    def _done(self, completion: Completion[Any], outcome: Any) -> None:
        if self._node.alive:
            self._free += 1
            self._start()
            self._node.call(completion.complete, outcome)

    async def run(self, work: Callable[[], T]) -> T:
        """See Workers.run."""
        outcome = await self.submit(work)
        if isinstance(outcome, Raised):
            raise outcome.error
        return outcome

    def close(self) -> None:
        """See Workers.close: what is running and what is queued is done now."""
        if self._node.steps is not None:
            self._node.steps.finish()
        while self._queue:
            work, _ = self._queue.popleft()
            self._node.call(work)
        self._closed = True

    def kill(self) -> None:
        """See Workers.kill."""
        self._queue.clear()
        self._closed = True


class SimNode:
    """See `env.node.Node`: one process on one simulated machine."""

    def __init__(
        self, world: World, host: str, disk: SimDisk, rng: random.Random, steady: SteadyClock | None = None
    ) -> None:
        """`steady` is the machine's clock; without one it keeps the world's time."""
        self.world = world
        self.host = host
        self.alive = True
        self.clock = SimClock(world, steady or SteadyClock(world))
        self.disk = disk
        self.entropy = SimEntropy(rng)
        self.network = NodeNetwork(world.network, self)
        self.workers = SimWorkers(self, 4)
        self.syncs = SimWorkers(self, 4)
        self.errands = SimWorkers(self, 2)
        self.helper = SimHelper()
        self.web = SimWeb()
        self.defects = SimDefects(self)
        self.streams: dict[SimStream, None] = {}
        self.disk_delay_s = (0.0, 0.002)
        self.context = copy_context()
        """That of everything that this process does."""
        self.context.run(PROCESS.set, self)
        self.steps: Steps | None = None
        """What interrupts the work of workers, where that is done."""
        self._rng = rng
        self._owners: list[SimOwner] = []
        self.completions = CompletionQueue(self.owner("completions"), self.future)

    def disk_delay(self) -> float:
        """How long a worker waits for the disk."""
        return self._rng.uniform(*self.disk_delay_s)

    def call(self, callback: Callable[..., object], *args: Any) -> None:
        """Calls into the node, if it is there: what escapes is its end, or a defect."""
        if not self.alive:
            return
        loop = self.world.loop
        if loop.paused and self in loop.paused:
            loop.call_soon(self.call, callback, *args, context=self.context)
            return
        token = PROCESS.set(self)
        try:
            callback(*args)
        except PowerCut:
            assert not self.alive, "the plug is pulled before the call ends"
        except Exception as error:
            self.defects.report(error, "a callback")
        finally:
            PROCESS.reset(token)

    def scratch(self, size: int) -> memoryview:
        """See Environment.scratch."""
        return memoryview(bytearray(size))

    def lock(self) -> SimLock:
        """See Environment.lock."""
        return SimLock(self._who, None if self.steps is None else self.steps.wait_for)

    def _who(self) -> object:
        step = None if self.steps is None else self.steps.current
        return current_task(self.world.loop) if step is None else step

    def logger(self, name: str) -> SimLogSink:
        """See Node.logger."""
        return SimLogSink(self, name)

    def clock_changed(self) -> None:
        """Its machine's steady clock has another rate, or has leapt."""
        for owner in self._owners:
            owner.clock_changed()

    def owner(self, name: str) -> SimOwner:
        """See Node.owner."""
        owner = SimOwner(self, name)
        self._owners.append(owner)
        return owner

    def future(self) -> Future[Any]:
        """See Node.future."""
        return self.world.loop.create_future()

    def processor_s(self) -> float:
        """See Node.processor_s: work takes no virtual time."""
        return 0.0

    async def close(self) -> None:
        """See Node.close."""
        for owner in self._owners:
            await owner.closed()
        self.network.close()
        self.workers.close()
        self.syncs.close()
        self.errands.close()
        self.alive = False

    def kill(self) -> None:
        """See Node.kill."""
        self.alive = False
        self.world.loop.resume(self)
        for owner in self._owners:
            owner.close()
        self.workers.kill()
        self.syncs.kill()
        self.errands.kill()
        if self.steps is not None:
            self.steps.end()

    @property
    def running(self) -> list[str]:
        """What is left of a node: owners with timers or tasks."""
        return [owner.name for owner in self._owners if owner.timers or owner.tasks]
