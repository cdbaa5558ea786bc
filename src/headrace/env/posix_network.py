"""The real sockets and worker threads: `env/network.py` and `env/workers.py` on an asyncio event loop.

The sockets are driven raw (`recv_into`, `sendmsg`, `sendfile`) from the loop's readiness callbacks: a transport would
copy every byte once more, and `loop.sendfile` costs 40 us a call.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from headrace.env.completion import Completion, CompletionQueue
from headrace.env.network import NOT_IN_MEMORY, WOULD_BLOCK, Stream
from headrace.env.posix import open_files_limit, reserved_descriptors
from headrace.env.posix_page_cache import NOWAIT, in_memory
from headrace.env.turns import Turns
from headrace.env.workers import Raised
from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer

T = TypeVar("T")

IOV_MAX: Final = 1024
"""Parts that one sendmsg takes (Linux)."""
ACCEPTS_PER_EVENT: Final = 4
"""Connections that are accepted at once: each costs some 50 us, and others wait."""
ACCEPT_RETRY_S: Final = 0.5
"""How long the listener rests when a connection could not be accepted, or would take a descriptor of the reserve."""

CONTENDED_S: Final = 50e-6
"""A processor that was offered and comes back later than this is wanted by somebody with work to do."""
BUSY_POLL_MISSES_MAX: Final = 10
"""After this many vain moments in a row one event in a thousand is followed by another try."""


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Runs a program on an event loop of its own: uvloop's where it is installed, else asyncio's.

    Measured on a broker, in CPU time a request: 16 KB fetches 53 us against 75 us, produce with one request in flight
    25 against 28, with fifty in flight the same. Most of a pipelined request is not the loop's.
    """
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


class PosixStream:
    """A non-blocking TCP socket on the running event loop."""

    __slots__ = ("_descriptor", "_loop", "_open", "_reads", "_socket", "_writes", "peer_host", "peer_port")

    def __init__(
        self,
        connected: socket.socket,
        peer: tuple[str, int],
        loop: asyncio.AbstractEventLoop,
        streams: dict[PosixStream, None],
    ) -> None:
        """`streams` are those that are open: it enters itself there, and leaves when it closes."""
        self.peer_host, self.peer_port = peer
        self._open = streams
        streams[self] = None
        self._socket = connected
        self._descriptor = connected.fileno()
        self._loop = loop
        self._reads = False
        self._writes = False

    def receive_into(self, buffer: memoryview) -> int:
        """See `Stream`."""
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def send(self, parts: Sequence[Buffer], more: bool = False) -> int:
        """See `Stream`."""
        try:
            if len(parts) == 1:
                return self._socket.send(parts[0], socket.MSG_MORE if more else 0)
            return self._socket.sendmsg(parts[:IOV_MAX], (), socket.MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def send_slice(self, part: FileSlice, at: int, size: int, *, may_wait: bool = False) -> int:
        """See `Stream`."""
        file = part.file.fileno()
        position = part.position + at
        if not may_wait and not in_memory(file, position, size):
            return NOT_IN_MEMORY
        try:
            return os.sendfile(self._descriptor, file, position, size)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def read_slice(self, part: FileSlice, at: int, buffer: memoryview, *, may_wait: bool = False) -> int:
        """See `Stream`."""
        file = part.file.fileno()
        position = part.position + at
        flags = 0 if may_wait else NOWAIT
        done = 0
        while done < len(buffer):
            try:
                got = os.preadv(file, [buffer[done:]], position + done, flags)
            except BlockingIOError:
                return NOT_IN_MEMORY
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP or not flags:
                    raise
                flags = 0
                continue
            if not got:
                break
            done += got
        return done

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """See `Stream`."""
        if callback is not None:
            self._loop.add_reader(self._descriptor, callback)
            self._reads = True
        elif self._reads:
            self._loop.remove_reader(self._descriptor)
            self._reads = False

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """See `Stream`."""
        if callback is not None:
            self._loop.add_writer(self._descriptor, callback)
            self._writes = True
        elif self._writes:
            self._loop.remove_writer(self._descriptor)
            self._writes = False

    def has_hung_up(self, unread_max: int | None = 0) -> bool:
        """See `Stream`."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLRDHUP)
        if not poll.poll(0):
            return False
        if unread_max is None:
            return True
        try:
            return len(self._socket.recv(unread_max + 1, socket.MSG_PEEK)) <= unread_max
        except OSError:
            return True

    def close(self) -> None:
        """See `Stream`."""
        self.on_readable(None)
        self.on_writable(None)
        self._open.pop(self, None)
        self._socket.close()


class BusyPoll:
    """Keeps the event loop awake for a moment after it served something, where that pays.

    A request that follows an answer at once finds the loop polling instead of asleep: on a virtual machine waking a
    sleeping processor costs more than serving the request. Other processes get the processor between two polls; if one
    wants it for long there is too much to do for polling, and the moment ends. The moments that nothing came of, and
    those that ended so, double the number of events that pass without one.
    """

    __slots__ = ("_came", "_loop", "_misses", "_pause", "_polling", "_until", "window_s")

    def __init__(self, window_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.window_s = window_s
        self._loop = loop
        self._until = 0.0
        self._polling = False
        self._came = False
        self._misses = 0
        self._pause = 0

    def served(self, now: float) -> None:
        """Something was received and handled by `now`."""
        if self._polling:
            self._came = True
        elif self._pause:
            self._pause -= 1
            return
        else:
            self._polling = True
            self._came = False
            self._loop.call_soon(self._look)
        self._until = now + self.window_s

    def _look(self) -> None:
        """Called in every turn of the loop, which looks for events each time and waits for none."""
        now = time.monotonic()
        if now < self._until:
            os.sched_yield()
            if time.monotonic() - now < CONTENDED_S:
                self._loop.call_soon(self._look)
                return
            self._came = False
        self._polling = False
        self._misses = 0 if self._came else min(self._misses + 1, BUSY_POLL_MISSES_MAX)
        self._pause = (1 << self._misses) - 1


class PosixListener:
    """A listening socket on the running event loop."""

    def __init__(
        self,
        bound: socket.socket,
        backlog: int,
        loop: asyncio.AbstractEventLoop,
        on_connection: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
        turns: Turns | None,
        streams: dict[PosixStream, None],
    ) -> None:
        self._streams = streams
        self.host, self.port = bound.getsockname()[:2]
        self._socket = bound
        self._backlog = backlog
        self._loop = loop
        self._on_connection = on_connection
        self._on_failure = on_failure
        self._turns = turns
        self._listens = False
        self._paused = True
        self._turn_is_scheduled = False
        self._watches = False
        self._closed = False

    def pause(self, paused: bool) -> None:
        """See `Listener`."""
        if self._closed or paused == self._paused:
            return
        if not paused and not self._listens:
            self._socket.listen(self._backlog)
            self._listens = True
        self._paused = paused
        self._watch()

    def _watch(self) -> None:
        wanted = not self._paused and not self._turn_is_scheduled
        if wanted == self._watches:
            return
        self._watches = wanted
        if wanted:
            self._loop.add_reader(self._socket.fileno(), self._knocked)
        else:
            self._loop.remove_reader(self._socket.fileno())

    def close(self) -> None:
        """See `Listener`."""
        if not self._closed:
            self.pause(True)
            self._closed = True
            self._socket.close()

    def _knocked(self) -> None:
        """Somebody wants to come in. Until it has its turn it is not looked at."""
        if self._turns is None:
            self._accept()
        else:
            self._turn_is_scheduled = True
            self._watch()
            self._turns.ask(self._turn)

    def _turn(self) -> None:
        self._accept()
        self._turn_is_scheduled = False
        if not self._closed:
            self._watch()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_EVENT):
            if self._paused or self._closed:
                return
            try:
                self._leave_reserve()
                connected, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_failure(error)
                self.pause(True)
                self._loop.call_later(ACCEPT_RETRY_S, self.pause, False)
                return
            try:
                connected.setblocking(False)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                connected.close()
                continue
            self._on_connection(PosixStream(connected, (peer[0], peer[1]), self._loop, self._streams))

    def _leave_reserve(self) -> None:
        """Raises OSError where the next connection would take one of the reserved descriptors.

        The system gives out the lowest free number. So the highest ones are the reserve, and no connection gets one.
        """
        limit = open_files_limit()
        next_free = os.dup(self._socket.fileno())
        os.close(next_free)
        if next_free >= limit - reserved_descriptors():
            raise OSError(
                errno.EMFILE,
                f"{next_free} of {limit} descriptors are in use, and the rest is kept for files: "
                "raise the limit of open files, or lower max.connections",
            )


class PosixConnecting:
    """A connection that is being made: one address after the other, until one answers."""

    def __init__(
        self,
        host: str,
        port: int,
        loop: asyncio.AbstractEventLoop,
        on_connected: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
        streams: dict[PosixStream, None],
    ) -> None:
        self._loop = loop
        self._streams = streams
        self._on_connected = on_connected
        self._on_failure = on_failure
        self._task = loop.create_task(self._connect(host, port))

    def cancel(self) -> None:
        """See `Connecting`."""
        self._task.cancel()

    async def _connect(self, host: str, port: int) -> None:
        try:
            connected, peer = await self._try_all(host, port)
        except OSError as error:
            self._on_failure(error)
            return
        self._on_connected(PosixStream(connected, peer, self._loop, self._streams))

    async def _try_all(self, host: str, port: int) -> tuple[socket.socket, tuple[str, int]]:
        failure = OSError(errno.EADDRNOTAVAIL, f"{host} has no address")
        for family, _, _, _, address in await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connecting = socket.socket(family, socket.SOCK_STREAM)
            try:
                connecting.setblocking(False)
                connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._loop.sock_connect(connecting, address)
            except OSError as error:
                connecting.close()
                failure = OSError(error.errno, os.strerror(error.errno or errno.EIO))
            except BaseException:
                connecting.close()
                raise
            else:
                return connecting, (str(address[0]), int(address[1]))
        raise failure


class PosixNetwork:
    """TCP on the running event loop."""

    def __init__(self) -> None:
        self._streams: dict[PosixStream, None] = {}
        self._listeners: list[PosixListener] = []

    def busy_poll(self, window_s: float) -> Callable[[float], None]:
        """See `Network`."""
        return BusyPoll(window_s, asyncio.get_running_loop()).served

    def connect(
        self,
        host: str,
        port: int,
        *,
        on_connected: Callable[[Stream], None],
        on_failure: Callable[[OSError], None],
    ) -> PosixConnecting:
        """See `Network`."""
        return PosixConnecting(host, port, asyncio.get_running_loop(), on_connected, on_failure, self._streams)

    def close(self) -> None:
        """See `Network`."""
        for listener in self._listeners:
            listener.close()
        for stream in list(self._streams):
            stream.close()

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
    ) -> PosixListener:
        """See `Network`."""
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted sockets inherit these; set before listen() so that the window can be negotiated.
            if receive_buffer >= 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            if send_buffer >= 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
        listener = PosixListener(
            listening, backlog, asyncio.get_running_loop(), on_connection, on_failure, turns, self._streams
        )
        self._listeners.append(listener)
        return listener


class PosixWorkers:
    """A pool of threads whose results are delivered by the completion queue of the running event loop."""

    def __init__(self, name: str, threads: int, completions: CompletionQueue) -> None:
        self._completions = completions
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)
        self._loop = asyncio.get_running_loop()
        self._killed = False

    def submit(self, work: Callable[[], T]) -> Completion[T | Raised]:
        """See `Workers`."""
        completion: Completion[T | Raised] = Completion(self._completions)

        def report(future: Future[T]) -> None:  # on the worker, or by `kill`
            if future.cancelled() or self._loop.is_closed():
                return
            error = future.exception()
            outcome = future.result() if error is None else Raised(error)
            self._loop.call_soon_threadsafe(complete, outcome)

        def complete(outcome: T | Raised) -> None:
            if not self._killed:
                completion.complete(outcome)

        self._pool.submit(work).add_done_callback(report)
        return completion

    async def run(self, work: Callable[[], T]) -> T:
        """See `Workers`."""
        return await self._loop.run_in_executor(self._pool, work)

    def close(self) -> None:
        """See `Workers`."""
        self._pool.shutdown(wait=True)

    def kill(self) -> None:
        """See `Workers`."""
        self._killed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
