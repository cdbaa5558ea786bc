"""The context of a request for its handler: client, principal, listener, and API version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.client_session import ClientSession
from headrace.security.authorizer import Authorizer, Operation, ResourceType
from headrace.security.login import ANONYMOUS
from headrace.wire.primitives import new

if TYPE_CHECKING:
    from headrace.broker.net.client_quotas import Meter


class RequestContext:
    """The client of a request and its API version. Made for each request; handlers may keep it."""

    __slots__ = (
        "api_key",
        "api_version",
        "authorizer",
        "client",
        "client_host",
        "client_id",
        "correlation_id",
        "kept_bytes",
        "listener",
        "meter",
        "principal",
        "remains",
    )

    def __init__(
        self,
        authorizer: Authorizer,
        client: ClientSession | None = None,
        *,
        client_id: str | None = None,
        api_key: int = -1,
        api_version: int = 0,
        correlation_id: int = 0,
    ) -> None:
        self.authorizer = authorizer
        self.client = ClientSession() if client is None else client
        self.principal = self.client.principal
        """Principal of the client when it sent the request."""
        self.listener = self.client.listener
        self.client_id = client_id
        self.client_host = self.client.peer_host
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.meter: Meter | None = None
        """Meter of the request; None if no quota applies."""
        self.kept_bytes = 0
        """Bytes of the request budget that are held until the objects in `remains` are freed."""
        self.remains: list[Any] | None = None
        """Large objects of the request and its answer, to be freed later (see `net.remains`); None if none are
        collected."""

    def keep(self, thing: object) -> None:
        """Keeps a large object until the request is answered; then its elements are freed a few at a time."""
        if self.remains is not None:
            self.remains.append(thing)

    @property
    def holder(self) -> str:
        """Name under which a share of a bound is counted: the principal, or the address of an anonymous client."""
        return self.client_host if self.principal == ANONYMOUS else self.principal

    def exempt(self) -> None:
        """Exempts the request from quotas, because a node of the cluster sent it."""
        if self.meter is not None:
            self.meter.exempt = True

    def authorize(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Returns whether the principal may do `operation` to the `resource` of that name. The audit records
        refusals."""
        authorizer = self.authorizer
        allowed = authorizer.authorize(self.principal, self.client_host, operation, resource, name)
        audit = authorizer.audit
        if audit is not None and (audit.wants_allowed or not allowed):
            audit.decided(self.principal, self.client_host, operation, resource, name, self.api_key, allowed=allowed)
        return allowed

    def may(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Returns the same as `authorize`, without an audit record: for filtering answers."""
        return self.authorizer.authorize(self.principal, self.client_host, operation, resource, name)

    def authorize_any(self, operation: Operation, resource: ResourceType) -> bool:
        """Returns whether the principal may do `operation` to at least one `resource`."""
        return self.authorizer.authorize_any(self.principal, self.client_host, operation, resource)


def context_of(
    authorizer: Authorizer,
    client: ClientSession,
    client_id: str | None,
    key: int,
    version: int,
    correlation_id: int,
    meter: Meter | None,
) -> RequestContext:
    """Returns the context of a request that came over a connection."""
    # Assigned one by one: every request needs a context, and a call with that many arguments costs a third of it.
    context = new(RequestContext)
    context.authorizer = authorizer
    context.client = client
    context.principal = client.principal
    context.listener = client.listener
    context.client_id = client_id
    context.client_host = client.peer_host
    context.api_key = key
    context.api_version = version
    context.correlation_id = correlation_id
    context.meter = meter
    context.kept_bytes = 0
    context.remains = None
    return context
