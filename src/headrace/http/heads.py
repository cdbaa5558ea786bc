"""Reads the head of a request strictly: what two servers could read differently is refused before h11 reads it.

h11 takes folded headers, a length beside an encoding, and a length that is given twice. A proxy before this server may
go by the other reading, and would then let requests through that it never saw (RFC 9112, section 11.2).
"""

from __future__ import annotations

import re
from typing import Final

from headrace.http.messages import Head, Refused

END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_HOST: Final = re.compile(rb"([0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
"""Any host is served that can be one: clients come by addresses, names and forwarded ports."""
_ONCE: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"authorization"})
"""Headers that a request has once."""
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t\x80-\xff]*?)[ \t]*", re.DOTALL)


def read_head(head: bytes, peer_host: str = "") -> Head:
    """Returns the head of a request, from its lines without the empty one behind them. Raises Refused."""
    lines = re.split(rb"\r?\n", head)
    found = _REQUEST_LINE.fullmatch(lines[0])
    if found is None:
        raise _refused("this is no HTTP request")
    method, target, major, minor = found.groups()
    if major != b"1":
        raise Refused(505, "this server speaks HTTP/1.1", closes=True)
    headers = _headers(lines[1:])
    if minor != b"0" and b"host" not in headers:
        raise _refused("a request of HTTP/1.1 names its host")
    if b"host" in headers and _HOST.fullmatch(headers[b"host"]) is None:
        raise _refused("the host of a request cannot be one")
    _check_length(headers, minor)
    path, query = split_target(target.decode())
    decoded = {name.decode(): value.decode("latin-1") for name, value in headers.items()}
    return Head(method.decode(), path, query, decoded, peer_host)


def _headers(lines: list[bytes]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise _refused("a header cannot be read")
        name = header[1].lower()
        if name in _ONCE and name in headers:
            raise _refused(f"a request has one header {name.decode()}")
        headers[name] = headers[name] + b", " + header[2] if name in headers else header[2]
    return headers


def _check_length(headers: dict[bytes, bytes], minor: bytes) -> None:
    if b"content-length" in headers:
        if b"transfer-encoding" in headers:
            raise _refused("a request has a length or an encoding")
        if not headers[b"content-length"].isdigit():
            raise _refused("the length of a request is no number")
    elif b"transfer-encoding" in headers:
        if minor == b"0":
            raise _refused("a request of HTTP/1.0 has no encoding")
        if headers[b"transfer-encoding"].lower() != b"chunked":
            raise Refused(501, "chunked is the one encoding that is served", closes=True)


def split_target(target: str) -> tuple[str, str]:
    """Returns the path and the query of a request's target, which may be a whole address."""
    if target.lower().startswith(("http://", "https://")):
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("?")
    return path, query


def _refused(why: str) -> Refused:
    return Refused(400, why, closes=True)
