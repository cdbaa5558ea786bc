"""Conversations: what a client does to get something done, without a socket and without waiting.

A conversation is a generator (`Steps`). It queues requests on connections, which takes no time, and yields a step
whenever it has to wait: for a connection (`Connect`), for a response (`Await`), or for time to pass (`Pause`). A shell
performs the step, and sends its result or throws its error into the generator. What the generator returns is the result
of the conversation, and what it raises is its failure.

There are two shells: `Client` blocks, `AsyncClient` runs on an asyncio loop. Destinations and retries are decided here
once for both. Source: the idea is that of sans-IO libraries such as h11.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from headrace.client.channel import Channel, R, Request
from headrace.client.errors import ClientError

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Clock(Protocol):
    """The time, as the module `time` has it."""

    def monotonic(self) -> float:
        """Returns seconds of a clock that is never set."""
        ...

    def time_ns(self) -> int:
        """Returns ns since 1970."""
        ...


class PendingCall(Protocol[R_co]):
    """A request under way."""

    @property
    def done(self) -> bool:
        """Whether the response, or an error, is here."""
        ...

    @property
    def error(self) -> ClientError | None:
        """What came instead of a response."""
        ...

    def result(self) -> R_co:
        """Returns the response. Raises `error`. To be called once `done`."""
        ...


class BrokerConnection(Protocol):
    """A connection to one broker, which is logged in and knows what the broker serves."""

    @property
    def host(self) -> str:
        """The host that it was made to."""
        ...

    @property
    def port(self) -> int:
        """The port that it was made to."""
        ...

    @property
    def channel(self) -> Channel:
        """Its requests and responses; it knows the versions that the broker serves."""
        ...

    @property
    def peer(self) -> str:
        """The address, for people."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        ...

    def send(
        self, request: Request, response_class: type[R], *, version: int | None = None, expect_reply: bool = True
    ) -> PendingCall[R]:
        """Queues a request, of the newest version that both sides know if none is given.

        Raises `ConnectionLostError` and `ProtocolMismatchError`.
        """
        ...

    def close(self) -> None:
        """Ends the connection: calls under way fail with `ConnectionLostError`. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to an address, within the time. Its result is a `BrokerConnection`.

    Its errors are `UnreachableError`, and what TLS and logins raise.
    """

    host: str
    port: int
    timeout_s: float


@dataclass(slots=True)
class Await:
    """Move bytes until one of the calls is done, of which none is yet, or until a time of `Clock.monotonic`.

    It has no result.
    """

    calls: Sequence[PendingCall[object]]
    until: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Let time pass, in seconds. It has no result."""

    seconds: float


Step = Connect | Await | Pause
"""What a conversation waits for."""

Steps = Generator[Step, "BrokerConnection | None", T]
"""A conversation, and the type of its result."""
