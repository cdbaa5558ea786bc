"""The transport of a blocking client's channel: a non-blocking socket, or TLS on one (see `tls_link`).

A wait for several links at once checks `has_arrived` before it polls: OpenSSL may hold bytes that no poller knows of.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final, Protocol

BLOCKED: Final = -1
"""What `send` and `receive_into` return when nothing can be done now."""


class Link(Protocol):
    """Bytes to one broker and back. An OSError from any call means that it is gone."""

    def send(self, parts: Sequence[memoryview]) -> int:
        """Sends as much of the parts as the socket takes; bytes sent, or BLOCKED."""
        ...

    def receive_into(self, buffer: memoryview) -> int:
        """Bytes received; 0 when the broker has finished, BLOCKED when there are none now."""
        ...

    def has_arrived(self) -> bool:
        """Whether bytes can be received though the socket has none."""
        ...

    def fileno(self) -> int:
        """The socket's descriptor."""
        ...

    def close(self) -> None:
        """Closes it."""
        ...


class PlainLink:
    """A socket."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.fileno = connected.fileno
        self.close = connected.close

    def send(self, parts: Sequence[memoryview]) -> int:
        """See Link."""
        try:
            return self._socket.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            return BLOCKED

    def receive_into(self, buffer: memoryview) -> int:
        """See Link."""
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return BLOCKED

    def has_arrived(self) -> bool:
        """See Link."""
        return False
