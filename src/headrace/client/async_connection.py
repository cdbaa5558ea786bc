"""A connection over a node's network: the channel of `client/channel.py`, moved by callbacks, not by a blocking loop.

For code that runs on a node: brokers that talk to brokers, and the clients of the simulator. Calls are answered in the
order in which they were sent; a timeout ends the connection, since all later calls would wait as well.
"""

from __future__ import annotations

import errno
from asyncio import Future
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.client.channel import Call, Channel, Request, Response
from headrace.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    RefusedError,
    TimedOutError,
    UnreachableError,
)
from headrace.client.security import PLAIN_CONNECTION, ConnectionSecurity
from headrace.env.network import WOULD_BLOCK
from headrace.version import __version__
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.client.login import Begun, Login, LoginRequest
    from headrace.client.security import Tls
    from headrace.env import Node, Owner, Timer
    from headrace.env.network import Stream
    from headrace.security.credentials import AnyCredentials
    from headrace.wire.messages.k18_api_versions import ApiVersionsResponse

R = TypeVar("R", bound=Response)

SEND_PARTS_MAX: Final = 64
RECEIVES_MAX: Final = 16
"""Receives of one readable event: others have their turn then."""
TURN_BYTES: Final = 1 << 20
"""Bytes sent, or received, before others have their turn; the last receive may go beyond it by as much."""
API_VERSIONS_NEWEST: Final = 4
HELD_MAX: Final = 1000
"""Questions that wait for a login at once."""


class AsyncConnection:
    """One connection to one broker. `open` makes it; `ask` sends a request and answers with a future.

    `owner` starts its timers: once that is closed, nothing of the connection runs any more.
    """

    def __init__(self, node: Node, owner: Owner, peer: str, client_id: str) -> None:
        """Not connected yet: see `open`."""
        self.channel = Channel(client_id, peer=peer)
        self.on_end: Callable[[], None] | None = None
        """Called when the connection ends, before the waiting calls fail."""
        self._node = node
        self._owner = owner
        self._host = ""
        self._stream: Stream | None = None
        self._waiting: deque[tuple[Call[Any], Future[Any], Timer | None]] = deque()
        self._writing = False
        self._held: deque[tuple[Callable[[], Future[Any]], Future[Any]]] | None = None
        """Calls that wait for a reauthentication."""
        self._renewal: Timer | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing can be asked any more."""
        return self.channel.failure is not None

    @property
    def outstanding(self) -> int:
        """Calls without an answer."""
        return len(self._waiting)

    # --- opening

    @classmethod
    async def open(
        cls,
        node: Node,
        owner: Owner,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        security: ConnectionSecurity = PLAIN_CONNECTION,
    ) -> AsyncConnection:
        """Connects, asks which versions the broker serves, and logs in where `security` says as whom. Raises
        UnreachableError, NotLoggedInError, or what `ask` raises."""
        peer = f"{host}:{port}"
        begun = None if security.credentials is None else await _begun(node, security.credentials, host, peer)
        connection = cls(node, owner, peer, client_id)
        connection._host = host
        stream = await _connect(node, owner, host, port, timeout_s)
        connection._stream = stream if security.tls is None else _secured(node, owner, stream, security.tls, host)
        connection._stream.on_readable(connection._readable)
        try:
            await connection._negotiate(timeout_s)
            if security.credentials is not None and begun is not None:
                await connection._log_in(security.credentials, begun, timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _negotiate(self, timeout_s: float) -> None:
        """ApiVersions, newest first; a broker that lacks that version answers with version 0 and error 35."""
        for version in (API_VERSIONS_NEWEST, 0):
            response = await self.ask_versions(version=version, timeout_s=timeout_s)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(response.error_code, f"ApiVersions at {self.channel.peer}")
        self.channel.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    # --- logging in

    async def _log_in(self, credentials: AnyCredentials, begun: Begun, timeout_s: float) -> None:
        """`credentials` are for the logins after this one. Raises NotLoggedInError, or what `ask` raises."""
        from headrace.client.login import renewal_s

        login, step = begun
        while not isinstance(step, int):
            request, response_class, version = step
            answer = await self._ask(request, response_class, timeout_s=timeout_s, version=version)
            step = await _moved(self._node, login, answer)
        pause_s = renewal_s(step, self._node.entropy.random())
        if pause_s is not None and not self.closed:
            self._renewal = self._owner.later(pause_s, self._renew, credentials, timeout_s)

    def _renew(self, credentials: AnyCredentials, timeout_s: float) -> None:
        """Reauthenticates before the session ends; calls made meanwhile wait for that (KIP-368)."""
        if not self.closed and self._held is None:
            self._owner.spawn(self._renewed(credentials, timeout_s))

    async def _renewed(self, credentials: AnyCredentials, timeout_s: float) -> None:
        try:
            begun = await _begun(self._node, credentials, self._host, self.channel.peer)
            if self.closed:
                return
            self._held = deque()
            await self._log_in(credentials, begun, timeout_s)
        except ClientError as error:
            self._end(error)
            return
        except BaseException:
            self.close()  # held calls would wait for ever
            raise
        held, self._held = self._held, None
        for ask, future in held or ():
            if not future.done():
                _pass_on(ask(), future)

    # --- asking

    def ask(
        self,
        request: Request,
        response_class: type[R],
        *,
        timeout_s: float | None,
        version: int | None = None,
        expect_reply: bool = True,
    ) -> Future[R]:
        """Sends a request. The future has the response, or a ClientError: the connection ended before the answer came
        (whether the request took effect is unknown then), or `timeout_s` seconds passed, which ends the connection.

        If no reply is expected (produce with acks=0), the future is done at once, and its result means nothing.
        """
        if self._held is None:
            return self._ask(request, response_class, timeout_s=timeout_s, version=version, expect_reply=expect_reply)
        future: Future[R] = self._node.future()
        future.add_done_callback(_look_at)
        if len(self._held) >= HELD_MAX:
            future.set_exception(TimedOutError(f"{self.channel.peer} does not answer a login, and too much waits"))
        else:
            step = partial(
                self._ask, request, response_class, timeout_s=timeout_s, version=version, expect_reply=expect_reply
            )
            self._held.append((step, future))
        return future

    def _ask(
        self,
        request: Request,
        response_class: type[R],
        *,
        timeout_s: float | None,
        version: int | None = None,
        expect_reply: bool = True,
    ) -> Future[R]:
        future: Future[R] = self._node.future()
        future.add_done_callback(_look_at)
        try:
            call = self.channel.send(request, response_class, version=version, expect_reply=expect_reply)
        except ClientError as error:
            future.set_exception(error)
            return future
        if expect_reply:
            timer = None if timeout_s is None else self._owner.later(timeout_s, self._timed_out, call)
            self._waiting.append((call, future, timer))
        else:
            _settle_unanswered(future)
        self._push()
        return future

    def ask_versions(self, *, timeout_s: float, version: int | None = None) -> Future[ApiVersionsResponse]:
        """Asks which versions the broker serves: every broker answers that, to everyone. See `ask`."""
        from headrace.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

        request = ApiVersionsRequest(client_software_name="headrace", client_software_version=__version__)
        return self.ask(request, ApiVersionsResponse, version=version, timeout_s=timeout_s)

    def close(self) -> None:
        """Ends the connection; what was asked and not answered fails with ConnectionLostError."""
        self._end(ConnectionLostError(f"the connection to {self.channel.peer} is closed"))

    # --- moving bytes

    def _push(self) -> None:
        outgoing = self.channel.outgoing
        stream = self._stream
        left = TURN_BYTES
        while outgoing and stream is not None and left > 0:
            parts = [outgoing[i] for i in range(min(len(outgoing), SEND_PARTS_MAX))]
            if len(parts[0]) > left:
                parts = [parts[0][:left]]
            elif sum(map(len, parts)) > left:
                parts = parts[:1]
            try:
                size = stream.send(parts)
            except OSError as error:
                self._lost(error)
                return
            if size == WOULD_BLOCK:
                break
            self.channel.sent(size)
            left -= size
        if self._stream is not None and bool(outgoing) != self._writing:
            self._writing = bool(outgoing)
            self._stream.on_writable(self._push if self._writing else None)

    def _readable(self) -> None:
        left = TURN_BYTES
        for _ in range(RECEIVES_MAX):
            stream = self._stream
            if stream is None or left <= 0:
                return
            buffer = self.channel.receive_buffer()
            if len(buffer) > TURN_BYTES:
                buffer = buffer[:TURN_BYTES]
            try:
                size = stream.receive_into(buffer)
            except OSError as error:
                self._lost(error)
                return
            if size == WOULD_BLOCK:
                return
            if size == 0:
                self._end(ConnectionLostError(f"{self.channel.peer} closed the connection"))
                return
            left -= size
            self.channel.received(size)
            self._settle()
            if self.channel.failure is not None:
                self._end(self.channel.failure)
                return

    def _settle(self) -> None:
        """Answers the calls that are done: the oldest ones."""
        while self._waiting and self._waiting[0][0].done:
            call, future, timer = self._waiting.popleft()
            if timer is not None:
                timer.cancel()
            if future.done():
                continue  # who asked has gone
            if call.error is not None:
                future.set_exception(call.error)
            else:
                future.set_result(call.result())

    def _timed_out(self, call: Call[Any]) -> None:
        name = call.response_class.__name__.removesuffix("Response")
        self._end(TimedOutError(f"{self.channel.peer} does not answer {name} in time"))

    def _lost(self, error: OSError) -> None:
        lost = ConnectionLostError(f"lost the connection to {self.channel.peer}: {error.strerror or error}")
        lost.__cause__ = error
        self._end(lost)

    def _end(self, error: ClientError) -> None:
        self.channel.fail(error)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
            if self.on_end is not None:
                self.on_end()
        self._settle()
        if self._renewal is not None:
            self._renewal.cancel()  # it would keep the connection, and its password, for as long as a session lives
        held, self._held = self._held, None
        for _, future in held or ():
            if not future.done():
                future.set_exception(error)


def _pass_on(answer: Future[Any], future: Future[Any]) -> None:
    """Passes the outcome of `answer` on to `future`."""

    def pass_on(answer: Future[Any]) -> None:
        if future.done() or answer.cancelled():
            return
        error = answer.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer.result())

    answer.add_done_callback(pass_on)


def _settle_unanswered(future: Future[Any]) -> None:
    future.set_result(None)


def _look_at(future: Future[Any]) -> None:
    """Who asked may be gone: an answer that nobody takes is no defect."""
    if not future.cancelled():
        future.exception()


async def _begun(node: Node, credentials: AnyCredentials, host: str, peer: str) -> Begun:
    from headrace.client.login import log_in

    login = log_in(credentials, host, peer, node.entropy.secret)
    return login, await _moved(node, login)


async def _moved(node: Node, login: Login, answer: Any = None) -> LoginRequest | int:
    """What a login asks next, once workers have done its errands."""
    from headrace.client.waiting import shared
    from headrace.security.login import Errand

    step = login.send(answer)
    while isinstance(step, Errand):
        step = login.send(await shared(node, step))
    return step


def _secured(node: Node, owner: Owner, stream: Stream, tls: Tls, host: str) -> Stream:
    """TLS over a stream. Few such connections are made, so their handshakes need no turns."""
    from headrace.env.tls import TlsStream, scratch_of
    from headrace.env.turns import SlicedTurns

    return TlsStream(
        stream,
        tls.context,
        server_side=False,
        scratch=scratch_of(node),
        soon=owner.soon,
        turns=SlicedTurns(owner, node.clock.monotonic),
        server_hostname=tls.name_of(host),
    )


async def _connect(node: Node, owner: Owner, host: str, port: int, timeout_s: float) -> Stream:
    """A stream to an address. Raises UnreachableError where there is none within `timeout_s`."""
    future: Future[Stream] = node.future()

    def connected(stream: Stream) -> None:
        if future.done():
            stream.close()
        else:
            future.set_result(stream)

    def failed(error: OSError) -> None:
        if not future.done():
            why = error.strerror or str(error)
            kind = RefusedError if error.errno == errno.ECONNREFUSED else UnreachableError
            future.set_exception(kind(f"cannot connect to {host}:{port}: {why}"))

    def timed_out() -> None:
        if not future.done():
            future.set_exception(UnreachableError(f"cannot connect to {host}:{port}: no answer in time"))

    timer = owner.later(timeout_s, timed_out)
    connecting = node.network.connect(host, port, on_connected=connected, on_failure=failed)
    try:
        return await future
    finally:
        timer.cancel()
        connecting.cancel()
