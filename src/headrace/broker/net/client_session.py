"""The client behind a request, as handlers see it: principal, listener, address and software.

A session lives as long as its connection, and all requests of the connection share it. A forwarded request has a
session of its own, without a connection to this broker.
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
    """The part of the shared connection state that the short paths use."""

    times: RequestTimes | None
    scratch: memoryview


class AnsweredConnection(Protocol):
    """A connection as the short paths of Produce and Fetch answer on it."""

    client: ClientSession
    closed: bool

    @property
    def shared(self) -> ShortPathState: ...

    def answer(self, key: int, version: int, correlation_id: int, size: int, result: Any) -> None:
        """Takes, in order, the answer to a request whose frame was `size` bytes, or its completion."""
        ...

    def answer_bytes(self, key: int, version: int, correlation_id: int, frame: bytes | bytearray) -> None:
        """Queues, in order, an encoded frame, or several concatenated frames."""
        ...

    def send_at_once(self, buffers: list[Buffer]) -> int:
        """Sends as much of an answer as the peer takes, unless an earlier answer is queued; returns the bytes sent."""
        ...

    def answer_records(self, parts: list[Part], sent: int) -> None:
        """Queues, in order, the frame of an answer that contains file ranges; its first `sent` bytes have been sent."""
        ...

    def close(self, why: str) -> None:
        """Closes the connection; logs `why` unless it is empty."""
        ...


class ShortFetch(Protocol):
    """The short path of a connection that continues to read the same partitions (`requests/short_fetch.py`)."""

    version: int

    def answer(self, connection: AnsweredConnection, view: memoryview, at: int, stop: int, correlation_id: int) -> bool:
        """Answers the request in `view[at:stop]`; returns False, without effect, to leave it to the handler."""
        ...


class LoginPort(Protocol):
    """The SASL login of a client, for the handlers of SaslHandshake and SaslAuthenticate."""

    def listed(self) -> None:
        """Notes that ApiVersions was answered: before a login it is answered only once."""
        ...

    def handshake(self, mechanism: str, version: int) -> SaslAnswer:
        """Returns the answer to SaslHandshake, which names the mechanism."""
        ...

    def authenticate(self, token: bytes, response_of: Callable[[SaslAnswer], Any]) -> Any:
        """Returns the result for a token: the response made by `response_of`, now or later. Raises
        CloseConnectionError."""
        ...

    def settle(self, answer: SaslAnswer, response: Any) -> Any:
        """Returns the handler's result after a step of the login: `response`, or a completion of it if the login
        failed. Raises CloseConnectionError."""
        ...


class ClientSession:
    """A client's state over its connection. The connection, the login and ApiVersions fill it in; handlers read it."""

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
        """Name of the listener that received the request."""
        self.protocol = protocol
        """Security protocol of the listener."""
        self.served = served
        """Keys of the APIs that the listener serves."""
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.principal = principal
        """Principal of the client; ANONYMOUS before a login or without one."""
        self.via = via
        """Session of the broker that forwarded the request and vouches for the client's address (KIP-590); None if the
        client is connected here."""
        self.is_token = is_token
        """Whether the client logged in with a delegation token (KIP-48)."""
        self.software_name = ""
        self.software_version = ""
        self.login: LoginPort | None = None
        """The client's SASL login; None if the listener does not use SASL."""
        self.short_fetch: ShortFetch | None = None
        """Short path for the connection's next Fetch requests, prepared by the Fetch handler."""
        self.closed = False
        """Whether the client's connection to this broker has ended."""
        self.on_closed: Callable[[], None] | None = None
        """Callback for the end of the connection, called once."""

    @property
    def is_forwarded(self) -> bool:
        """Whether another broker forwarded the request."""
        return self.via is not None

    @property
    def is_gone(self) -> bool:
        """Whether the answer has no receiver any more: the connection that carried the request has ended."""
        return self.closed if self.via is None else self.via.closed
