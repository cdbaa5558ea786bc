"""The network of a node in a test cluster: what it sends may be late, and what passes between two nodes may stop.

Each connection between two nodes was made by one of them, and that one holds up both directions of it while the two are
apart: it takes nothing out of the socket, keeps what is written, and does not end the connection. A delay counts at
both ends of a connection, for what comes and for what goes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.env.network import NOT_IN_MEMORY, WOULD_BLOCK

if TYPE_CHECKING:
    from headrace.env.network import Connecting, Listener, Network, Stream
    from headrace.env.turns import Turns
    from headrace.wire.file_slice import FileSlice
    from headrace.wire.primitives import Buffer

KEPT_MAX_BYTES: Final = 4 * 1024 * 1024
"""What a connection holds in each direction while it is held up; beyond it the writer waits."""
RECEIVE_BYTES: Final = 256 * 1024


class Faults:
    """The faults of the connections of one node. Anybody may set it; `changed` is called on the node's loop then.

    `apart` are the nodes that it cannot reach, `delay_s` how much longer everything to and from it takes, `peers` the
    nodes by the ports they listen on. `unfinished` takes the connections of a node that ended while it was apart from
    the other end: the other end notices when they are closed.
    """

    def __init__(self, peers: Mapping[int, int], unfinished: list[Stream]) -> None:
        self.peers = peers
        self.apart: frozenset[int] = frozenset()
        self.delay_s = 0.0
        self.unfinished = unfinished
        self.streams: dict[FaultyStream, None] = {}
        self.attempts: dict[FaultyConnecting, None] = {}

    def changed(self) -> None:
        """What was held up goes on, or what went on is held up."""
        for stream in list(self.streams):
            stream.changed()
        for attempt in list(self.attempts):
            attempt.changed()


class FaultyNetwork:
    """See `env.network.Network`: another network, with `faults`."""

    def __init__(self, network: Network, faults: Faults) -> None:
        self.faults = faults
        self._network = network
        self._listeners: list[Listener] = []

    def busy_poll(self, window_s: float) -> Callable[[float], None]:
        """See `Network`."""
        return self._network.busy_poll(window_s)

    def connect(
        self,
        host: str,
        port: int,
        *,
        on_connected: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
    ) -> Connecting:
        """See `Network`."""

        def attempt(connected: Callable[[Stream], None], failed: Callable[[OSError], None]) -> Connecting:
            return self._network.connect(host, port, on_connected=connected, on_failure=failed)

        return FaultyConnecting(self.faults, self.faults.peers.get(port), attempt, on_connected, on_failure)

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
        """See `Network`."""
        listener = self._network.listen(
            host,
            port,
            backlog=backlog,
            receive_buffer=receive_buffer,
            send_buffer=send_buffer,
            on_connection=lambda stream: on_connection(FaultyStream(stream, self.faults, None)),
            on_failure=on_failure,
            turns=turns,
        )
        self._listeners.append(listener)
        return listener

    def close(self) -> None:
        """See `Network`. Connections to nodes that are apart stay open, unread, with `faults.unfinished`."""
        for listener in self._listeners:
            listener.close()
        for attempt in list(self.faults.attempts):
            attempt.cancel()
        for stream in list(self.faults.streams):
            stream.end()


class FaultyConnecting:
    """See `env.network.Connecting`: nothing is tried while the two are apart, and nothing is reported."""

    def __init__(
        self,
        faults: Faults,
        peer: int | None,
        attempt: Callable[[Callable[[Stream], None], Callable[[OSError], None]], Connecting],
        on_connected: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self._faults = faults
        self._peer = peer
        self._attempt = attempt
        self._on_connected = on_connected
        self._on_failure = on_failure
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: Connecting | None = None
        faults.attempts[self] = None
        self.changed()

    def changed(self) -> None:
        """Tries it, if it was not tried yet and may be."""
        if self._timer is None and self._peer not in self._faults.apart:
            # There and back: a connection is made when the other end has answered.
            self._timer = asyncio.get_running_loop().call_later(2 * self._faults.delay_s, self._try)

    def _try(self) -> None:
        if self._peer in self._faults.apart:
            self._timer = None
        else:
            self._connecting = self._attempt(self._connected, self._failed)

    def _connected(self, stream: Stream) -> None:
        del self._faults.attempts[self]
        self._on_connected(FaultyStream(stream, self._faults, self._peer))

    def _failed(self, error: OSError) -> None:
        del self._faults.attempts[self]
        self._on_failure(error)

    def cancel(self) -> None:
        """See `Connecting`."""
        self._faults.attempts.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()


class FaultyStream:
    """See `env.network.Stream`: another stream, and what is held up of it. `peer` is the node at the other end, if this
    one made the connection; None if the peer connected."""

    def __init__(self, stream: Stream, faults: Faults, peer: int | None) -> None:
        self.peer_host, self.peer_port = stream.peer_host, stream.peer_port
        self._stream = stream
        self._faults = faults
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._readable: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None
        self._inbox: deque[tuple[float, memoryview]] = deque()
        """What has come, with the time from which on it can be received; an empty one is the end, and stays."""
        self._outbox: deque[tuple[float, memoryview]] = deque()
        self._outbox_bytes = 0
        self._has_ended = False
        """Nothing comes any more."""
        self._error: OSError | None = None
        self._closed = False
        self._delivery: asyncio.TimerHandle | None = None
        self._departure: asyncio.TimerHandle | None = None
        faults.streams[self] = None

    @property
    def _is_cut(self) -> bool:
        return self._peer in self._faults.apart

    def changed(self) -> None:
        """The faults are others than they were."""
        self._depart()
        if not self._closed:
            self._listen()
            self.on_writable(self._writable)

    # --- what comes

    @property
    def _in_is_held_up(self) -> bool:
        return bool(self._inbox) or self._is_cut or self._faults.delay_s > 0

    def receive_into(self, buffer: memoryview) -> int:
        """See `Stream`."""
        if not self._in_is_held_up:
            self._raise_error()
            return self._stream.receive_into(buffer)
        if self._is_cut or not self._inbox or self._inbox[0][0] > time.monotonic():
            return WOULD_BLOCK
        due, data = self._inbox[0]
        if not data:
            self._raise_error()
            return 0
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        if size < len(data):
            self._inbox[0] = due, data[size:]
        else:
            self._inbox.popleft()
        return size

    def has_hung_up(self, unread_max: int | None = 0) -> bool:
        """See `Stream`. Nothing is known of a peer while what comes is held up."""
        return not self._in_is_held_up and self._stream.has_hung_up(unread_max)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """See `Stream`."""
        self._readable = callback
        self._listen()

    def _listen(self) -> None:
        """Has the right one called when the socket can be read, and arranges for what has come and waits."""
        if self._readable is None or self._is_cut or self._has_ended:
            self._stream.on_readable(None)
        elif self._in_is_held_up:
            self._stream.on_readable(self._take_in)
        else:
            self._stream.on_readable(self._readable)
        if self._inbox and self._readable is not None and self._delivery is None and not self._is_cut:
            self._delivery = self._loop.call_at(self._inbox[0][0], self._deliver)

    def _take_in(self) -> None:
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        try:
            size = self._stream.receive_into(buffer)
        except OSError as error:
            self._error = error
            size = 0
        if size == WOULD_BLOCK:
            return
        self._has_ended = size == 0
        last = self._inbox[-1][0] if self._inbox else 0.0
        self._inbox.append((max(last, time.monotonic() + self._faults.delay_s), buffer[:size]))
        self._listen()

    def _deliver(self) -> None:
        self._delivery = None
        if self._readable is not None and self._inbox and not self._is_cut:
            self._readable()
        if not self._closed:
            self._listen()

    # --- what goes

    @property
    def _out_is_held_up(self) -> bool:
        return bool(self._outbox) or self._is_cut or self._faults.delay_s > 0

    def send(self, parts: Sequence[Buffer], more: bool = False) -> int:
        """See `Stream`."""
        self._raise_error()
        if not self._out_is_held_up:
            return self._stream.send(parts, more)
        room = KEPT_MAX_BYTES - self._outbox_bytes
        return self._keep(b"".join(parts)[:room]) if room else WOULD_BLOCK

    def send_slice(self, part: FileSlice, at: int, size: int, *, may_wait: bool = False) -> int:
        """See `Stream`."""
        self._raise_error()
        if not self._out_is_held_up:
            return self._stream.send_slice(part, at, size, may_wait=may_wait)
        room = KEPT_MAX_BYTES - self._outbox_bytes
        if not room:
            return WOULD_BLOCK
        buffer = memoryview(bytearray(min(size, room)))
        got = self._stream.read_slice(part, at, buffer, may_wait=may_wait)
        return got if got in (NOT_IN_MEMORY, 0) else self._keep(buffer[:got])

    def read_slice(self, part: FileSlice, at: int, buffer: memoryview, *, may_wait: bool = False) -> int:
        """See `Stream`."""
        return self._stream.read_slice(part, at, buffer, may_wait=may_wait)

    def _keep(self, data: Buffer) -> int:
        kept = memoryview(data)
        last = self._outbox[-1][0] if self._outbox else 0.0
        self._outbox.append((max(last, time.monotonic() + self._faults.delay_s), kept))
        self._outbox_bytes += len(kept)
        self._depart()
        return len(kept)

    def _depart(self) -> None:
        """Sends the due bytes, and arranges for the rest; then closes, if a close is pending."""
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None
        while self._outbox and not self._is_cut:
            due, data = self._outbox[0]
            if due > time.monotonic():
                self._departure = self._loop.call_at(due, self._depart)
                return
            try:
                sent = self._stream.send([data])
            except OSError as error:
                self._break(error)
                return
            if sent == WOULD_BLOCK:
                self._stream.on_writable(self._depart)
                return
            self._outbox_bytes -= sent
            self._outbox.popleft()
            if sent < len(data):
                self._outbox.appendleft((due, data[sent:]))
        if self._closed:
            self._finish()
        else:
            self.on_writable(self._writable)

    def _break(self, error: OSError) -> None:
        """Breaks the connection, which its user notices at the next call."""
        self._error = error
        self._outbox.clear()
        self._outbox_bytes = 0
        if self._closed:
            self._finish()
            return
        self._has_ended = True
        self._inbox.append((0.0, memoryview(b"")))
        self._listen()
        self.on_writable(self._writable)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """See `Stream`."""
        self._writable = callback
        if not self._out_is_held_up:
            self._stream.on_writable(callback)
            return
        waits_for_the_socket = self._outbox and not self._is_cut and self._departure is None
        self._stream.on_writable(self._depart if waits_for_the_socket else None)
        if callback is not None and self._outbox_bytes < KEPT_MAX_BYTES:
            self._loop.call_soon(self._offer, callback)

    def _offer(self, callback: Callable[[], None]) -> None:
        """There is room for more, and this one waits for that."""
        if self._writable == callback and not self._closed:
            callback()
            if self._writable == callback:
                self.on_writable(callback)

    # --- the end

    def close(self) -> None:
        """See `Stream`. What was sent leaves first, and nobody hears of the end while the two are apart."""
        if self._closed:
            return
        self._closed = True
        self._quieten()
        self._depart()

    def _quieten(self) -> None:
        self._readable = self._writable = None
        self._stream.on_readable(None)
        self._stream.on_writable(None)
        if self._delivery is not None:
            self._delivery.cancel()

    def _finish(self) -> None:
        if not self._is_cut:
            self._faults.streams.pop(self, None)
            self._stream.close()

    def end(self) -> None:
        """The node ends: what it has not sent is lost."""
        self._closed = True
        self._quieten()
        if self._departure is not None:
            self._departure.cancel()
        self._faults.streams.pop(self, None)
        if self._is_cut:
            self._faults.unfinished.append(self._stream)
        else:
            self._stream.close()
