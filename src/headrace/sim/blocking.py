"""Blocking code in the simulator: the synchronous client, and the code built on it, unchanged.

A process has a thread for such code. One thread runs at a time: if its code waits (for an answer, for a connection, for
time to pass) it yields to the loop, and continues when the awaited event has come. So a run is the same every time.
Module variables, which Python keeps once, are the process's own while its thread runs, and so are its clock, its
randomness and its `Client`.

A process may end at each of its requests, before or after it is sent, and may lose the answer.
"""

from __future__ import annotations

import time
from asyncio import FIRST_COMPLETED, CancelledError, Future, Task, sleep, wait
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from headrace.client import cluster
from headrace.client.async_calls import AsyncCall, ConversingConnection
from headrace.client.async_connection import AsyncConnection
from headrace.client.cluster import Client
from headrace.client.conversation import BrokerConnection, Connect, Pause
from headrace.client.conversation import Step as ClientStep
from headrace.sim.disk import PowerCut
from headrace.sim.steps import Step

if TYPE_CHECKING:
    from headrace.sim.client import SimClient

T = TypeVar("T")

FROZEN_S: Final = (2.0, 10.0)
"""How long a frozen process pauses."""
Variable = tuple[Any, str]
"""Whose attribute, and which."""


class Fate(Enum):
    """What becomes of a process at one of its requests."""

    LIVES = auto()
    DIES_BEFORE = auto()
    DIES_AFTER = auto()
    LOSES_THE_ANSWER = auto()
    FREEZES = auto()


class EndedError(Exception):
    """The process has ended in the middle of its work."""


class _Connection(ConversingConnection):
    """A connection at each of whose requests its process may end."""

    def __init__(self, process: Process, connection: AsyncConnection, host: str, port: int) -> None:
        super().__init__(connection, host, port)
        self._process = process

    def send(
        self, request: Any, response_class: Any, *, version: int | None = None, expect_reply: bool = True
    ) -> AsyncCall[Any]:
        """See BrokerConnection.send."""
        assert expect_reply, "no answer can be lost that nobody waits for"
        if self.channel.failure is not None:
            raise self.channel.failure
        fate = self._process.fate(request)
        if fate is Fate.DIES_BEFORE:
            self._process.die()
        if fate is Fate.FREEZES:
            self._process.freeze()
        call = super().send(request, response_class, version=version)
        if fate is Fate.DIES_AFTER:
            self._process.die()
        if fate is Fate.LOSES_THE_ANSWER:
            self.close()
        return call


class _Client(Client):
    """A client whose conversations wait in virtual time."""

    def __init__(self, process: Process, bootstrap: Any = None, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        self._process = process

    def perform(self, step: ClientStep) -> BrokerConnection | None:
        """See Client.perform."""
        process = self._process
        if isinstance(step, Connect):
            node, owner = process.client.node, process.client.owner
            opened = AsyncConnection.open(
                node, owner, step.host, step.port, client_id=self.client_id, timeout_s=step.timeout_s
            )
            return _Connection(process, process.wait_for(opened), step.host, step.port)
        if isinstance(step, Pause):
            process.wait_for(sleep(step.seconds))
            return None
        calls: Sequence[Any] = step.calls
        remaining_s = step.until - process.now()
        if remaining_s > 0 and not any(call.done for call in calls):
            process.wait_for(_first_of([call.future for call in calls], remaining_s))
        return None


async def _first_of(futures: list[Future[Any]], timeout_s: float) -> None:
    await wait(futures, timeout=timeout_s, return_when=FIRST_COMPLETED)


class _Clock:
    """The module `time`, as far as the client uses it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.monotonic = process.now

    def sleep(self, seconds: float) -> None:
        self._process.wait_for(sleep(seconds))

    def time_ns(self) -> int:
        return self._process.client.node.clock.now_ms() * 1_000_000


class Process:
    """The process of a client machine, as far as its code blocks. It does one piece of work at a time."""

    def __init__(self, client: SimClient, variables: dict[Variable, Any]) -> None:
        """`variables` are its own, with the values that they begin with."""
        self.client = client
        self.fate: Callable[[Any], Fate] = lambda _: Fate.LIVES
        """What becomes of it at a request."""
        clock = _Clock(self)
        own: dict[Variable, Any] = {(cluster, "time"): clock, (cluster, "Random"): lambda: client.rng}
        own[cluster, "Client"] = partial(_Client, self)
        self._variables = own | {place: clock if value is time else value for place, value in variables.items()}
        self._step: Step | None = None
        self._asked: Coroutine[Any, Any, Any] | None = None
        self._answer: Task[Any] | None = None

    def now(self) -> float:
        """The world's time."""
        return self.client.world.loop.time()

    @property
    def is_alive(self) -> bool:
        return self.client.node.alive

    # --- on the loop

    async def run(self, work: Callable[[], T]) -> T:
        """What blocking work returns. Raises what it raises, and EndedError where the process ends meanwhile."""
        assert self._step is None, "one piece of work at a time"
        if not self.is_alive:
            raise EndedError
        step = self._step = Step(work, lambda *_: None)
        try:
            self._go_on(step)
            while not step.is_over and self.is_alive:
                assert self._asked is not None
                self._answer = self.client.world.loop.create_task(self._asked)
                await wait([self._answer])
                self._go_on(step)
        finally:
            step.is_dead = True
            if self._answer is not None:
                self._answer.cancel()
            while not step.is_over:
                self._go_on(step)
            self._step = None
        if not self.is_alive or isinstance(step.error, PowerCut):
            raise EndedError
        if step.error is not None:
            raise step.error
        found: T = step.result
        return found

    def kill(self) -> None:
        """Ends it, wherever it is."""
        if self.is_alive:
            self.client.die()
        if self._answer is not None:
            self._answer.cancel()

    def _go_on(self, step: Step) -> None:
        with self._own():
            step.go_on()

    @contextmanager
    def _own(self) -> Iterator[None]:
        """Its variables are in their places inside the block."""
        others = {place: vars(place[0])[place[1]] for place in self._variables}
        for (owner, name), value in self._variables.items():
            setattr(owner, name, value)
        try:
            yield
        finally:
            for (owner, name), value in others.items():
                self._variables[owner, name] = vars(owner)[name]
                setattr(owner, name, value)

    # --- on its thread

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Hands over until the loop has done this. Raises what it raises, and PowerCut once the process is dead."""
        step = self._step
        assert step is not None
        if step.is_dead or not self.is_alive:
            work.close()
            raise PowerCut
        self._asked = work
        step.pause()
        answer, self._asked, self._answer = self._answer, None, None
        assert answer is not None
        try:
            found: T = answer.result()
        except CancelledError:
            raise PowerCut from None
        return found

    def freeze(self) -> None:
        """Pauses for a while."""
        self.wait_for(sleep(self.client.rng.uniform(*FROZEN_S)))

    def die(self) -> NoReturn:
        """Ends where it is."""
        self.client.die()
        raise PowerCut
