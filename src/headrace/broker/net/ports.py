"""The ports of `net`: the interfaces it needs of packages behind it, and those between its own parts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sized
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headrace.broker.net.answers import CloseConnectionError
    from headrace.broker.net.client_session import AnsweredConnection, ClientSession
    from headrace.broker.net.context import RequestContext
    from headrace.broker.net.logins import LoginTerms
    from headrace.broker.telemetry.audit import AuditLog
    from headrace.broker.telemetry.metrics import Counter
    from headrace.config import BrokerConfig
    from headrace.security.authorizer import Authorizer
    from headrace.wire.frame import RequestHeader
    from headrace.wire.primitives import Part


class Api(Protocol):
    """One API as a listener serves it."""

    min_version: int
    max_version: int
    flexible_from: int
    count: Counter
    decode: Callable[..., Any]
    """Decoder: (frame, version, position of the body, bound on the bytes of elements) to the request. Raises
    DecodeError."""
    handle: Callable[[Any, RequestContext], Any]
    """Handler of a request; returns a response, a `Completion`, a coroutine of either, or None for no answer."""


class ShortProduce(Protocol):
    """The short path of Produce requests that arrived together (`requests/produce_run.py`); one for all connections."""

    @property
    def entries(self) -> Sized:
        """Requests taken since the last `finish`."""
        ...

    @property
    def shape(self) -> Any:
        """Shape of the last request that `add` took; None if the next one cannot be compared with it."""
        ...

    def add(
        self,
        connection: AnsweredConnection,
        frame: memoryview,
        version: int,
        correlation_id: int,
        client_id_length: int,
    ) -> bool:
        """Takes a request; returns False, without effect, to leave it to the handler."""
        ...

    def add_alike(self, shape: Any, view: memoryview, at: int, stop: int, version: int, correlation_id: int) -> bool:
        """Takes a request if it differs from an earlier one only in its records; returns whether it did."""
        ...

    def finish(self, connection: AnsweredConnection) -> None:
        """Appends the taken requests, and answers them on the connection, in order."""
        ...


class Requests(Protocol):
    """The dispatcher of requests to their handlers."""

    short_produce: ShortProduce

    @property
    def authorizer(self) -> Authorizer:
        """Authorizer that decides whether a principal may do an operation."""
        ...

    @property
    def audit(self) -> AuditLog:
        """Log of failed logins and refused requests."""
        ...

    def served(self, role: str) -> Mapping[int, Api]:
        """Returns the APIs, by key, that listeners of a role (`broker`, `controller`) serve."""
        ...

    def login_terms(self, listener: str, config: BrokerConfig, before: LoginTerms | None = None) -> LoginTerms:
        """Returns how clients log in on a SASL listener under these settings; offers that are the same in `before` are
        kept. Raises ConfigError."""
        ...

    def not_ready(self, key: int, version: int) -> Any:
        """Returns the answer to a request that arrives before the ACLs are known; None if its version has none."""
        ...

    def unsupported_version(
        self, served: Mapping[int, Api], frame: memoryview, at: int, header: RequestHeader
    ) -> list[Part]:
        """Returns the answer to a version that does not exist; raises CloseConnectionError if Kafka sends none."""
        ...


class Pace(Protocol):
    """The pace of the disk: whether producers have to wait for it."""

    behind: bool

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Calls back once producers no longer have to wait. Called only while `behind`."""
        ...


class ServedConnection(Protocol):
    """A connection as seen by the parts of a server that delay, close or flush connections."""

    client: ClientSession
    active: bool
    closed: bool
    flush_scheduled: bool

    def block(self, why: int) -> None:
        """Stops reading for a reason of `Blocked`."""
        ...

    def unblock(self, why: int) -> None:
        """Withdraws a reason; harmless if it was not set."""
        ...

    def flush(self) -> None:
        """Sends as much as the peer takes now."""
        ...

    def close(self, why: str) -> None:
        """Closes the connection; logs `why` unless it is empty."""
        ...


class Host(Protocol):
    """The server as its connections see it."""

    def start_task(self, work: Coroutine[Any, Any, None], handler: Coroutine[Any, Any, Any]) -> None:
        """Runs `work`, which awaits `handler`."""
        ...

    def defect(self, connection: ServedConnection, key: int, version: int, error: BaseException) -> None:
        """Reports an unexpected error of a request and closes the connection."""
        ...

    def defect_beside(self, connection: ServedConnection, error: BaseException) -> None:
        """Reports an unexpected error that belongs to no request and closes the connection."""
        ...

    def end(self, connection: ServedConnection, reason: CloseConnectionError) -> None:
        """Closes a connection whose handler raised CloseConnectionError."""
        ...

    def connection_closed(self, connection: ServedConnection, why: str) -> None:
        """Forgets a connection that has closed."""
        ...
