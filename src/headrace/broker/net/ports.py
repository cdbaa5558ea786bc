"""What the sockets' room needs of those behind it: it knows them by these shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headrace.broker.net.connection import Connection
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
    """The short way of Produce requests that came together (see `requests/produce_run.py`). One for all connections."""

    @property
    def entries(self) -> Sized:
        """The requests taken since the last `finish`."""
        ...

    @property
    def shape(self) -> Any:
        """Of the last request that `add` took; None where the next one cannot be compared with it."""
        ...

    def add(
        self, connection: Connection, frame: memoryview, version: int, correlation_id: int, client_id_length: int
    ) -> bool:
        """Takes a request; False leaves it to the handler, and nothing has happened."""
        ...

    def add_alike(self, shape: Any, view: memoryview, at: int, stop: int, version: int, correlation_id: int) -> bool:
        """Takes a request that differs from an earlier one in its records alone."""
        ...

    def finish(self, connection: Connection) -> None:
        """Appends what was taken, and answers it on the connection, in order."""
        ...


class ShortFetch(Protocol):
    """The short way of a connection that asks for more of what it reads (see `requests/short_fetch.py`)."""

    version: int

    def answer(self, connection: Connection, view: memoryview, at: int, stop: int, correlation_id: int) -> bool:
        """Answers the request in `view[at:stop]`; False leaves it to the handler, and nothing has happened."""
        ...


class Requests(Protocol):
    """Everything that answers requests."""

    short_produce: ShortProduce

    @property
    def authorizer(self) -> Authorizer:
        """Who decides what a principal may do."""
        ...

    @property
    def audit(self) -> AuditLog:
        """Whom failed logins are told to."""
        ...

    def served(self, role: str) -> Mapping[int, Api]:
        """The APIs that listeners of a role (`broker`, `controller`) serve, by key."""
        ...

    def login_terms(self, listener: str, config: BrokerConfig, before: LoginTerms | None = None) -> LoginTerms:
        """How clients log in, by these settings, on a listener whose protocol asks for that; what `before` offers alike
        is kept. Raises ConfigError."""
        ...

    def not_ready(self, key: int, version: int) -> Any:
        """The answer to whoever asks before it is known who may do what; None where that version's cannot say it."""
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
        """Calls back when they need not any more; to be asked while `behind`."""
        ...
