"""The little HTTP server, met with what clients, tools and strangers send."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from broker.telemetry.pages import Web, get
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.broker.telemetry import http_server
from headrace.broker.telemetry.http_server import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HttpServer,
    RefusedError,
    parse_head,
    path_of,
)
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def node() -> Iterator[TestBroker]:
    with running_broker({"metrics.listener": "0"}) as running:
        yield running


@pytest.fixture(scope="module")
def port(node: TestBroker) -> int:
    found = node.inside.monitor.port
    assert found is not None
    return found


@pytest.fixture
def web(port: int) -> Iterator[Web]:
    with Web(port) as connection:
        yield connection


def server_of(node: TestBroker) -> HttpServer:
    server = node.inside.monitor._http
    assert server is not None
    return server


def close_all(node: TestBroker) -> None:
    """Ends what earlier tests have left open."""

    def close(_: Broker) -> None:
        for each in list(server_of(node).connections):
            each.close()

    node.call(close)


# --- requests


def test_a_head_is_read() -> None:
    head = parse_head(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nX-Empty:\r\nConnection: close")
    assert head == ("GET", "/metrics", False, False, b"")
    assert parse_head(b"HEAD / HTTP/1.0").keeps_alive is False
    assert parse_head(b"HEAD / HTTP/1.0\nConnection: x, Keep-Alive").keeps_alive is True
    assert parse_head(b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 00").has_body is False
    assert parse_head(b"GET / HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: chunked").has_body is True
    assert path_of("HTTP://host:1/livez?x") == "/livez"
    assert path_of("http://host") == "/"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /", 400),
        (b"GET  / HTTP/1.1\r\nHost: x", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x", 400),
        (b"GET / HTTP/1.1\r\nno colon", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded", 400),
        (b"GET / HTTP/1.1\r\nSpace : x", 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/2.0\r\nHost: x", 505),
    ],
)
def test_a_head_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_head(head)
    assert refused.value.page.status == status


def test_a_page(web: Web) -> None:
    for _ in range(3):  # over one connection
        answer = web.get("/livez")
        assert (answer.status, answer.body) == (200, b"alive\n")
        assert "connection" not in answer.headers
    assert web.get("/readyz?verbose").body == b"ready\n"
    assert web.get("/livez", "Connection: close").headers["connection"] == "close"
    assert web.is_closed()


def test_head_is_get_without_its_body(web: Web) -> None:
    answer = web.get("/livez", method="HEAD")
    assert (answer.status, answer.headers["content-length"]) == (200, "6")
    assert web.get("/livez").body == b"alive\n"


def test_what_is_not_there(web: Web) -> None:
    answer = web.get("/")
    assert answer.status == 404
    assert answer.body == b"there is no such page; there are /metrics, /livez, /readyz\n"
    answer = web.get("/livez", method="DELETE")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert web.get("/livez").status == 200


def test_a_client_of_http_1_0(web: Web) -> None:
    web.send(b"GET /livez HTTP/1.0\r\n\r\n")
    assert web.answer().status == 200
    assert web.is_closed()


def test_lines_that_end_in_line_feeds_alone(web: Web) -> None:
    web.send(b"\r\n\nGET /livez HTTP/1.1\nHost: x\n\n")
    assert web.answer().status == 200


def test_requests_that_come_together_are_answered_in_their_order(web: Web) -> None:
    web.send(GET + b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n" + GET.replace(b"GET", b"HEAD") + GET * 200)
    assert web.answer().status == 200
    assert web.answer().status == 404
    assert web.answer(to_head=True).status == 200
    assert [web.answer().body for _ in range(200)] == [b"alive\n"] * 200


def test_a_request_that_comes_in_pieces(web: Web) -> None:
    for byte in GET:
        web.send(bytes([byte]))
    assert web.answer().status == 200


# --- what nobody should send


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),  # TLS
        (b"\x00\x00\x00\x0e\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00", 400),  # Kafka
        (b"nonsense\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nA: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * (2 * HEAD_BYTES_MAX), 431),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ],
)
def test_a_refusal_arrives_and_the_connection_ends(
    web: Web, monkeypatch: pytest.MonkeyPatch, sent: bytes, status: int
) -> None:
    monkeypatch.setattr(http_server, "LINGER_S", 0.2)
    web.send(sent)
    answer = web.answer()
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    web.send(b"and more" * 100)  # dropped, and no reset
    assert web.is_closed()


def test_nothing_of_a_stranger_is_kept(node: TestBroker, port: int) -> None:
    server = server_of(node)
    close_all(node)
    with Web(port) as web:
        web.send(b"G" * (HEAD_BYTES_MAX + 1))
        assert web.answer().status == 431
        for _ in range(50):
            web.send(b"x" * 8192)
        kept = node.call(lambda _: [len(each._buffer) for each in server.connections])
        assert all(size <= 2 * HEAD_BYTES_MAX for size in kept)


def test_half_a_request_does_not_stay(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 0.2)
    web.send(GET)
    assert web.answer().status == 200
    web.send(GET[:10])
    began = time.monotonic()
    assert web.is_closed()
    assert time.monotonic() - began < 5


def test_a_client_that_sends_a_byte_now_and_then_has_no_longer(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 0.3)
    with pytest.raises((ConnectionError, BrokenPipeError)):
        for byte in GET[:-1] * 20:
            web.send(bytes([byte]))
            time.sleep(0.02)
        raise AssertionError("it may go on for ever")


def test_a_silent_connection_ends(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_S", 0.2)
    with Web(port) as web:
        assert web.is_closed()


def test_a_client_that_does_not_read(node: TestBroker, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read from no more, and it ends; the others are served."""
    monkeypatch.setattr(http_server, "SEND_S", 1.0)
    large = http_server.Page(200, b"x" * 16_000_000)
    server = server_of(node)
    monkeypatch.setattr(server, "routes", {**server.routes, "/large": lambda respond: respond(large)})
    with Web(port) as web:
        web.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        assert get(port, "/livez").status == 200
        deadline = time.monotonic() + 60
        while any(node.call(lambda _: [bool(each._unsent) for each in server.connections])):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_client_that_leaves_before_its_answer(node: TestBroker, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[http_server.Respond] = []
    server = server_of(node)
    monkeypatch.setattr(server, "routes", {**server.routes, "/late": waiting.append})
    with Web(port) as web, Web(port) as other:
        web.send(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        other.send(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        while len(waiting) < 2:
            time.sleep(0.01)
        node.call(lambda _: next(iter(server.connections)).close())
        node.call(lambda _: [respond(http_server.Page(200, b"late\n")) for respond in waiting])
        left = other if web.is_closed() else web
        assert [left.answer().body, left.answer().body] == [b"late\n", b"alive\n"]


def test_more_connections_than_there_may_be(node: TestBroker, port: int) -> None:
    """A newcomer takes the place of the one that is silent for longest."""
    server = server_of(node)
    close_all(node)
    webs = [Web(port) for _ in range(CONNECTIONS_MAX)]
    try:
        assert [web.get("/livez").status for web in webs] == [200] * CONNECTIONS_MAX
        assert get(port, "/livez").status == 200
        assert len(node.call(lambda _: list(server.connections))) <= CONNECTIONS_MAX
        assert webs[0].is_closed()
        assert webs[-1].get("/livez").status == 200
    finally:
        for web in webs:
            web.socket.close()


def test_of_half_sent_requests_the_oldest_gives_way(node: TestBroker, port: int) -> None:
    server = server_of(node)
    close_all(node)
    webs = [Web(port) for _ in range(CONNECTIONS_MAX)]
    try:
        for web in webs:
            web.send(GET[:10])
        deadline = time.monotonic() + 60
        while any(node.call(lambda _: [each.idle for each in server.connections])):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with Web(port) as another:
            assert another.get("/livez").status == 200
            assert webs[0].is_closed()
            for web in webs[1:]:
                web.send(GET[10:])
            assert [web.answer().status for web in webs[1:]] == [200] * (CONNECTIONS_MAX - 1)
    finally:
        for web in webs:
            web.socket.close()


def test_half_sent_requests_give_way(node: TestBroker, port: int) -> None:
    close_all(node)
    halves = [Web(port, source="127.0.0.2") for _ in range(CONNECTIONS_MAX)]
    for half in halves:
        half.socket.sendall(b"GET /livez HTTP/1.1\r\n")
    until(lambda: node.call(lambda _: _half_sent(node)) == CONNECTIONS_MAX, "all of them are half sent")
    for _ in range(3):
        with Web(port) as web:
            web.socket.sendall(GET)
            assert web.socket.recv(15) == b"HTTP/1.1 200 OK"
    assert halves[0].socket.recv(1) == b"", "the oldest has given way"
    for half in halves:
        half.socket.close()


def test_an_address_that_has_most_gives_way(node: TestBroker, port: int) -> None:
    close_all(node)

    def pretend_all_at_work(_: Broker) -> None:
        for each in server_of(node).connections:
            each.idle, each._answering = False, True

    many = [Web(port, source="127.0.0.2") for _ in range(CONNECTIONS_MAX)]
    until(lambda: node.call(lambda _: len(server_of(node).connections)) == CONNECTIONS_MAX, "all are there")
    node.call(pretend_all_at_work)
    with Web(port, source="127.0.0.2") as own:
        assert own.socket.recv(1) == b"", "its own address has all of them"
    with Web(port) as other:
        other.socket.sendall(GET)
        assert other.socket.recv(15) == b"HTTP/1.1 200 OK"
    close_all(node)
    for each in many:
        each.socket.close()


def _half_sent(node: TestBroker) -> int:
    return sum(not each.idle for each in server_of(node).connections)


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
        b"Host: x\r\nHost: y",
        b"Host:",
        b"Host: a b",
        b"Host: a/b",
        b"Host: x@y",
        b"Host: x:port",
    ],
)
def test_what_two_servers_may_read_differently_is_refused(headers: bytes) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_head(b"GET /livez HTTP/1.1\r\n" + headers)
    assert refused.value.page.status == 400


@pytest.mark.parametrize("host", [b"x", b"10.0.0.1:9404", b"[2001:db8::1]:80", b"broker-1.example.org", b"_a.b"])
def test_hosts_that_are_served(host: bytes) -> None:
    assert parse_head(b"GET /livez HTTP/1.1\r\nHost: " + host).path == "/livez"
