"""What of a head is read, and what is refused before anybody acts on it."""

from __future__ import annotations

import pytest

from headrace.http.heads import read_head, split_target
from headrace.http.messages import Refused


def test_a_head_is_read() -> None:
    head = read_head(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nX-Empty:\r\nAccept: a\r\naccept: b", "10.0.0.1")
    assert (head.method, head.path, head.query, head.peer_host) == ("GET", "/metrics", "a=b", "10.0.0.1")
    assert head.headers == {"host": "x", "x-empty": "", "accept": "a, b"}
    assert not head.has_body
    assert not read_head(b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 00").has_body
    assert read_head(b"GET / HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: Chunked").has_body
    assert split_target("HTTP://host:1/livez?x") == ("/livez", "x")
    assert split_target("http://host") == ("/", "")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /", 400),
        (b"GET  / HTTP/1.1\r\nHost: x", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x", 400),
        (b"GET / HTTP/1.1\r\nno colon", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc: d", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: \0", 400),
        (b"GET / HTTP/1.1\r\nSpace : x", 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/2.0\r\nHost: x", 505),
        (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity", 501),
    ],
)
def test_a_head_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        read_head(head)
    assert refused.value.response.status == status and refused.value.closes


@pytest.mark.parametrize(
    "headers",
    [
        b"Host: x\r\nContent-Length: 0\r\nContent-Length: 0",
        b"Host: x\r\nContent-Length: 5\r\ncontent-length: 0",
        b"Host: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked",
        b"Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Host: x\r\nContent-Length: +0",
        b"Host: x\r\nContent-Length: 0, 0",
        b"Host: x\r\nContent-Length:",
        b"Host: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b",
        b"Host: x\r\nHost: y",
        b"Host:",
        b"Host: a b",
        b"Host: a/b",
        b"Host: x@y",
        b"Host: x:port",
    ],
)
def test_what_two_servers_may_read_differently_is_refused(headers: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_head(b"GET /livez HTTP/1.1\r\n" + headers)
    assert refused.value.response.status == 400


@pytest.mark.parametrize("host", [b"x", b"10.0.0.1:9404", b"[2001:db8::1]:80", b"broker-1.example.org", b"_a.b"])
def test_hosts_that_are_served(host: bytes) -> None:
    assert read_head(b"GET /livez HTTP/1.1\r\nHost: " + host).path == "/livez"
