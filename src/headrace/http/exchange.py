"""One request and its response over a connection, without I/O: bytes in, a request out; a response in, bytes out.

A connection makes a new exchange for each request, with the bytes that came behind the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from headrace.http.heads import END_OF_HEAD, read_head
from headrace.http.messages import Head, Refused, Request, Response
from headrace.http.routes import Route

CHUNK_LINES_BYTES: Final = 65_536
"""What the lines of chunks may take, beyond as much as the largest body."""


class Admitted(NamedTuple):
    """The route and the sender of a request, known once its head has come."""

    route: Route
    parameters: Mapping[str, str]
    principal: str


Admit = Callable[[Head], Admitted]
"""Decides on a head. Raises Refused."""


class Exchange:
    """Reads a request by `receive` and `request`; writes its response by `begin`, `piece` and `end`, or by `whole`."""

    def __init__(self, admit: Admit, head_bytes_max: int, peer_host: str = "", unread: bytes = b"") -> None:
        self._admit = admit
        self._head_bytes_max = head_bytes_max
        self._peer_host = peer_host
        self._buffer = unread
        """What has come of a head, and before it."""
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=head_bytes_max + 1024)
        self._head: Head | None = None
        self._admitted: Admitted | None = None
        self._body = bytearray()
        self._framed_bytes = 0
        self._continues = b""

    @property
    def head(self) -> Head | None:
        """The head of the request, once it has come whole and was admitted or refused."""
        return self._head

    @property
    def has_begun(self) -> bool:
        """Whether anything of a request has come."""
        return self._head is not None or bool(self._buffer)

    @property
    def buffered_bytes(self) -> int:
        """The bytes of the request that are buffered."""
        return len(self._buffer) + len(self._body)

    def take_continue(self) -> bytes:
        """Returns what the client waits for before it sends the body (100 Continue), once."""
        found, self._continues = self._continues, b""
        return found

    # --- the request

    def receive(self, data: bytes) -> None:
        """Takes bytes from the client."""
        if self._admitted is None:
            self._buffer += data
        else:
            self._framed_bytes += len(data)
            self._connection.receive_data(data)

    @property
    def route(self) -> Route:
        """The route of a request that was admitted."""
        assert self._admitted is not None, "a request was admitted"
        return self._admitted.route

    def request(self) -> Request | None:
        """Returns the request, once it has come whole. Raises Refused, after which `whole` takes its response."""
        if self._admitted is None and not self._read_head():
            return None
        admitted, head = self._admitted, self._head
        assert admitted is not None and head is not None
        try:
            ended = self._read_body(admitted.route.body_bytes_max)
        except h11.RemoteProtocolError as error:
            raise Refused(400, f"the body of the request cannot be read: {error}", closes=True) from None
        if not ended:
            return None
        return Request(head, bytes(self._body), admitted.parameters, admitted.principal)

    def _read_head(self) -> bool:
        self._buffer = self._buffer.lstrip(b"\r\n")  # before a request line empty ones are allowed
        if not self._buffer:
            return False
        end = END_OF_HEAD.search(self._buffer)
        if not self._buffer[:1].isalpha():
            raise Refused(400, "this is no HTTP request", closes=True)
        if (len(self._buffer) if end is None else end.start()) > self._head_bytes_max:
            raise Refused(431, f"the head of a request has more than {self._head_bytes_max} bytes", closes=True)
        if end is None:
            return False
        lines, behind = self._buffer[: end.start()], self._buffer[end.end() :]
        head = read_head(lines, self._peer_host)
        self._buffer = b""
        try:
            self._connection.receive_data(lines + b"\r\n\r\n")
            self._connection.next_event()
        except h11.RemoteProtocolError as error:
            raise Refused(400, f"the request cannot be read: {error}", closes=True) from None
        self._head = head
        if behind:  # h11 takes no bytes for the end of the connection
            self._connection.receive_data(behind)
        try:
            admitted = self._admit(head)
        except Refused as refused:
            if head.has_body:
                refused.closes = True
            else:
                self._read_body(0)
            raise
        self._check_body(head, admitted.route.body_bytes_max)
        self._admitted = admitted
        self._framed_bytes = len(behind)
        if self._connection.they_are_waiting_for_100_continue:
            answer = h11.InformationalResponse(status_code=100, headers=[], reason=HTTPStatus.CONTINUE.phrase)
            self._continues = self._connection.send(answer) or b""
        return True

    def _check_body(self, head: Head, bytes_max: int) -> None:
        if head.has_body and not bytes_max:
            raise Refused(400, "a request for this page has no body", closes=True)
        length = head.headers.get("content-length", "0").lstrip("0")
        if len(length) > len(str(bytes_max)) or int(length or "0") > bytes_max:
            raise self._too_large(bytes_max)

    def _read_body(self, bytes_max: int) -> bool:
        while True:
            event = self._connection.next_event()
            if isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > bytes_max:
                    self._body.clear()
                    raise self._too_large(bytes_max)
            elif isinstance(event, h11.EndOfMessage):
                return True
            else:
                assert event is h11.NEED_DATA, event
                if self._framed_bytes > 2 * bytes_max + CHUNK_LINES_BYTES:
                    raise Refused(400, "the chunks of the body are too small for their number", closes=True)
                return False

    def _too_large(self, bytes_max: int) -> Refused:
        return Refused(413, f"the body of a request has at most {bytes_max} bytes here", closes=True)

    # --- the response

    def whole(self, response: Response, body: bytes, *, closes: bool) -> bytes:
        """Returns the bytes of a response whose body is here."""
        out = self.begin(response, closes=closes, length=len(body))
        return out + self.piece(body) + self.end()

    def begin(self, response: Response, *, closes: bool, length: int | None = None) -> bytes:
        """Returns the bytes of a response's head. Without a length the body is chunked, or ends with the connection if
        the client cannot read that."""
        headers = [("Content-Type", response.content_type), ("Cache-Control", "no-store"), *response.headers.items()]
        if length is not None:
            headers.append(("Content-Length", str(length)))
        if closes:
            headers.append(("Connection", "close"))
        reason = HTTPStatus(response.status).phrase
        return self._connection.send(h11.Response(status_code=response.status, headers=headers, reason=reason)) or b""

    def piece(self, data: bytes) -> bytes:
        """Returns the bytes of a piece of the body; none if the client asked for the head alone."""
        if not data or (self._head is not None and self._head.method == "HEAD"):
            return b""
        return self._connection.send(h11.Data(data=data)) or b""

    def end(self) -> bytes:
        """Returns the bytes that end the response."""
        return self._connection.send(h11.EndOfMessage()) or b""

    def next(self) -> Exchange | None:
        """Returns the exchange after this one, with what has come of it; None if the connection ends here."""
        connection = self._connection
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return None
        unread, _ = connection.trailing_data
        return Exchange(self._admit, self._head_bytes_max, self._peer_host, unread)
