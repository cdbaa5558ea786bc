"""A network in virtual time: streams that deliver late and in pieces, break, or fall silent.

Bytes of one connection arrive in order or not at all, as in TCP. The faults of connections:
- `cut`: both ends notice that it is closed;
- `stall`: data of one end arrive late, and other connections do not wait (packets lost, and sent again);
- `silence`: neither end notices anything; what is sent is lost (a cable pulled, a machine without power);
- `partition`: machines cannot reach each other; what is sent waits, and arrives after the partition;
- `refuse`: new connections to a machine are refused, as by its firewall, and the machine works on.

A connection that is opened during a partition, or to a machine without power, is retried.
"""

from __future__ import annotations

import errno
import random
from asyncio import sleep
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.env.network import NOT_IN_MEMORY, WOULD_BLOCK, Stream
from headrace.sim.loop import WORLD
from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer

if TYPE_CHECKING:
    from headrace.env.turns import Turns
    from headrace.sim.node import SimNode
    from headrace.sim.world import World

WINDOW_BYTES: Final = 256 * 1024
"""What one direction of a connection holds, on its way and unread."""
FIRST_PORT: Final = 40_000
SYNS: Final = 7
"""How often a kernel asks for a connection before it gives up."""
SYN_AGAIN_S: Final = 1.0
"""How long it waits for the first answer, and for each further one twice as long: it asks again after 1, 3, 7 s."""


class SimStream:
    """See `env.network.Stream`: one end of a connection."""

    def __init__(self, network: SimNetwork, node: SimNode, peer_node: SimNode, peer_port: int, number: int) -> None:
        self.network = network
        self.node = node
        self.peer_node = peer_node
        self.peer_host = peer_node.host
        self.peer_port = peer_port
        self.name = f"{node.host}#{number}"
        self.peer: SimStream | None = None
        self.closed = False
        self.silent = False
        self.inbox = bytearray()
        self.eof = False
        self._error: OSError | None = None
        self.unread = 0
        """Bytes sent that the other end has not taken."""
        self._arrives_at = 0.0
        self._held: deque[bytes | None] = deque()
        """What a partition holds up, None for the end."""
        self._on_readable: Callable[[], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        self._readable_due = self._writable_due = False

    # --- what the node calls

    def receive_into(self, buffer: memoryview) -> int:
        """See Stream.receive_into."""
        self._check()
        if self.inbox:
            size = min(len(buffer), len(self.inbox), self.network.piece())
            buffer[:size] = self.inbox[:size]
            del self.inbox[:size]
            peer = self.peer
            assert peer is not None
            peer.unread -= size
            peer.wake()
            return size
        return 0 if self.eof else WOULD_BLOCK

    def send(self, parts: Sequence[Buffer], more: bool = False) -> int:
        """See Stream.send."""
        self._check()
        free = WINDOW_BYTES - self.unread
        if free <= 0:
            return WOULD_BLOCK
        data = b"".join(parts)[: min(free, self.network.piece())]
        self.unread += len(data)
        self._transmit(data)
        return len(data)

    def send_slice(self, part: FileSlice, at: int, size: int, *, may_wait: bool = False) -> int:
        """See Stream.send_slice."""
        if not may_wait and self.network.is_cold():
            return NOT_IN_MEMORY
        data = part.file.read(part.position + at, size)
        return self.send((data,)) if data else 0

    def read_slice(self, part: FileSlice, at: int, buffer: memoryview, *, may_wait: bool = False) -> int:
        """See Stream.read_slice."""
        if not may_wait and self.network.is_cold():
            return NOT_IN_MEMORY
        data = part.file.read(part.position + at, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """See Stream.on_readable."""
        self._on_readable = callback
        self.wake()

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """See Stream.on_writable."""
        self._on_writable = callback
        self.wake()

    def has_hung_up(self, unread_max: int | None = 0) -> bool:
        """See Stream.has_hung_up."""
        is_gone = self.eof or self._error is not None
        return is_gone and (unread_max is None or len(self.inbox) <= unread_max)

    def close(self) -> None:
        """See Stream.close. Bytes that nobody read make it a reset for the other side, as in TCP."""
        if self.closed:
            return
        self.closed = True
        self._on_readable = self._on_writable = None
        self.node.streams.pop(self, None)
        if self.inbox:
            self.network.reset_later(self)
        else:
            self._transmit(None)

    # --- what the network does

    def fail(self, error: OSError) -> None:
        """The connection is gone: the next call says so."""
        if not self.closed and self._error is None:
            self._error = error
            self.wake()

    def vanish(self) -> None:
        """The node behind this end has ended; what its peer learns of that is the network's business."""
        self.closed = True
        self._on_readable = self._on_writable = None

    def hold_up(self, until_s: float) -> None:
        """What is sent from now on arrives then, or later."""
        self._arrives_at = max(self._arrives_at, until_s)

    def release(self) -> None:
        """A partition is over: what it held up is on its way."""
        held, self._held = self._held, deque()
        for data in held:
            self._transmit(data)

    def _check(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "the stream is closed")
        if self._error is not None:
            raise self._error

    def _transmit(self, data: bytes | None) -> None:
        network = self.network
        if self.silent:
            return
        if self._held or network.is_cut(self.node, self.peer_node):
            self._held.append(data)
            return
        loop = network.world.loop
        # Never at the moment of what was sent before: timers that are due together come in no order.
        self._arrives_at = max(self._arrives_at + 1e-6, loop.time() + network.latency(self.node.host, self.peer_host))
        loop.call_at(self._arrives_at, self._arrive, data, context=WORLD)

    def _arrive(self, data: bytes | None) -> None:
        peer = self.peer
        assert peer is not None
        if self.silent:
            return
        if peer.closed:
            if data and self.network.world.has_power(peer.node.host):
                self.network.reset_later(peer)
            return
        size = -1 if data is None else len(data)
        self.network.world.trace.note("net", self.name, "->", peer.name, size, data=data or b"")
        if data is None:
            peer.eof = True
        else:
            peer.inbox += data
        peer.wake()

    def wake(self) -> None:
        """Schedules the callbacks whose condition holds: as long as it does, they come again."""
        if self.node in self.network.world.loop.paused:
            return  # it looks when it goes on
        ready = self.inbox or self.eof or self._error is not None
        if self._on_readable is not None and not self._readable_due and ready:
            self._readable_due = True
            self.network.world.loop.call_soon(self._call_readable, context=WORLD)
        room = self.unread < WINDOW_BYTES or self._error is not None
        if self._on_writable is not None and not self._writable_due and room:
            self._writable_due = True
            self.network.world.loop.call_soon(self._call_writable, context=WORLD)

    def _call_readable(self) -> None:
        self._readable_due = False
        if self._on_readable is not None:
            self.node.call(self._on_readable)
            self.wake()

    def _call_writable(self) -> None:
        self._writable_due = False
        if self._on_writable is not None:
            self.node.call(self._on_writable)
            self.wake()


class SimListener:
    """See `env.network.Listener`. Who knocks while it is paused waits, and before it ever went on is refused."""

    def __init__(self, network: SimNetwork, node: SimNode, port: int, on_connection: Callable[[Stream], None]) -> None:
        self.host = node.host
        self.port = port
        self.node = node
        self._network = network
        self._on_connection = on_connection
        self._paused = True
        self.listens = False
        self._waiting: deque[SimStream] = deque()

    def pause(self, paused: bool) -> None:
        """See Listener.pause."""
        self._paused = paused
        self.listens |= not paused
        while self._waiting and not self._paused:
            self.node.call(self._on_connection, self._waiting.popleft())

    def accept(self, stream: SimStream) -> None:
        """Somebody has connected."""
        if self._paused:
            self._waiting.append(stream)
        else:
            self.node.call(self._on_connection, stream)

    def close(self) -> None:
        """See Listener.close."""
        self._network.forget(self)
        for stream in self._waiting:
            stream.close()
        self._waiting.clear()


class SimConnecting:
    """See `env.network.Connecting`."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """See Connecting.cancel."""
        self.cancelled = True


class NodeNetwork:
    """See `env.network.Network`: the network as one node has it."""

    def __init__(self, network: SimNetwork, node: SimNode) -> None:
        self._network = network
        self._node = node
        self._listeners: list[SimListener] = []

    def busy_poll(self, window_s: float) -> Callable[[float], None]:
        """See Network.busy_poll: virtual time passes when nobody is awake."""
        return lambda _: None

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
    ) -> SimListener:
        """See Network.listen. To accept a connection takes no time here, so it needs no turn."""
        listener = self._network.listen(self._node, port, on_connection)
        self._listeners.append(listener)
        return listener

    def connect(
        self,
        host: str,
        port: int,
        *,
        on_connected: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
    ) -> SimConnecting:
        """See Network.connect."""
        connecting = SimConnecting()
        self._network.connect(self._node, host, port, connecting, on_connected, on_failure)
        return connecting

    def close(self) -> None:
        """See Network.close."""
        for listener in self._listeners:
            listener.close()
        for stream in list(self._node.streams):
            stream.close()


class SimNetwork:
    """All machines of a world, and what lies between them."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.latency_s = (0.0001, 0.002)
        """The bounds of how long bytes travel."""
        self.cold_chance = 0.02
        """How often a range of a file turns out not to be in memory."""
        self.small_pieces = False
        """Whether sends and receives go by a few bytes."""
        self._rng = rng
        self._numbers = 0
        self._ports = FIRST_PORT
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._slow: dict[tuple[str, str], tuple[float, float]] = {}
        self._refused: dict[tuple[str, str], None] = {}
        self._lost: list[SimStream] = []
        """Ends of connections whose other end lost its power."""

    # --- chance

    def latency(self, one: str, other: str) -> float:
        """How long the next bytes travel from one machine to another."""
        slow = self._slow.get((one, other)) if self._slow else None
        return self._rng.uniform(*(slow or self.latency_s))

    def piece(self) -> int:
        """How many bytes the next call takes at most."""
        if self.small_pieces and self._rng.random() < 0.3:
            return self._rng.randint(1, 64)
        return WINDOW_BYTES

    def is_cold(self) -> bool:
        """Whether the disk is needed for the next range of a file."""
        return self._rng.random() < self.cold_chance

    # --- machines

    def listen(self, node: SimNode, port: int, on_connection: Callable[[Stream], None]) -> SimListener:
        """Opens a port of a machine; 0 takes a free one."""
        if port == 0:
            self._ports += 1
            port = self._ports
        if (node.host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = self._listeners[(node.host, port)] = SimListener(self, node, port, on_connection)
        return listener

    def forget(self, listener: SimListener) -> None:
        """A port is closed."""
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[(listener.host, listener.port)]

    def connect(
        self,
        node: SimNode,
        host: str,
        port: int,
        connecting: SimConnecting,
        on_connected: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        """A packet goes there, and another comes back; if none does, it is sent again, as TCP does it."""
        begins_s = self.world.loop.time()

        def ask(number: int) -> None:
            if connecting.cancelled or not node.alive:
                return
            if number == SYNS:
                refused(OSError(errno.ETIMEDOUT, "Connection timed out"))
                return
            self.world.loop.call_later(self.latency(node.host, host), arrive, number, context=WORLD)

        def arrive(number: int) -> None:
            listener = self._listeners.get((host, port))
            if self._is_cut(node.host, host) or self._is_cut(host, node.host) or not self.world.has_power(host):
                again_s = begins_s + SYN_AGAIN_S * (2 ** (number + 1) - 1)
                self.world.loop.call_at(again_s, ask, number + 1, context=WORLD)
                return
            if listener is None or not listener.listens or (node.host, host) in self._refused:
                error = OSError(errno.ECONNREFUSED, "Connection refused")
                self.world.loop.call_later(self.latency(host, node.host), refused, error, context=WORLD)
                return
            self._numbers += 1
            ours = SimStream(self, node, listener.node, port, self._numbers)
            theirs = SimStream(self, listener.node, node, self._numbers, self._numbers)
            ours.peer, theirs.peer = theirs, ours
            node.streams[ours] = None
            listener.node.streams[theirs] = None
            listener.accept(theirs)
            self.world.loop.call_later(self.latency(host, node.host), connected, ours, context=WORLD)

        def refused(error: OSError) -> None:
            if not connecting.cancelled:
                node.call(on_failure, error)

        def connected(stream: SimStream) -> None:
            if connecting.cancelled or not node.alive:
                stream.close()
            else:
                node.call(on_connected, stream)

        ask(0)

    def gone(self, node: SimNode, *, power: bool) -> None:
        """A node has ended. Where its machine still runs, the other ends hear of it; without power they hear nothing
        before it is back."""
        for listener in [each for each in self._listeners.values() if each.node is node]:
            self.forget(listener)
        for stream in list(node.streams):
            peer = stream.peer
            assert peer is not None
            stream.vanish()
            if power:
                self._lost.append(peer)
            else:
                self.reset_later(stream)
        node.streams.clear()

    def power_back(self, host: str) -> None:
        """A machine runs again, and answers with a reset to those that still believe in a connection to it."""
        lost, self._lost = self._lost, []
        for stream in lost:
            if stream.peer_host != host:
                self._lost.append(stream)
            elif stream.peer is not None:
                self.reset_later(stream.peer)

    # --- faults

    def reset_later(self, stream: SimStream) -> None:
        """The other end of a stream learns that it is gone."""
        peer = stream.peer
        assert peer is not None
        if not stream.silent and not self.is_cut(stream.node, stream.peer_node):
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self.world.loop.call_later(self.latency(stream.node.host, peer.node.host), peer.fail, error, context=WORLD)

    def cut(self, stream: SimStream) -> None:
        """Breaks a connection: both ends learn it."""
        self.world.trace.note("cut", stream.name)
        assert stream.peer is not None
        for end in (stream, stream.peer):
            end.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def silence(self, stream: SimStream) -> None:
        """Breaks a connection: neither end learns it."""
        self.world.trace.note("silence", stream.name)
        assert stream.peer is not None
        stream.silent = stream.peer.silent = True

    def stall(self, stream: SimStream, lasts_s: float) -> None:
        """Holds up what one end sends from now on, for so long."""
        self.world.trace.note("stall", stream.name, lasts_s)
        stream.hold_up(self.world.loop.time() + lasts_s)

    def partition(self, one: str, other: str) -> None:
        """Nothing goes between two machines until `heal`, or `reconnect` of the two."""
        self.world.trace.note("partition", one, other)
        self._cut[(one, other)] = self._cut[(other, one)] = None

    def cut_one_way(self, one: str, other: str) -> None:
        """Nothing goes from one machine to another, and all goes back, until `heal`, or `reconnect` of the two."""
        self.world.trace.note("cut one way", one, other)
        self._cut[(one, other)] = None

    def slow_down(self, one: str, other: str, bounds_s: tuple[float, float]) -> None:
        """Bytes travel so long between two machines, until `heal`, or `reconnect` of the two."""
        self.world.trace.note("slow link", one, other, bounds_s)
        self._slow[(one, other)] = self._slow[(other, one)] = bounds_s

    def refuse(self, one: str, other: str) -> None:
        """Connections from one machine to another are refused, until `heal`, or `reconnect` of the two."""
        self.world.trace.note("refuse", one, other)
        self._refused[(one, other)] = None

    def reconnect(self, one: str, other: str) -> None:
        """Two machines reach each other as ever; what was held up goes on."""
        for pair in ((one, other), (other, one)):
            self._cut.pop(pair, None)
            self._slow.pop(pair, None)
            self._refused.pop(pair, None)
        self._release()

    def cut_off(self, host: str, hosts: Iterable[str]) -> None:
        """A `partition` between a machine and each of these but itself, until `heal`, or `rejoin`."""
        for other in hosts:
            if other != host:
                self.partition(host, other)

    def rejoin(self, host: str, hosts: Iterable[str]) -> None:
        """A machine reaches each of these as ever; what was held up goes on."""
        for other in hosts:
            if other != host:
                self.reconnect(host, other)

    async def cut_off_for(self, lasts_s: float, host: str, hosts: Collection[str]) -> None:
        """`cut_off`, and `rejoin` after a time."""
        self.cut_off(host, hosts)
        await sleep(lasts_s)
        self.rejoin(host, hosts)

    def heal(self) -> None:
        """Every machine reaches every other as ever; what was held up goes on."""
        self._cut.clear()
        self._slow.clear()
        self._refused.clear()
        self._release()

    def _release(self) -> None:
        for node in self.world.nodes():
            for stream in list(node.streams):
                stream.release()

    def is_cut(self, one: SimNode, other: SimNode) -> bool:
        """Whether a partition lies between two nodes."""
        return self._is_cut(one.host, other.host)

    def _is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self._cut
