"""The HTTP server, met with what clients, tools and hostile ones send."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import struct
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator

import pytest
from broker.telemetry.pages import Web, get
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.env.node import settle
from headrace.http.exchange import CHUNK_LINES_BYTES
from headrace.http.limits import HttpLimits
from headrace.http.messages import Refused, Request, Response
from headrace.http.routes import Routes
from headrace.http.server import HttpServer
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
CONNECTIONS_MAX = HttpLimits().connections_max
HEAD_BYTES_MAX = HttpLimits().head_bytes_max
BODY_BYTES_MAX = 1_000_000


class Pages:
    """What the server of these tests shows."""

    def __init__(self) -> None:
        self.late: list[asyncio.Future[Response]] = []
        self.cancelled = 0
        self.large_bytes = 16_000_000
        self.pieces_made = 0
        self.generators_open = 0

    def routes(self) -> Routes:
        routes = Routes()
        routes.add("GET", "/livez", self.livez)
        routes.add("GET", "/late", self.answers_late)
        routes.add("GET", "/large", self.large)
        routes.add("GET", "/pieces", self.pieces)
        routes.add("GET", "/breaks", self.breaks)
        routes.add("GET", "/fails", self.fails)
        routes.add("GET", "/refuses", self.refuses)
        routes.add("PUT", "/echo/{name}", self.echo, body_bytes_max=BODY_BYTES_MAX)
        routes.add("POST", "/echo/{name}", self.echo, body_bytes_max=BODY_BYTES_MAX)
        return routes

    async def livez(self, _: Request) -> Response:
        return Response(200, b"alive\n")

    async def answers_late(self, _: Request) -> Response:
        waits: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.late.append(waits)
        try:
            return await waits
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def answer_late(self) -> None:
        """Answers those that are still there."""
        for each in self.late:
            settle(each, Response(200, b"late\n"))

    async def large(self, _: Request) -> Response:
        return Response(200, b"x" * self.large_bytes)

    async def pieces(self, request: Request) -> Response:
        count = int(request.query().get("count", "3"))

        async def made() -> AsyncGenerator[bytes, None]:
            self.generators_open += 1
            try:
                for number in range(count):
                    self.pieces_made += 1
                    yield b"%d," % number + b"x" * int(request.query().get("size", "0"))
            finally:
                self.generators_open -= 1

        return Response(200, made())

    async def breaks(self, _: Request) -> Response:
        async def made() -> AsyncGenerator[bytes, None]:
            yield b"one"
            raise ZeroDivisionError

        return Response(200, made())

    async def fails(self, _: Request) -> Response:
        raise ZeroDivisionError

    async def refuses(self, _: Request) -> Response:
        raise Refused(409, "it is there already")

    async def echo(self, request: Request) -> Response:
        said = {"name": request.parameters["name"], "bytes": len(request.body), "query": request.query()}
        body = json.dumps(said).encode() + b"\n" + request.body[:100]
        return Response(201, body, "application/json", {"Location": "/echo"})


@pytest.fixture(scope="module")
def node() -> Iterator[TestBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def server(node: TestBroker, pages: Pages) -> Iterator[HttpServer]:
    def listen(broker: Broker) -> HttpServer:
        made = HttpServer(broker.node, pages.routes(), limits=HttpLimits(linger_s=0.2))
        made.listen("127.0.0.1", 0)
        return made

    opened = node.call(listen)
    yield opened
    node.call(lambda _: opened.close())


@pytest.fixture
def port(server: HttpServer) -> int:
    assert server.port is not None
    return server.port


@pytest.fixture
def web(port: int) -> Iterator[Web]:
    with Web(port) as connection:
        yield connection


# --- requests


def test_a_page(web: Web) -> None:
    for _ in range(3):  # over one connection
        answer = web.get("/livez")
        assert (answer.status, answer.body) == (200, b"alive\n")
        assert "connection" not in answer.headers
    assert web.get("/livez?verbose").body == b"alive\n"
    assert web.get("/livez", "Connection: close").headers["connection"] == "close"
    assert web.is_closed()


def test_head_is_get_without_its_body(web: Web) -> None:
    answer = web.get("/livez", method="HEAD")
    assert (answer.status, answer.headers["content-length"]) == (200, "6")
    assert web.get("/livez").body == b"alive\n"


def test_what_is_not_there(web: Web) -> None:
    answer = web.get("/")
    assert answer.status == 404
    assert answer.body.startswith(b"there is no such page; there are /livez, /late, ")
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
def test_a_refusal_arrives_and_the_connection_ends(web: Web, sent: bytes, status: int) -> None:
    web.send(sent)
    answer = web.answer()
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    web.send(b"and more" * 100)  # dropped, and no reset
    assert web.is_closed()


def test_nothing_that_comes_after_a_refusal_is_kept(node: TestBroker, server: HttpServer, port: int) -> None:
    server.limits.linger_s = 60
    with Web(port) as web:
        web.send(b"G" * (HEAD_BYTES_MAX + 1))
        assert web.answer().status == 431
        for _ in range(50):
            web.send(b"x" * 8192)
        kept = node.call(lambda _: [each.buffered_bytes for each in server.connections])
        assert all(size <= 2 * HEAD_BYTES_MAX for size in kept)


def test_half_a_request_does_not_stay(web: Web, server: HttpServer) -> None:
    server.limits.head_s = 0.2
    web.send(GET)
    assert web.answer().status == 200
    web.send(GET[:10])
    assert web.is_closed()


def test_half_a_body_does_not_stay(web: Web, server: HttpServer) -> None:
    server.limits.body_s = 0.2
    web.send(b"PUT /echo/a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
    assert web.is_closed()


def test_a_client_that_sends_a_byte_now_and_then_has_no_longer(web: Web, server: HttpServer) -> None:
    server.limits.head_s = 0.3
    with pytest.raises((ConnectionError, BrokenPipeError)):
        for byte in GET[:-1] * 20:
            web.send(bytes([byte]))
            time.sleep(0.02)
        raise AssertionError("it may go on for ever")


def test_a_silent_connection_ends(port: int, server: HttpServer) -> None:
    server.limits.idle_s = 0.2
    with Web(port) as web:
        assert web.is_closed()


def test_a_client_that_does_not_read(node: TestBroker, server: HttpServer, port: int) -> None:
    """The server no longer reads from it, and closes it; the others are served."""
    server.limits.answer_s = 1.0
    with Web(port) as web:
        web.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        assert get(port, "/livez").status == 200
        until(lambda: not node.call(lambda _: [each for each in server.connections if each.unsent_bytes]), "its end")


def test_a_client_that_leaves_before_its_answer(node: TestBroker, server: HttpServer, pages: Pages, port: int) -> None:
    with Web(port) as web, Web(port) as other:
        for each in (web, other):
            each.send(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        until(lambda: len(pages.late) == 2, "both are answered")
        node.call(lambda _: next(iter(server.connections)).close())
        until(lambda: pages.cancelled == 1, "the handler of the one that left has ended")
        node.call(lambda _: pages.answer_late())
        left = other if web.is_closed() else web
        assert [left.answer().body, left.answer().body] == [b"late\n", b"alive\n"]


def test_a_handler_has_only_so_long(server: HttpServer, pages: Pages, port: int) -> None:
    server.limits.answer_s = 0.2
    with Web(port) as web:
        web.send(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
        assert web.is_closed()
    until(lambda: pages.cancelled == 1, "the handler has ended")


# --- bodies


def put(web: Web, headers: bytes, body: bytes, path: bytes = b"/echo/a") -> None:
    web.send(b"PUT " + path + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n" + body)


def echoed(web: Web) -> dict[str, object]:
    answer = web.answer()
    assert answer.status == 201, answer
    found: dict[str, object] = json.loads(answer.body.split(b"\n")[0])
    return found


def test_a_body_with_a_length(web: Web) -> None:
    for size in (0, 1, 5, BODY_BYTES_MAX):
        put(web, b"Content-Length: %d" % size, b"y" * size, b"/echo/a%20b%2Fc?q=1&q=2&e=")
        assert echoed(web) == {"name": "a b/c", "bytes": size, "query": {"q": "2", "e": ""}}
    assert web.get("/livez").status == 200


def test_a_body_in_chunks(web: Web) -> None:
    chunks = [b"one", b"x" * 70_000, b"y"]
    body = b"".join(b"%x;ext=1\r\n" % len(each) + each + b"\r\n" for each in chunks) + b"0\r\nTrailer: t\r\n\r\n"
    put(web, b"Transfer-Encoding: chunked", body + GET)
    assert echoed(web)["bytes"] == 70_004
    assert web.answer().body == b"alive\n"


def test_a_body_that_comes_byte_by_byte(web: Web) -> None:
    put(web, b"Transfer-Encoding: chunked", b"")
    for byte in b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n":
        web.send(bytes([byte]))
    assert echoed(web)["bytes"] == 3


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (b"Content-Length: %d" % (BODY_BYTES_MAX + 1), b"", 413),
        (b"Content-Length: " + b"9" * 20, b"", 413),
        (b"Content-Length: " + b"9" * 4000, b"", 400),
        (b"Transfer-Encoding: chunked", b"%x\r\n" % (BODY_BYTES_MAX + 1) + b"x" * (BODY_BYTES_MAX + 1), 413),
        (b"Transfer-Encoding: chunked", b"fffffffffffffffffffff\r\n", 400),
        (b"Transfer-Encoding: chunked", b"1;" + b"e" * 20_000, 400),
        (b"Transfer-Encoding: chunked", b"zz\r\n", 400),
        (b"Transfer-Encoding: chunked", b"1\r\nxx\r\n", 400),
        (b"Transfer-Encoding: gzip, chunked", b"", 501),
    ],
)
def test_a_body_is_refused(web: Web, headers: bytes, body: bytes, status: int) -> None:
    put(web, headers, body)
    answer = web.answer()
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert web.is_closed()


def test_chunks_of_a_byte_each_have_a_bound(web: Web) -> None:
    chunk = b"1\r\nx\r\n"
    put(web, b"Transfer-Encoding: chunked", chunk * ((2 * BODY_BYTES_MAX + CHUNK_LINES_BYTES) // len(chunk) + 1))
    assert web.answer().status == 400


def test_a_client_that_waits_before_it_sends_its_body(web: Web) -> None:
    put(web, b"Content-Length: 3\r\nExpect: 100-continue", b"")
    assert web.socket.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n")
    web.send(b"abc")
    assert echoed(web)["bytes"] == 3
    put(web, b"Content-Length: %d\r\nExpect: 100-continue" % (2 * BODY_BYTES_MAX), b"")
    assert web.answer().status == 413


# --- responses


def test_a_response_in_pieces(port: int, pages: Pages) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for count in (3, 0, 1):
        client.request("GET", f"/pieces?count={count}")
        answer = client.getresponse()
        assert answer.getheader("transfer-encoding") == "chunked"
        assert answer.read() == b"".join(b"%d," % number for number in range(count))
    client.request("HEAD", "/pieces")
    assert client.getresponse().read() == b""
    client.request("GET", "/livez")
    assert client.getresponse().read() == b"alive\n"
    client.close()


def test_pieces_for_a_client_of_http_1_0_end_with_the_connection(web: Web) -> None:
    web.send(b"GET /pieces HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    came = b""
    while got := web.socket.recv(1000):
        came += got
    assert came.endswith(b"\r\n\r\n0,1,2,") and b"chunked" not in came


def test_pieces_are_made_no_faster_than_the_client_reads(server: HttpServer, port: int, pages: Pages) -> None:
    with Web(port) as web:
        web.send(b"GET /pieces?count=1000&size=100000 HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: pages.pieces_made > 0, "the first piece")
        assert get(port, "/livez").status == 200
        assert pages.pieces_made < 900
        read = 0
        while read < 100_000_000:
            read += len(web.socket.recv(1_000_000))
        assert pages.pieces_made == 1000


@pytest.mark.parametrize("path", [b"/pieces?count=100000&size=1000", b"/large"])
def test_a_client_that_resets_the_connection(
    node: TestBroker, server: HttpServer, port: int, pages: Pages, path: bytes
) -> None:
    for _ in range(5):
        with Web(port) as web:
            web.send(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n" + GET * 10)
            web.socket.recv(100_000)
            web.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: not node.call(lambda _: list(server.connections)), "the end of all connections")
    assert pages.generators_open == 0
    assert get(port, "/livez").status == 200
    assert node.call(lambda broker: broker.node.defects.count) == 0


def test_a_response_that_breaks_off_is_seen_as_such(node: TestBroker, port: int) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("GET", "/breaks")
    with pytest.raises(http.client.IncompleteRead):
        client.getresponse().read()
    client.close()
    forgive(node)


def test_a_handler_that_fails_is_a_defect_and_an_answer(node: TestBroker, port: int) -> None:
    answer = get(port, "/fails")
    assert (answer.status, answer.headers["connection"]) == (500, "close")
    assert isinstance(forgive(node), ZeroDivisionError)


def forgive(node: TestBroker) -> BaseException | None:
    """Returns the defect that was reported, which the broker would fail its test with."""
    return node.call(take_defect)


def take_defect(broker: Broker) -> BaseException | None:
    found, broker.node.defects.first = broker.node.defects.first, None
    assert found is not None
    broker.node.defects.count = 0
    return found


def test_a_handler_that_refuses_keeps_the_connection(web: Web) -> None:
    assert (web.get("/refuses").status, web.get("/livez").status) == (409, 200)


# --- too many


def test_more_connections_than_there_may_be(node: TestBroker, server: HttpServer, port: int) -> None:
    """A newcomer takes the place of the one that is silent for longest."""
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


def test_of_half_sent_requests_the_oldest_gives_way(node: TestBroker, server: HttpServer, port: int) -> None:
    webs = [Web(port) for _ in range(CONNECTIONS_MAX)]
    try:
        for web in webs:
            web.send(GET[:10])
        until(lambda: node.call(lambda _: _half_sent(server)) == CONNECTIONS_MAX, "all of them are half sent")
        with Web(port) as another:
            assert another.get("/livez").status == 200
            assert webs[0].is_closed()
            for web in webs[1:]:
                web.send(GET[10:])
            assert [web.answer().status for web in webs[1:]] == [200] * (CONNECTIONS_MAX - 1)
    finally:
        for web in webs:
            web.socket.close()


def test_half_sent_requests_give_way(node: TestBroker, server: HttpServer, port: int) -> None:
    halves = [Web(port, source="127.0.0.2") for _ in range(CONNECTIONS_MAX)]
    for half in halves:
        half.socket.sendall(b"GET /livez HTTP/1.1\r\n")
    until(lambda: node.call(lambda _: _half_sent(server)) == CONNECTIONS_MAX, "all of them are half sent")
    for _ in range(3):
        with Web(port) as web:
            web.socket.sendall(GET)
            assert web.socket.recv(15) == b"HTTP/1.1 200 OK"
    assert halves[0].socket.recv(1) == b"", "the oldest has given way"
    for half in halves:
        half.socket.close()


def test_an_address_that_has_most_gives_way(pages: Pages, port: int) -> None:

    many = [Web(port, source="127.0.0.2") for _ in range(CONNECTIONS_MAX)]
    for each in many:
        each.send(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: len(pages.late) == CONNECTIONS_MAX, "all are answered")
    with Web(port, source="127.0.0.2") as own:
        assert own.socket.recv(1) == b"", "its own address has all of them"
    with Web(port) as other:
        other.socket.sendall(GET)
        assert other.socket.recv(15) == b"HTTP/1.1 200 OK"
    for each in many:
        each.socket.close()


def _half_sent(server: HttpServer) -> int:
    return sum(not each.idle for each in server.connections)


# --- clients that we did not write


def test_curl(port: int) -> None:
    def curl(*arguments: str, stdin: bytes = b"") -> str:
        command = ["curl", "--silent", "--show-error", "--max-time", "60", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout.decode()

    address = f"http://127.0.0.1:{port}"
    assert curl(f"{address}/livez", f"{address}/pieces") == "alive\n0,1,2,"
    chunked = curl("-T", "-", "-H", "Transfer-Encoding: chunked", f"{address}/echo/a", stdin=b"x" * 200_000)
    assert json.loads(chunked.splitlines()[0])["bytes"] == 200_000
    posted = curl("--data-binary", "@-", f"{address}/echo/a", stdin=b"x" * 200_000)
    assert json.loads(posted.splitlines()[0])["bytes"] == 200_000
    assert curl("-o", "/dev/null", "-w", "%{http_code}", "-X", "DELETE", f"{address}/livez") == "405"
