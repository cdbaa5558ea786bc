"""One open listener: its address, the APIs that it serves, and how its clients log in."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.wire.address import address_text
from headrace.wire.apis import ApiKey

if TYPE_CHECKING:
    from headrace.broker.net.logins import LoginTerms
    from headrace.broker.net.ports import Api
    from headrace.broker.net.tls import ListenerTls
    from headrace.config import Endpoint
    from headrace.env.network import Listener


class OpenListener:
    """A bound listener; `accepts` is set once clients can connect."""

    def __init__(
        self, endpoint: Endpoint, served: Mapping[int, Api], is_controller: bool, tls: ListenerTls | None = None
    ) -> None:
        self.endpoint = endpoint
        self.tls = tls
        self.is_controller = is_controller
        self.accepts = False
        self.name = endpoint.name
        self.served = served
        self.produces = ApiKey.PRODUCE in served
        self.listener: Listener | None = None
        self.login_terms: LoginTerms | None = None
        """How clients log in; None if they need not."""

    @property
    def host(self) -> str:
        """Address that the listener is bound to."""
        assert self.listener is not None
        return self.listener.host

    @property
    def port(self) -> int:
        """Port that the listener is bound to; chosen by the system if port 0 was asked for."""
        assert self.listener is not None
        return self.listener.port

    def close_sources(self) -> None:
        """Closes the credential sources of the listener's mechanisms."""
        if self.login_terms is not None:
            self.login_terms.close_sources()


class CannotListen(OSError):
    """Raised if an address cannot be bound; the text is one line: address, reason and remedy."""

    def __init__(self, name: str, host: str, port: int, error: OSError) -> None:
        why = _WHY.get(error.errno or 0, error.strerror or str(error))
        super().__init__(
            f"listener {name} cannot listen on {address_text(host, port)}: {why}; give another address with "
            "--listen HOST:PORT, or in `listeners`"
        )


_WHY: Mapping[int, str] = {
    errno.EADDRINUSE: "another program listens there (address already in use)",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "ports below 1024 need a privilege",
}
