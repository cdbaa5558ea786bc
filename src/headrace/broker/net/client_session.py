"""The client behind a request, as handlers know it: who asks, over which listener, from where, with what software.

A session lives as long as its connection, and every request of the connection has the same one. A request that another
broker forwarded has one of its own, without a connection here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headrace.config.security_table import PLAINTEXT
from headrace.security.login import ANONYMOUS

if TYPE_CHECKING:
    from headrace.broker.net.ports import Api, ShortFetch
    from headrace.security.sasl import SaslAnswer


class SaslLogin(Protocol):
    """The SASL login of a client, for the handlers of the requests that it consists of."""

    def listed(self) -> None:
        """Notes that ApiVersions was answered: before a login it is answered once."""
        ...

    def handshake(self, mechanism: str, version: int) -> SaslAnswer:
        """Returns the answer to SaslHandshake, which names the mechanism."""
        ...

    def authenticate(self, token: bytes, response_of: Callable[[SaslAnswer], Any]) -> Any:
        """Returns what the handler returns for a token: the response that `response_of` makes, or the promise of it.
        Raises CloseConnectionError."""
        ...

    def settle(self, answer: SaslAnswer, response: Any) -> Any:
        """Returns what the handler returns after a step of the login: `response`, or the promise of it if the login
        failed."""
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
        served: Mapping[int, Api] | None = None,
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
        self.served: Mapping[int, Api] = served or {}
        """The APIs that the listener serves, by key."""
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.principal = principal
        """ANONYMOUS before a login, and without one."""
        self.via = via
        """The session of the broker that forwarded the request, and says what the client's address is (KIP-590); None
        if the client itself is connected."""
        self.is_token = is_token
        """Whether the client logged in by a delegation token (KIP-48)."""
        self.software_name = ""
        self.software_version = ""
        self.login: SaslLogin | None = None
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
