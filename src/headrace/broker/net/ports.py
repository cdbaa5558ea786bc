"""The ports of `net`: what it needs of the packages behind it, and what its own parts need of each other."""

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
    """(frame, version, position of the body, most bytes of elements) to the request. Raises DecodeError."""
    handle: Callable[[Any, RequestContext], Any]
    """Answers a request: a response, a `Completion`, a coroutine of either, or None where nothing is to be answered."""


class ShortProduce(Protocol):
    """The short path of Produce requests that came together: `requests/produce_run.py`. One for all connections."""

    @property
    def entries(self) -> Sized:
        """The requests taken since the last `finish`."""
        ...

    @property
    def shape(self) -> Any:
        """That of the last request that `add` took; None if the next one cannot be compared with it."""
        ...

    def add(
        self,
        connection: AnsweredConnection,
        frame: memoryview,
        version: int,
        correlation_id: int,
        client_id_length: int,
    ) -> bool:
        """Takes a request; False leaves it to the handler, and nothing has happened."""
        ...

    def add_alike(self, shape: Any, view: memoryview, at: int, stop: int, version: int, correlation_id: int) -> bool:
        """Takes a request that differs from an earlier one in its records alone."""
        ...

    def finish(self, connection: AnsweredConnection) -> None:
        """Appends what was taken, and answers it on the connection, in order."""
        ...


class Requests(Protocol):
    """Everything that answers requests."""

    short_produce: ShortProduce

    @property
    def authorizer(self) -> Authorizer:
        """Decides what a principal may do."""
        ...

    @property
    def audit(self) -> AuditLog:
        """The log of failed logins and refused requests."""
        ...

    def served(self, role: str) -> Mapping[int, Api]:
        """The APIs that listeners of a role (`broker`, `controller`) serve, by key."""
        ...

    def login_terms(self, listener: str, config: BrokerConfig, before: LoginTerms | None = None) -> LoginTerms:
        """How clients log in, by these settings, on a listener whose protocol asks for that; what `before` offers alike
        is kept. Raises ConfigError."""
        ...

    def not_ready(self, key: int, version: int) -> Any:
        """Returns the answer to a request that comes before the ACLs are known; None if its version has none."""
        ...

    def unsupported_version(
        self, served: Mapping[int, Api], frame: memoryview, at: int, header: RequestHeader
    ) -> list[Part]:
        """The answer to a version that does not exist; raises CloseConnectionError where Kafka has none."""
        ...


class Pace(Protocol):
    """Whether producers have to wait for the disk."""

    behind: bool

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Calls back once they no longer have to; to be called while `behind`."""
        ...


class ServedConnection(Protocol):
    """A connection as the parts of a server see it that delay, close or flush connections."""

    client: ClientSession
    active: bool
    closed: bool
    flush_scheduled: bool

    def block(self, why: int) -> None:
        """Stops reading for a reason of `Blocked`."""
        ...

    def unblock(self, why: int) -> None:
        """Withdraws a reason; harmless if it was none."""
        ...

    def flush(self) -> None:
        """Sends what can be sent now."""
        ...

    def close(self, why: str) -> None:
        """Closes the connection; one log line says why, unless that is empty."""
        ...


class Host(Protocol):
    """The server, as a connection reports to it."""

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
        """Closes a connection whose request is answered so."""
        ...

    def connection_closed(self, connection: ServedConnection, why: str) -> None:
        """Forgets a connection that has closed."""
        ...
