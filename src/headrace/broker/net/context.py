"""What a handler knows of who asks: principal, client, listener, and the version of the API."""

from __future__ import annotations

from headrace.security.authorizer import Authorizer, Operation, ResourceType


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
        "principal",
        "software_name",
        "software_version",
    )

    def __init__(
        self,
        authorizer: Authorizer,
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

    def authorize(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """May this principal do `operation` to the `resource` called `name`?"""
        return self.authorizer.authorize(self.principal, self.client_host, operation, resource, name)
