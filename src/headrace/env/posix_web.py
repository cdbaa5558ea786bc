"""Fetching from web servers, for a worker: bounded in bytes and in seconds, however slowly the other side goes.

http.client has a time limit for each wait alone, so a server that sends a byte now and then could hold a thread for
ever: a timer cuts the connection where the whole takes too long.
"""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from threading import Timer
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

REDIRECTS_MAX: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_OK: Final = 200


class WebError(OSError):
    """An answer that is not what was asked for; the text is one line."""


class WebStatusError(WebError):
    """A server that answers with another status than 200."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answers with status {status}")
        self.status = status


class _Sent(NamedTuple):
    """The request to send, and how long connecting may take (None: as long as the whole)."""

    method: str = "GET"
    body: bytes | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    connect_timeout_s: float | None = None


_GET: Final = _Sent()


class PosixWeb:
    """See `env.web.Web`."""

    def fetch(self, url: str, *, bytes_max: int, timeout_s: float, context: ssl.SSLContext | None = None) -> bytes:
        """See Web.fetch."""
        deadline = time.monotonic() + timeout_s
        try:
            parts = urlsplit(url)
            for _ in range(REDIRECTS_MAX + 1):
                answer = _fetch(parts, bytes_max, deadline, context)
                if isinstance(answer, bytes):
                    return answer
                moved = urlsplit(urljoin(parts.geturl(), answer))
                if _origin(moved) != _origin(parts):
                    raise WebError("the server names another server, which is not followed")
                parts = moved
        except OSError:
            raise  # among them an error in a certificate, which is a ValueError too
        except (HTTPException, ValueError) as error:
            raise WebError(f"the answer cannot be read: {type(error).__name__}") from None
        raise WebError(f"the server names another address more than {REDIRECTS_MAX} times")

    def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        bytes_max: int,
        connect_timeout_s: float,
        timeout_s: float,
        context: ssl.SSLContext | None = None,
    ) -> bytes:
        """Sends a request to an `http` or `https` address; returns the answer, of at most `bytes_max` bytes. To be
        called where one may wait: `connect_timeout_s` for a connection, and `timeout_s` in all.

        No redirection is followed, as the request is for that address alone. Raises OSError, one line that shows
        nothing of what was sent, and WebStatusError for another status than 200.
        """
        sent = _Sent("POST", body, headers, connect_timeout_s)
        try:
            answer = _fetch(urlsplit(url), bytes_max, time.monotonic() + timeout_s, context, sent)
        except OSError:
            raise
        except (HTTPException, ValueError) as error:
            raise WebError(f"the answer cannot be read: {type(error).__name__}") from None
        if isinstance(answer, str):
            raise WebError("the server names another address, which is not followed")
        return answer


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port


def _fetch(
    parts: SplitResult, bytes_max: int, deadline: float, context: ssl.SSLContext | None, sent: _Sent = _GET
) -> bytes | str:
    """What the server sends, or the other address that it names. Raises OSError, HTTPException, ValueError."""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WebError("only addresses of http and https are asked")
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    patience_s = min(_left_s(deadline), sent.connect_timeout_s or math.inf)
    raw = socket.create_connection((parts.hostname, port), timeout=patience_s)
    try:
        if is_secure:
            trusted = context or ssl.create_default_context()
            raw = trusted.wrap_socket(raw, server_hostname=parts.hostname, do_handshake_on_connect=False)
        raw.settimeout(_left_s(deadline))
        guard = Timer(_left_s(deadline), _cut, [raw])
        guard.daemon = True
        guard.start()
        try:
            if isinstance(raw, ssl.SSLSocket):
                raw.do_handshake()
            return _answer(raw, parts, port, bytes_max, sent)
        except (OSError, HTTPException, ValueError):
            _left_s(deadline)  # what the cut connection looks like says less
            raise
        finally:
            guard.cancel()
    finally:
        raw.close()


def _answer(raw: socket.socket, parts: SplitResult, port: int, bytes_max: int, sent: _Sent) -> bytes | str:
    connection = HTTPConnection(parts.hostname or "", port)
    connection.sock = raw
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.netloc.rpartition("@")[2]
        headers = {"Host": host, "Accept": "application/json", "Connection": "close", **sent.headers}
        connection.request(sent.method, path, body=sent.body, headers=headers)
        response = connection.getresponse()
        if response.status in _REDIRECTS:
            return response.headers.get("Location", "")
        if response.status != _OK:
            raise WebStatusError(response.status)
        data = response.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise WebError(f"the server sends more than {bytes_max} bytes")
        if response.length:
            raise WebError("the server ends before its answer does")
        return data
    finally:
        connection.close()


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("it takes too long")
    return left_s


def _cut(connection: socket.socket) -> None:
    """Ends whatever waits for this connection, on whatever thread."""
    with suppress(OSError):
        # Not the method of a TLS socket, which would forget its state under the thread that reads.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
