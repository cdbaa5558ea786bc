"""Blocking code in the simulator: the synchronous client, and what is built on it, run as they are.

A process has a thread for such code. Of all threads one goes on at a time: where its code waits (for an answer, for a
connection, for time to pass) it hands over to the loop, and goes on when what it waits for has come. So a run is the
same every time. What Python keeps once for each process (variables of modules) is the process's own while its thread
goes on, and so are its clock, its chance and its `Client`.

A process may end at each of its requests, before that leaves or after it, and may lose the answer.
"""

from __future__ import annotations

import time
from asyncio import FIRST_COMPLETED, CancelledError, Future, Task, sleep, wait
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from headrace.client import cluster, producer, reading, transaction_states, transactions
from headrace.client.async_connection import AsyncConnection
from headrace.client.cluster import Client
from headrace.client.errors import TimedOutError
from headrace.sim.disk import PowerCut
from headrace.sim.steps import Step

if TYPE_CHECKING:
    from headrace.client.channel import Channel
    from headrace.sim.client import SimClient

T = TypeVar("T")

FROZEN_S: Final = (2.0, 10.0)
"""How long a process stands still that freezes."""
UNBOUNDED_S: Final = 86_400.0
"""How long a connection waits for an answer: the client's code has deadlines of its own."""
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


class _Answer:
    """What `Connection.send` returns: a call that is done when its future is."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    @property
    def done(self) -> bool:
        return self.future.done()

    @property
    def error(self) -> BaseException | None:
        return self.future.exception() if self.future.done() else None

    def result(self) -> Any:
        """The response. Raises what came in its place."""
        return self.future.result()


class _Connection:
    """A `client.connection.Connection` over the simulated network."""

    def __init__(self, process: Process, host: str, port: int, link: AsyncConnection) -> None:
        self.host = host
        self.port = port
        self.waiting: list[_Answer] = []
        self._process = process
        self._link = link

    @property
    def peer(self) -> str:
        return self._link.channel.peer

    @property
    def channel(self) -> Channel:
        return self._link.channel

    @property
    def closed(self) -> bool:
        return self._link.closed

    def send(
        self, request: Any, response_class: Any, *, version: int | None = None, expect_reply: bool = True
    ) -> _Answer:
        """See Connection.send."""
        assert expect_reply, "no answer can be lost that nobody waits for"
        if self._link.channel.failure is not None:
            raise self._link.channel.failure
        fate = self._process.fate(request)
        if fate is Fate.DIES_BEFORE:
            self._process.die()
        if fate is Fate.FREEZES:
            self._process.freeze()
        answer = _Answer(self._link.ask(request, response_class, timeout_s=UNBOUNDED_S, version=version))
        if answer.error is not None:
            raise answer.error
        self.waiting = [each for each in self.waiting if not each.done]
        self.waiting.append(answer)
        if fate is Fate.DIES_AFTER:
            self._process.die()
        if fate is Fate.LOSES_THE_ANSWER:
            self._link.close()
        return answer

    def close(self) -> None:
        """See Connection.close."""
        self._link.close()


class _Client(Client):
    """A client whose connections are a process's."""

    def __init__(self, process: Process, bootstrap: Any = None, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        self._process = process

    def _connect(self, host: str, port: int) -> Any:
        process = self._process
        patience_s = min(cluster.CONNECT_TIMEOUT_S, self.timeout_s)
        node, owner = process.client.node, process.client.owner
        opened = AsyncConnection.open(node, owner, host, port, client_id=self.client_id, timeout_s=patience_s)
        return _Connection(process, host, port, process.wait_for(opened))

    def wait(self, call: Any, deadline: float) -> Any:
        """See Client.wait."""
        while not call.done:
            remaining = deadline - self._process.now()
            if remaining <= 0:
                raise TimedOutError("no answer in time")
            self._process.wait_for(_first_of([call.future], remaining))
        return call.result()

    def move(self, timeout_s: float) -> None:
        """See Client.move."""
        connections: list[Any] = list(self.connections())
        waiting = [each.future for connection in connections for each in connection.waiting]
        if waiting and not any(future.done() for future in waiting) and timeout_s > 0:
            self._process.wait_for(_first_of(waiting, timeout_s))
        for connection in connections:
            connection.waiting = [each for each in connection.waiting if not each.done]


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
        own: dict[Variable, Any] = {
            (module, "time"): clock for module in (cluster, producer, reading, transaction_states, transactions)
        }
        own |= {(module, "random"): client.rng for module in (cluster, producer)}
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
        """Stands still for a while."""
        self.wait_for(sleep(self.client.rng.uniform(*FROZEN_S)))

    def die(self) -> NoReturn:
        """Ends where it is."""
        self.client.die()
        raise PowerCut
