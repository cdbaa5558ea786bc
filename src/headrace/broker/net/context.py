"""What a handler knows of who asks: principal, client, listener, and the version of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.security.authorizer import Authorizer, Operation, ResourceType
from headrace.security.login import ANONYMOUS
from headrace.wire.primitives import new

if TYPE_CHECKING:
    from headrace.broker.net.client_quotas import Meter
    from headrace.broker.net.connection import Connection


class RequestContext:
    """Who asks, over what, in which version of the API. One value a request; handlers may keep it."""

    __slots__ = (
        "api_key",
        "api_version",
        "authorizer",
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "listener",
        "meter",
        "principal",
        "remains",
        "software_name",
        "software_version",
    )

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        principal: str = ANONYMOUS,
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
        self.authorizer = authorizer
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
        self.meter: Meter | None = None
        """Of a client with quotas."""
        self.remains: list[Any] | None = None
        """Whatever holds many elements of the request, its answer or what is made in between: see `net.remains`."""

    def keep(self, thing: object) -> None:
        """Keeps what may hold many things until the request is answered: then they are freed a few at a time."""
        if self.remains is not None:
            self.remains.append(thing)

    @property
    def holder(self) -> str:
        """Whom a share is counted for: the principal, or the address of a client that has not logged in."""
        return self.client_host if self.principal == ANONYMOUS else self.principal

    def exempt(self) -> None:
        """It is a node of the cluster that asks: no quota counts."""
        if self.meter is not None:
            self.meter.exempt = True

    def authorize(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """May this principal do `operation` to the `resource` called `name`? The audit hears where he may not."""
        authorizer = self.authorizer
        allowed = authorizer.authorize(self.principal, self.client_host, operation, resource, name)
        audit = authorizer.audit
        if audit is not None and (audit.wants_allowed or not allowed):
            audit.decided(self.principal, self.client_host, operation, resource, name, self.api_key, allowed=allowed)
        return allowed

    def may(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """The same where a client has not asked for it: to leave out what it may not see, or to ask for less next."""
        return self.authorizer.authorize(self.principal, self.client_host, operation, resource, name)

    def authorize_any(self, operation: Operation, resource: ResourceType) -> bool:
        """May this principal do `operation` to at least one `resource`?"""
        return self.authorizer.authorize_any(self.principal, self.client_host, operation, resource)


def context_of(
    connection: Connection, client_id: str | None, key: int, version: int, correlation_id: int, meter: Meter | None
) -> RequestContext:
    """Of a request that came over a connection."""
    # Set one by one: this is on the way of every request, and costs a third of a call with that many names.
    context = new(RequestContext)
    context.authorizer = connection.server.requests.authorizer
    context.principal = connection.principal
    context.listener = connection.listener.name
    context.client_id = client_id
    context.client_host = connection.stream.peer_host
    context.software_name = connection.software_name
    context.software_version = connection.software_version
    context.api_key = key
    context.api_version = version
    context.correlation_id = correlation_id
    context.connection = connection
    context.meter = meter
    context.remains = None
    return context
