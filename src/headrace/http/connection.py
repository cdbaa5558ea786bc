"""One client: it reads a request, has it answered, sends the response, and reads on."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from headrace.env.network import WOULD_BLOCK, Stream
from headrace.http.messages import Refused, Request, Response

if TYPE_CHECKING:
    from asyncio import Future, Task
    from collections.abc import Callable

    from headrace.env.owner import Owner, Timer
    from headrace.http.exchange import Exchange
    from headrace.http.limits import HttpLimits
    from headrace.http.messages import Head

_INTERNAL_ERROR = Response(500, b"the request failed; the log of the node has the cause\n")


class Host(Protocol):
    """What a connection needs of its server."""

    limits: HttpLimits
    owner: Owner
    view: memoryview
    """The buffer that requests are received into."""
    future: Callable[[], Future[None]]

    def exchange(self, peer_host: str) -> Exchange:
        """Returns the protocol of a new connection."""
        ...

    def defect(self, error: Exception, head: Head | None) -> None:
        """Reports an unexpected error."""
        ...

    def forget(self, connection: HttpConnection) -> None:
        """Takes note that a connection is closed."""
        ...


class HttpConnection:
    """The connection of one client. While a request is answered nothing more is read of its connection."""

    def __init__(self, server: Host, stream: Stream) -> None:
        self.closed = False
        self.host = stream.peer_host
        self._server = server
        self._stream = stream
        self._exchange = server.exchange(stream.peer_host)
        self._unsent = memoryview(b"")
        self._sent: Future[None] | None = None
        self._task: Task[None] | None = None
        self._lingers = False
        self._timer: Timer | None = None
        self._patience(server.limits.idle_s)
        stream.on_readable(self._readable)

    @property
    def idle(self) -> bool:
        """Whether nothing of a request has come, and none is answered."""
        return not (self._exchange.has_begun or self.is_at_work or self._lingers)

    @property
    def is_at_work(self) -> bool:
        """Whether a request is answered now, or a response leaves."""
        return self._task is not None or bool(self._unsent)

    @property
    def buffered_bytes(self) -> int:
        """The bytes of a request that are buffered."""
        return self._exchange.buffered_bytes

    @property
    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""
        return len(self._unsent)

    def close(self) -> None:
        """Ends the connection; more than once is harmless."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._unsent = memoryview(b"")
        self._stream.close()
        self._server.forget(self)

    def _patience(self, seconds: float | None) -> None:
        """Closes the connection after `seconds`, unless this is called again before."""
        assert not self.closed
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._server.owner.later(seconds, self.close)

    # --- requests

    def _readable(self) -> None:
        view = self._server.view
        try:
            received = self._stream.receive_into(view)
        except OSError:
            self.close()
            return
        if received == WOULD_BLOCK:
            return
        if not received:
            self.close()
        elif not self._lingers:
            if not self._exchange.has_begun:
                self._patience(self._server.limits.head_s)
            self._exchange.receive(bytes(view[:received]))
            self._next_request()

    def _next_request(self) -> None:
        """Has the next request answered, if it has come whole."""
        exchange, limits = self._exchange, self._server.limits
        had_head = exchange.head is not None
        try:
            received: Request | Refused | None = exchange.request()
        except Refused as refused:
            received = refused
        if received is not None:
            self._stream.on_readable(None)
            self._patience(limits.answer_s)
            self._task = self._server.owner.spawn(self._serve(received))
            return
        if not exchange.has_begun:
            self._patience(limits.idle_s)
        elif not had_head and exchange.head is not None:
            self._patience(limits.body_s)
        self._stream.on_readable(self._readable)
        self._send(exchange.take_continue())

    # --- responses

    async def _serve(self, received: Request | Refused) -> None:
        """Answers a request, or refuses it; then the connection goes on with the next one, or ends."""
        closes = False
        if isinstance(received, Request):
            try:
                response = await self._exchange.route.handler(received)
            except Refused as refused:
                response, closes = refused.response, refused.closes
            except Exception as error:
                self._server.defect(error, received.head)
                response, closes = _INTERNAL_ERROR, True
        else:
            response, closes = received.response, received.closes
        try:
            is_whole = await self._respond(response, closes=closes)
        except ConnectionError:
            return  # it is closed by now
        self._task = None
        following = self._exchange.next() if is_whole and not closes else None
        if following is not None:
            self._exchange = following
            self._next_request()
        elif is_whole and isinstance(received, Refused):
            self._lingers = True
            self._patience(self._server.limits.linger_s)
            self._stream.on_readable(self._readable)
        else:
            self.close()

    async def _respond(self, response: Response, *, closes: bool) -> bool:
        """Sends a response; returns whether it has left whole."""
        exchange, body = self._exchange, response.body
        if isinstance(body, bytes):
            await self._leave(exchange.whole(response, body, closes=closes))
            return True
        async with aclosing(body) as pieces:
            await self._leave(exchange.begin(response, closes=closes))
            try:
                async for piece in pieces:
                    await self._leave(exchange.piece(piece))
            except ConnectionError:
                raise
            except Exception as error:
                self._server.defect(error, exchange.head)
                return False
        await self._leave(exchange.end())
        return True

    async def _leave(self, data: bytes) -> None:
        """Sends bytes, and returns once the system has taken them all; the client has answer_s for that. Raises
        ConnectionError if the client is gone."""
        if not data:
            return
        self._patience(self._server.limits.answer_s)
        self._send(data)
        if self.closed:
            raise ConnectionError("the client is gone")
        if self._unsent:
            self._sent = self._server.future()
            await self._sent
        self._patience(None)

    def _send(self, data: bytes) -> None:
        if data:
            self._unsent = memoryview(bytes(self._unsent) + data)
            self._flush()

    def _flush(self) -> None:
        try:
            sent = self._stream.send((self._unsent,))
        except OSError:
            self.close()
            return
        if sent != WOULD_BLOCK:
            self._unsent = self._unsent[sent:]
        if self._unsent:
            self._stream.on_writable(self._flush)
            return
        self._stream.on_writable(None)
        if self._sent is not None:
            sent_all, self._sent = self._sent, None
            sent_all.set_result(None)
