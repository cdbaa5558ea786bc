"""A server: its listener, its connections, and which of them gives way when there are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.env.network import Listener, Stream
from headrace.http.connection import HttpConnection
from headrace.http.exchange import Admitted, Exchange
from headrace.http.limits import HttpLimits

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node
    from headrace.http.auth import Authenticator
    from headrace.http.messages import Head
    from headrace.http.routes import Routes

RECEIVE_BYTES: Final = 8192
"""Bytes read of a connection at once."""
BACKLOG: Final = 64

Secured = Callable[[Stream], Stream]
"""Makes TLS of a connection."""


class HttpServer:
    """Serves routes at an address. `listen` begins to serve, `close` ends it."""

    def __init__(
        self,
        node: Node,
        routes: Routes,
        *,
        authenticator: Authenticator | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        """Without an authenticator everybody is served."""
        self.routes = routes
        self.limits = limits or HttpLimits()
        self.tls: Secured | None = None
        """What makes TLS of a connection; None if requests come in the clear."""
        self.owner = node.owner("http")
        self.view = memoryview(bytearray(RECEIVE_BYTES))
        """What all connections receive into; used within one call."""
        self.connections: dict[HttpConnection, None] = {}
        self.refused_connections = 0
        """Those that found all places taken, and those that the system could not accept."""
        self.future: Callable[[], Future[None]] = node.future
        self._authenticator = authenticator
        self._network = node.network
        self._defects = node.defects
        self._listener: Listener | None = None

    @property
    def port(self) -> int | None:
        """The port that it is bound to; None if it does not listen."""
        return None if self._listener is None else self._listener.port

    def listen(self, host: str, port: int) -> None:
        """Begins to serve an address. Raises OSError if it cannot be had, and then holds nothing."""
        listener = self._network.listen(
            host,
            port,
            backlog=BACKLOG,
            receive_buffer=-1,
            send_buffer=-1,
            on_connection=self._accept,
            on_failure=self._not_accepted,
        )
        try:
            listener.pause(False)
        except OSError:
            listener.close()
            raise
        self._listener = listener

    def close(self) -> None:
        """Accepts nothing more and ends every connection; more than once is harmless."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close()
        self.owner.close()

    # --- for connections

    def exchange(self, peer_host: str) -> Exchange:
        """Returns the first exchange of a connection."""
        return Exchange(self.admit, self.limits.head_bytes_max, peer_host)

    def admit(self, head: Head) -> Admitted:
        """Returns the route of a request, and who sent it. Raises Refused."""
        principal = "" if self._authenticator is None else self._authenticator.principal(head)
        route, parameters = self.routes.find(head)
        return Admitted(route, parameters, principal)

    def defect(self, error: Exception, head: Head | None) -> None:
        """Reports that a handler failed."""
        self._defects.report(error, "an HTTP request", path="" if head is None else head.path)

    def forget(self, connection: HttpConnection) -> None:
        """A connection has ended."""
        self.connections.pop(connection, None)

    # --- accepting

    def _not_accepted(self, _: OSError) -> None:
        self.refused_connections += 1

    def _accept(self, stream: Stream) -> None:
        if len(self.connections) >= self.limits.connections_max:
            self.refused_connections += 1
            gives_way = self._gives_way(stream.peer_host)
            if gives_way is None:
                stream.close()
                return
            gives_way.close()
        secured = stream if self.tls is None else self.tls(stream)
        self.connections[HttpConnection(self, secured)] = None

    def _gives_way(self, host: str) -> HttpConnection | None:
        """Returns the connection whose place a new one from an address takes."""
        idle = next((each for each in self.connections if each.idle), None)
        if idle is not None:
            return idle
        counts = Counter(each.host for each in self.connections)
        incomplete = [each for each in self.connections if not each.is_at_work]
        if incomplete:
            return max(incomplete, key=lambda each: counts[each.host])
        heaviest = max(self.connections, key=lambda each: counts[each.host])
        return heaviest if counts[heaviest.host] > counts[host] + 1 else None
