"""A small HTTP/1.1 server for the few pages that a node shows of itself: GET and HEAD, on the node's own network.

Nothing here waits, and everything has a bound: connections, the bytes of a request's head, the time that a client may
take for a head, over an answer, and between two requests. Requests of one connection are answered in their order, one
at a time; while one is answered, nothing more is read of that connection.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.env.network import WOULD_BLOCK, Listener, Stream

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Node, Timer

CONNECTIONS_MAX: Final = 32
"""Open at once. One more takes the place of the oldest that is idle, else of the oldest whose request has not come
whole, of the address with most of them; else of the oldest of an address that has more of them than its own, or it is
closed."""
HEAD_BYTES_MAX: Final = 8192
"""Request line and headers of one request."""
RECEIVE_BYTES: Final = 8192
"""What is read of a connection at once."""
BACKLOG: Final = 64
HEAD_S: Final = 10.0
"""How long a client may take from the first byte of a request to the end of its head."""
IDLE_S: Final = 120.0
"""How long a connection may be silent between two requests: beyond the usual interval of a scrape."""
SEND_S: Final = 30.0
"""How long a client may take over an answer."""
LINGER_S: Final = 1.0
"""After a refusal, what still comes is read and dropped for so long: a close with bytes unread would take the answer
out of the client's hands."""

TEXT: Final = "text/plain; charset=utf-8"
REASONS: Final[Mapping[int, str]] = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}

_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_HOST: Final = re.compile(rb"([0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
"""Any host is served that can be one: clients come by addresses, names and forwarded ports, and no page changes
anything. Where pages are to be kept from others, a token keeps them."""
_ONCE: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
"""Headers that a request has once: of two, a proxy before this server may go by the other one."""
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", re.DOTALL)


class Page(NamedTuple):
    """An answer: its status, its body, and what that is."""

    status: int
    body: bytes
    content_type: str = TEXT


Respond = Callable[[Page], None]
Secured = Callable[[Stream], Stream]
Route = Callable[[Respond], None]
"""Answers a request, at once or later, by one call."""


class RefusedError(Exception):
    """A request that cannot be answered as it is: the connection ends after `page`."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.page = Page(status, f"{why}\n".encode())


class HttpRequest(NamedTuple):
    """The head of a request, as far as it matters here."""

    method: str
    path: str
    keeps_alive: bool
    has_body: bool
    authorization: bytes = b""


def parse_head(head: bytes) -> HttpRequest:
    """A request line and its headers, without the empty line behind them. Raises RefusedError."""
    lines = re.split(rb"\r?\n", head)
    found = _REQUEST_LINE.fullmatch(lines[0])
    if found is None:
        raise RefusedError(400, "this is no HTTP request")
    method, target, major, minor = found.groups()
    if major != b"1":
        raise RefusedError(505, "this server speaks HTTP/1.1")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise RefusedError(400, "a header cannot be read")
        name = header[1].lower()
        if name in _ONCE and name in headers:
            raise RefusedError(400, f"a request has one header {name.decode()}")
        headers[name] = header[2]
    if minor != b"0" and b"host" not in headers:
        raise RefusedError(400, "a request of HTTP/1.1 names its host")
    if b"host" in headers and _HOST.fullmatch(headers[b"host"]) is None:
        raise RefusedError(400, "the host of a request cannot be one")
    if b"content-length" in headers:
        if b"transfer-encoding" in headers:
            raise RefusedError(400, "a request has a length or an encoding")
        if not headers[b"content-length"].isdigit():
            raise RefusedError(400, "the length of a request is no number")
    options = {each.strip().lower() for each in headers.get(b"connection", b"").split(b",")}
    keeps_alive = b"keep-alive" in options if minor == b"0" else b"close" not in options
    has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""
    authorization = headers.get(b"authorization", b"")
    return HttpRequest(method.decode(), path_of(target.decode()), keeps_alive, has_body, authorization)


def path_of(target: str) -> str:
    """The path of a request's target, which may be a whole address, and may have a query."""
    if target.lower().startswith("http://"):
        target = "/" + target[len("http://") :].partition("/")[2]
    return target.partition("?")[0]


class HttpConnection:
    """One client. It reads a head, has it answered, sends, and reads on."""

    def __init__(self, server: HttpServer, stream: Stream) -> None:
        self.closed = False
        self.idle = True
        """Whether the client has nothing to come: no request of it is here or is answered."""
        self._server = server
        self._stream = stream
        self.host = stream.peer_host
        self._buffer = b""
        self._unsent = memoryview(b"")
        self._answering = self._advancing = self._last = self._lingers = False
        self._timer: Timer | None = None
        self._patience(IDLE_S)
        stream.on_readable(self._readable)

    @property
    def is_at_work(self) -> bool:
        """Whether a request of it is answered now, or an answer leaves."""
        return self._answering or bool(self._unsent)

    def _patience(self, seconds: float) -> None:
        """The connection ends after `seconds`, unless something else is said before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.owner.later(seconds, self.close)

    def close(self) -> None:
        """Ends the connection; more than once is harmless."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._stream.close()
        self._server.forget(self)

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
            if not self._buffer:
                self.idle = False
                self._patience(HEAD_S)
            self._buffer += view[:received]
            self._advance()

    def _advance(self) -> None:
        """Answers what has come whole, one request after the other."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while not (self.closed or self._answering or self._unsent or self._last):
                if not self._answer_next():
                    break
        finally:
            self._advancing = False
        if not self.closed:
            reads = self._lingers or not (self._answering or self._unsent)
            self._stream.on_readable(self._readable if reads else None)

    def _answer_next(self) -> bool:
        """Takes the next request out of the buffer; False where it has not come whole."""
        self._buffer = self._buffer.lstrip(b"\r\n")  # before a request line empty ones are allowed
        if not self._buffer:
            self.idle = True
            self._patience(IDLE_S)
            return False
        end = _END_OF_HEAD.search(self._buffer)
        self._answering = True
        try:
            if not self._buffer[:1].isalpha():
                raise RefusedError(400, "this is no HTTP request")
            if (len(self._buffer) if end is None else end.start()) > HEAD_BYTES_MAX:
                raise RefusedError(431, f"the head of a request has more than {HEAD_BYTES_MAX} bytes")
            if end is None:
                self._answering = False
                return False
            request = parse_head(self._buffer[: end.start()])
            self._buffer = self._buffer[end.end() :]
            self._route(request)
        except RefusedError as refused:
            self._lingers = True
            self._respond(refused.page, keeps_alive=False)
        return True

    def _route(self, request: HttpRequest) -> None:
        is_head = request.method == "HEAD"
        if not self._server.lets_in(request):
            self._lingers = request.has_body
            page = Page(401, b"this page asks for a token: Authorization: Bearer TOKEN\n")
            self._respond(page, keeps_alive=request.keeps_alive and not request.has_body, is_head=is_head)
            return
        if not is_head and request.method != "GET":
            self._lingers = request.has_body
            page = Page(405, b"GET and HEAD are allowed\n")
            self._respond(page, keeps_alive=request.keeps_alive and not request.has_body)
            return
        if request.has_body:
            raise RefusedError(400, "a request for a page has no body")
        route = self._server.routes.get(request.path)
        if route is None:
            paths = ", ".join(self._server.routes)
            page = Page(404, f"there is no such page; there are {paths}\n".encode())
            self._respond(page, keeps_alive=request.keeps_alive, is_head=is_head)
            return
        self._patience(SEND_S)
        route(lambda page: self._respond(page, keeps_alive=request.keeps_alive, is_head=is_head))

    # --- answers

    def _respond(self, page: Page, *, keeps_alive: bool, is_head: bool = False) -> None:
        if self.closed:
            return
        assert self._answering, "a request is answered once"
        self._answering = False
        self._last = not keeps_alive
        lines = [
            f"HTTP/1.1 {page.status} {REASONS[page.status]}",
            f"Content-Type: {page.content_type}",
            f"Content-Length: {len(page.body)}",
            "Cache-Control: no-store",
        ]
        if page.status == 405:
            lines.append("Allow: GET, HEAD")
        if page.status == 401:
            lines.append("WWW-Authenticate: Bearer")
        if self._last:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        self._unsent = memoryview(head if is_head else head + page.body)
        self._patience(SEND_S)
        self._send()

    def _send(self) -> None:
        try:
            sent = self._stream.send((self._unsent,))
        except OSError:
            self.close()
            return
        if sent != WOULD_BLOCK:
            self._unsent = self._unsent[sent:]
        if self._unsent:
            self._stream.on_writable(self._send)
            return
        self._stream.on_writable(None)
        if self._last and not self._lingers:
            self.close()
        elif self._lingers:
            self._patience(LINGER_S)
        self._advance()


class HttpServer:
    """See the module. `listen` begins to serve, `close` ends it."""

    def __init__(self, node: Node, metrics: Registry, routes: Mapping[str, Route], *, token: str = "") -> None:
        """`routes` are the pages by their paths; `token` is what every request has to show, empty: nothing."""
        self.routes = routes
        self.tls: Secured | None = None
        """What makes TLS of a connection; None where pages are served in the clear."""
        self._authorization = f"Bearer {token}".encode() if token else b""
        self.owner = node.owner("http")
        self.view = memoryview(bytearray(RECEIVE_BYTES))
        """What all connections receive into; used within one call."""
        self.connections: dict[HttpConnection, None] = {}
        self._network = node.network
        self._refused = metrics.counter("http.connections_refused")
        self._listener: Listener | None = None

    def lets_in(self, request: HttpRequest) -> bool:
        """Whether a request shows the token, if there is one; in the time that this takes nothing of it can be told."""
        return not self._authorization or compare_digest(request.authorization, self._authorization)

    @property
    def port(self) -> int | None:
        """The port that it is bound to; None where it does not listen."""
        return None if self._listener is None else self._listener.port

    def listen(self, host: str, port: int) -> None:
        """Begins to serve an address. Raises OSError where it cannot be had, and then holds nothing."""
        listener = self._network.listen(
            host,
            port,
            backlog=BACKLOG,
            receive_buffer=-1,
            send_buffer=-1,
            on_connection=self._accept,
            on_failure=lambda _error: self._refused.add(),
        )
        try:
            listener.pause(False)
        except OSError:
            listener.close()
            raise
        self._listener = listener

    def _accept(self, stream: Stream) -> None:
        if len(self.connections) >= CONNECTIONS_MAX:
            self._refused.value += 1
            gives_way = self._gives_way(stream.peer_host)
            if gives_way is None:
                stream.close()
                return
            gives_way.close()
        secured = stream if self.tls is None else self.tls(stream)
        self.connections[HttpConnection(self, secured)] = None

    def _gives_way(self, host: str) -> HttpConnection | None:
        """Whose place a new connection from an address takes."""
        idle = next((each for each in self.connections if each.idle), None)
        if idle is not None:
            return idle
        counts = Counter(each.host for each in self.connections)
        for_heads = [each for each in self.connections if not each.is_at_work]
        if for_heads:
            return max(for_heads, key=lambda each: counts[each.host])
        heaviest = max(self.connections, key=lambda each: counts[each.host])
        return heaviest if counts[heaviest.host] > counts[host] + 1 else None

    def forget(self, connection: HttpConnection) -> None:
        """A connection has ended."""
        self.connections.pop(connection, None)

    def close(self) -> None:
        """Accepts nothing more and ends every connection; more than once is harmless."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close()
        self.owner.close()
