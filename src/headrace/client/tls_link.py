"""TLS under a blocking client's channel."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

from headrace.client.link import BLOCKED
from headrace.client.security import Tls


class TlsLink:
    """TLS on a socket; the handshake is over."""

    def __init__(self, connected: socket.socket, tls: Tls, host: str) -> None:
        """Shakes hands, for as long as the socket's own time limit allows. Raises OSError (ssl.SSLError)."""
        self._socket = tls.context.wrap_socket(connected, server_hostname=tls.name_of(host))
        self._socket.setblocking(False)
        self.fileno = self._socket.fileno
        self.close = self._socket.close

    def send(self, parts: Sequence[memoryview]) -> int:
        """See Link. One record at a time: OpenSSL wants the same bytes again where the socket was full."""
        try:
            return self._socket.send(parts[0])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return BLOCKED

    def receive_into(self, buffer: memoryview) -> int:
        """See Link."""
        have = 0
        try:
            while have < len(buffer):
                got = self._socket.recv_into(buffer[have:])
                if not got:
                    return have
                have += got
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return have or BLOCKED
        return have

    def has_arrived(self) -> bool:
        """See Link."""
        return bool(self._socket.pending())
