"""What a handler sees of the broker around it: how it registers, who asks, and how an answer may come later.

A handler lives in `broker/requests/apis/kNN_name.py`, named as its module in `wire/messages`, and is imported when the
first request of its key arrives:

    @handles(ApiKey.LIST_OFFSETS)
    def handle(broker: Broker, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse: ...

It returns a response, or a `Pending` when its effect has taken place and the answer comes later, or None when nothing
is to be answered. It may be `async def` instead: then its connection takes no further request until it is done, so that
the requests of a connection take effect in their order of arrival. Replies leave in request order in every case.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import APIS, ApiKey

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

T = TypeVar("T")

Handler = Callable[..., Any]

_handlers: dict[int, Handler] = {}


def handles(key: ApiKey) -> Callable[[Handler], Handler]:
    """Registers the decorated function as the handler of one API key."""

    def register(handler: Handler) -> Handler:
        assert key not in _handlers or _handlers[key].__module__ == handler.__module__, f"two handlers for {key!r}"
        _handlers[key] = handler
        return handler

    return register


def handler_of(key: int) -> Handler:
    """The handler of a served API key; imports its module on first use."""
    handler = _handlers.get(key)
    if handler is None:
        importlib.import_module(f"headrace.broker.requests.apis.{APIS[key].module}")
        handler = _handlers[key]
    return handler


class CloseConnectionError(Exception):
    """Raised by a handler where Kafka's answer is to close the connection; the reason goes to the log line."""


class Pending(Generic[T]):
    """An answer that comes later: the handler returns it, keeps it, and resolves it exactly once."""

    __slots__ = ("_on_resolved", "abandon", "resolved", "value")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        """`abandon` is called when nobody waits for the answer any more, because the connection is gone."""
        self.resolved = False
        self.value: T | None = None
        self.abandon = abandon
        self._on_resolved: Callable[[], None] | None = None

    def resolve(self, value: T | None) -> None:
        """Gives the answer (None: nothing is sent, and the requests behind it are free to be answered)."""
        assert not self.resolved, "an answer is given once"
        self.resolved = True
        self.value = value
        if self._on_resolved is not None:
            self._on_resolved()

    def when_resolved(self, callback: Callable[[], None]) -> None:
        """Calls back once there is a value; at once if there is one already. One listener only: the connection."""
        assert self._on_resolved is None
        if self.resolved:
            callback()
        else:
            self._on_resolved = callback


class RequestContext:
    """Who asks, over what, in which version of the API. One value a request; handlers may keep it."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "listener",
        "principal",
        "software_name",
        "software_version",
    )

    def __init__(
        self,
        broker: Broker,
        *,
        principal: str = "User:ANONYMOUS",
        listener: str = "PLAINTEXT",
        client_id: str | None = None,
        client_host: str = "127.0.0.1",
        software_name: str = "",
        software_version: str = "",
        api_key: int = -1,
        api_version: int = 0,
        correlation_id: int = 0,
        connection: object = None,
    ) -> None:
        self.broker = broker
        self.principal = principal
        self.listener = listener
        self.client_id = client_id
        self.client_host = client_host
        self.software_name = software_name
        self.software_version = software_version
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.connection = connection

    def authorize(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """May this principal do `operation` to the `resource` called `name`?"""
        return self.broker.authorizer.authorize(self.principal, self.client_host, operation, resource, name)
