"""Connections, as the rest of the broker sees them: non-blocking byte streams that say when they can be read or
written.

Nothing here waits. A stream belongs to the event loop that accepted it and is used from that loop alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headrace.env.turns import Turns
from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer

WOULD_BLOCK: Final = -1
"""What `Stream.receive_into`, `send` and `send_slice` return when nothing can be done now."""
NOT_IN_MEMORY: Final = -2
"""What `Stream.send_slice` returns when the next bytes of the file would have to come from the disk."""

READ_AHEAD_BYTES: Final = 1024 * 1024
"""Bytes read ahead at once for a reader of cold data."""


class Stream(Protocol):
    """One connection. An `OSError` from any call means that it is gone."""

    peer_host: str
    peer_port: int

    def receive_into(self, buffer: memoryview) -> int:
        """Bytes received; 0 when the peer has finished; WOULD_BLOCK when there are none now."""
        ...

    def send(self, parts: Sequence[Buffer], more: bool = False) -> int:
        """Sends as much of the parts, in order, as the other side takes; bytes sent, or WOULD_BLOCK.

        `more`: the next call follows at once, so that a packet need not leave for these bytes alone.
        """
        ...

    def send_slice(self, part: FileSlice, at: int, size: int, *, may_wait: bool = False) -> int:
        """Sends up to `size` bytes from the `at`-th of a slice without reading them into Python.

        Returns the bytes sent, WOULD_BLOCK, 0 when the file ends before the slice does, or NOT_IN_MEMORY when sending
        would wait for the disk: then read the next READ_AHEAD_BYTES on a worker and send with `may_wait`.
        """
        ...

    def read_slice(self, part: FileSlice, at: int, buffer: memoryview, *, may_wait: bool = False) -> int:
        """Fills `buffer` from the `at`-th byte of a slice on: fewer bytes where the file ends, or NOT_IN_MEMORY."""
        ...

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Calls back whenever there is something to receive; None stops that."""
        ...

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back whenever something can be sent; None stops that."""
        ...

    def has_hung_up(self, unread_max: int | None = 0) -> bool:
        """Returns whether the peer has ended, or reset, the connection and left at most `unread_max` bytes unread
        (None: however many). For a stream that is not read from: it reads nothing."""
        ...

    def close(self) -> None:
        """Closes at once; more than once is harmless."""
        ...


class Listener(Protocol):
    """An address that is taken. It is paused at first, and until it goes on for the first time nobody can connect."""

    host: str
    port: int

    def pause(self, paused: bool) -> None:
        """Stops accepting connections, or goes on. Raises OSError where another program listens there by then."""
        ...

    def close(self) -> None:
        """Stops listening; accepted connections live on."""
        ...


class Connecting(Protocol):
    """A connection that is being made."""

    def cancel(self) -> None:
        """Gives up; neither callback is called any more. Harmless when one was."""
        ...


class Network(Protocol):
    """Where connections come from and go to."""

    def connect(
        self,
        host: str,
        port: int,
        *,
        on_connected: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
    ) -> Connecting:
        """Connects to an address, later: one of the two is called then, unless that was cancelled.

        It has no time limit of its own: the caller sets one.
        """
        ...

    def close(self) -> None:
        """Closes every listener and every connection."""
        ...

    def busy_poll(self, window_s: float) -> Callable[[float], None]:
        """What to call after a readable event was handled, with the monotonic time in seconds: the loop then looks for
        the next one for up to `window_s` before it sleeps, as far as that turns out to pay."""
        ...

    def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int,
        receive_buffer: int,
        send_buffer: int,
        on_connection: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
        turns: Turns | None = None,
    ) -> Listener:
        """Takes an address to listen on; port 0 takes a free one, an empty host every interface.

        Buffer sizes are in bytes, -1 leaves them to the system. `on_failure` hears of a connection that could not be
        accepted. With `turns` connections are accepted when they say so. Raises OSError when the address cannot be had.
        """
        ...
