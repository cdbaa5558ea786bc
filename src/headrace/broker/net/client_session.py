"""The client behind a request, as handlers know it: who asks, over which listener, from where, with what software.

A session lives as long as its connection, and every request of the connection has the same one. A request that another
broker forwarded has one of its own, without a connection here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from headrace.config.security_table import PLAINTEXT
from headrace.security.login import ANONYMOUS

if TYPE_CHECKING:
    from headrace.broker.telemetry.request_times import RequestTimes
    from headrace.security.sasl import SaslAnswer
    from headrace.wire.primitives import Buffer, Part


class ShortPathState(Protocol):
    """The shared state of connections as the short paths use it."""

    times: RequestTimes | None
    scratch: memoryview


class AnsweredConnection(Protocol):
    """A connection as the short paths of Produce and Fetch answer on it."""

    client: ClientSession
    closed: bool

    @property
    def shared(self) -> ShortPathState: ...

    def answer(self, key: int, version: int, correlation_id: int, size: int, result: Any) -> None:
        """Takes the answer to a request whose frame was `size` bytes, or its completion, in its turn."""
        ...

    def answer_bytes(self, key: int, version: int, correlation_id: int, frame: bytes | bytearray) -> None:
        """Queues a frame that is encoded already, in its turn; or several, one behind the other."""
        ...

    def send_at_once(self, buffers: list[Buffer]) -> int:
        """Sends an answer as far as the peer takes it, unless another has to leave first; returns the bytes sent."""
        ...

    def answer_records(self, parts: list[Part], sent: int) -> None:
        """Queues the frame of an answer around ranges of files, in its turn; its first `sent` bytes have left."""
        ...

    def close(self, why: str) -> None:
        """Closes the connection; one log line says why, unless that is empty."""
        ...


class ShortFetch(Protocol):
    """The short path of a connection that asks for more of what it reads (see `requests/short_fetch.py`)."""

    version: int

    def answer(self, connection: AnsweredConnection, view: memoryview, at: int, stop: int, correlation_id: int) -> bool:
        """Answers the request in `view[at:stop]`; False leaves it to the handler, and nothing has happened."""
        ...


class LoginPort(Protocol):
    """The SASL login of a client, for the handlers of the requests that it consists of."""

    def listed(self) -> None:
        """Notes that ApiVersions was answered: before a login it is answered once."""
        ...

    def handshake(self, mechanism: str, version: int) -> SaslAnswer:
        """Returns the answer to SaslHandshake, which names the mechanism."""
        ...

    def authenticate(self, token: bytes, response_of: Callable[[SaslAnswer], Any]) -> Any:
        """Returns what the handler returns for a token: the response that `response_of` makes, now or later. Raises
        CloseConnectionError."""
        ...

    def settle(self, answer: SaslAnswer, response: Any) -> Any:
        """Returns what the handler returns after a step of the login: `response`, or its completion if the login
        failed. Raises CloseConnectionError."""
        ...


class ClientSession:
    """See the module. The connection, the login and ApiVersions set what is not known at first; handlers read."""

    __slots__ = (
        "closed",
        "is_token",
        "listener",
        "login",
        "on_closed",
        "peer_host",
        "peer_port",
        "principal",
        "protocol",
        "served",
        "short_fetch",
        "software_name",
        "software_version",
        "via",
    )

    def __init__(
        self,
        listener: str = PLAINTEXT,
        protocol: str = PLAINTEXT,
        served: Collection[int] = (),
        *,
        peer_host: str = "127.0.0.1",
        peer_port: int = -1,
        principal: str = ANONYMOUS,
        is_token: bool = False,
        via: ClientSession | None = None,
    ) -> None:
        self.listener = listener
        """The name of the listener that the request came by."""
        self.protocol = protocol
        """The listener's security protocol."""
        self.served = served
        """The keys of the APIs that the listener serves."""
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.principal = principal
        """ANONYMOUS before a login, and without one."""
        self.via = via
        """The session of the broker that forwarded the request, and vouches for the client's address (KIP-590); None
        if the client itself is connected."""
        self.is_token = is_token
        """Whether the client logged in by a delegation token (KIP-48)."""
        self.software_name = ""
        self.software_version = ""
        self.login: LoginPort | None = None
        """None if the listener's clients need not log in by SASL."""
        self.short_fetch: ShortFetch | None = None
        """The short path of its next Fetch requests, which the handler of a Fetch prepares."""
        self.closed = False
        """Whether the client's own connection has ended."""
        self.on_closed: Callable[[], None] | None = None
        """Called once when the connection ends."""

    @property
    def is_forwarded(self) -> bool:
        """Whether another broker forwarded the request."""
        return self.via is not None

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for an answer any longer: the connection that the request came over has ended."""
        return self.closed if self.via is None else self.via.closed
