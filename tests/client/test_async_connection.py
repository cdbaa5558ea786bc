"""The client's connection over a node's network: against a real broker, and against peers that behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any, cast

import pytest
from broker.sasl import PLAIN_ANN, SETTINGS
from peers.kafka import free_port

import headrace.testing
from headrace.broker.broker import Broker
from headrace.client.async_connection import TURN_BYTES, AsyncConnection
from headrace.client.errors import ConnectionLostError, ProtocolMismatchError, TimedOutError, UnreachableError
from headrace.client.login import NotLoggedInError
from headrace.client.security import ConnectionSecurity
from headrace.env.posix_node import PosixNode
from headrace.security.credentials import ClientLogin, Credentials
from headrace.security.login import Errand, LoginFailedError
from headrace.testing import TestBroker
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataResponse


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with headrace.testing.broker() as running:
        yield running


@pytest.fixture
async def node() -> AsyncIterator[PosixNode]:
    node = PosixNode(worker_threads=1, sync_threads=1)
    yield node
    assert node.defects.first is None
    await node.close()


@contextlib.contextmanager
def peer(answer: bytes | None) -> Iterator[int]:
    """A port that sends some bytes to whoever connects, then (None: at once) says nothing or closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connected, _ = listening.accept()
                    if answer is None:
                        connected.close()
                        continue
                    held.append(connected)
                    connected.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in held:
                each.close()


async def test_many_questions_at_once_are_answered_in_their_order(node: PosixNode, served: TestBroker) -> None:
    owner = node.owner("client")
    connection = await AsyncConnection.open(node, owner, "localhost", served.port, client_id="c", timeout_s=5)
    calls = [connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=5) for _ in range(200)]
    answers = await asyncio.gather(*calls)
    assert {answer.brokers[0].node_id for answer in answers} == {1}
    assert connection.outstanding == 0
    connection.close()
    assert connection.closed
    with pytest.raises(ConnectionLostError):
        await connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=5)


async def test_who_is_not_there(node: PosixNode) -> None:
    with pytest.raises(UnreachableError, match="refused"):
        await AsyncConnection.open(node, node.owner("c"), "127.0.0.1", free_port(), client_id="c", timeout_s=5)


async def test_who_never_answers(node: PosixNode) -> None:
    with peer(b"") as port, pytest.raises(TimedOutError, match="ApiVersions"):
        await AsyncConnection.open(node, node.owner("c"), "127.0.0.1", port, client_id="c", timeout_s=0.2)


async def test_who_hangs_up(node: PosixNode) -> None:
    with peer(None) as port, pytest.raises(ConnectionLostError):
        await AsyncConnection.open(node, node.owner("c"), "127.0.0.1", port, client_id="c", timeout_s=5)


async def test_who_speaks_something_else(node: PosixNode) -> None:
    with peer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port, pytest.raises(ProtocolMismatchError):
        await AsyncConnection.open(node, node.owner("c"), "127.0.0.1", port, client_id="c", timeout_s=5)


async def test_a_call_that_times_out_ends_the_connection_and_all_behind_it(node: PosixNode, served: TestBroker) -> None:
    owner = node.owner("client")
    connection = await AsyncConnection.open(node, owner, "127.0.0.1", served.port, client_id="c", timeout_s=5)

    def read_no_more(broker: Broker) -> None:
        for each in broker.server.connections:
            each.stream.on_readable(None)

    served.call(read_no_more)
    first = connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=0.1)
    second = connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=60)
    for call in (first, second):
        with pytest.raises(TimedOutError):
            await call


async def test_an_owner_that_is_closed_leaves_no_timer(node: PosixNode, served: TestBroker) -> None:
    owner = node.owner("client")
    connection = await AsyncConnection.open(node, owner, "127.0.0.1", served.port, client_id="c", timeout_s=5)
    connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=60)
    owner.close()
    connection.close()
    assert not owner.timers  # type: ignore[attr-defined]


async def test_who_is_closed_waits_for_no_login(node: PosixNode) -> None:
    """The time of the next login would keep the connection and its password for as long as a session lives."""
    owner = node.owner("test")
    settings = {**SETTINGS, "listener.name.clients.plain.connections.max.reauth.ms": "3600000"}
    with headrace.testing.broker(settings) as running:
        security = ConnectionSecurity(credentials=Credentials("PLAIN", "ann", "pencil"))
        link = await AsyncConnection.open(
            node, owner, "127.0.0.1", running.port, client_id="c", timeout_s=10, security=security
        )
        assert len(owner.timers) == 1  # type: ignore[attr-defined]
        link.close()
        assert not owner.timers  # type: ignore[attr-defined]


class Looking:
    """A look at a server elsewhere that says no word until it is let."""

    def __init__(self) -> None:
        self.began, self.let = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def look(self) -> None:
        self.began.set()
        assert self.let.wait(10)
        if self.error is not None:
            raise self.error


class Asking:
    """PLAIN, after a look before a login, and one in it."""

    mechanism = "PLAIN"

    def __init__(self) -> None:
        self.before, self.within = Looking(), Looking()
        self.asked: list[tuple[str, str]] = []

    def begin(self, _random: object, host: str = "", /) -> Errand[ClientLogin]:
        return Errand(partial(self._begun, host))

    def _begun(self, host: str) -> ClientLogin:
        self.asked.append((threading.current_thread().name, host))
        self.before.look()
        return AskingLogin(self.within)


class AskingLogin:
    """See Asking."""

    is_done = False

    def __init__(self, looking: Looking) -> None:
        self._looking = looking

    def first(self) -> Errand[bytes]:
        return Errand(self._first)

    def _first(self) -> bytes:
        self._looking.look()
        return PLAIN_ANN

    def respond(self, _token: bytes) -> bytes:
        self.is_done = True
        return b""


async def test_a_login_that_waits_for_others_holds_nobody_up(node: PosixNode) -> None:
    owner, credentials = node.owner("test"), Asking()
    with headrace.testing.broker(SETTINGS) as running:

        def opening() -> asyncio.Task[AsyncConnection]:
            at = AsyncConnection.open(
                node,
                owner,
                "127.0.0.1",
                running.port,
                client_id="c",
                timeout_s=10,
                security=ConnectionSecurity(credentials=credentials),
            )
            return asyncio.create_task(at)

        first = opening()
        for looking in (credentials.before, credentials.within):
            assert await asyncio.to_thread(looking.began.wait, 10)
            assert not first.done()  # and this loop goes on
            assert await node.workers.run(lambda: "a disk") == "a disk"
            looking.let.set()
        link = await first
        assert (await link.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=10)).brokers
        link.close()
        for looking in (credentials.within, credentials.before):
            looking.error = LoginFailedError("no ticket")
            with pytest.raises(NotLoggedInError, match=r"no login at 127\.0\.0\.1:\d+: no ticket"):
                await opening()
    assert all(name.startswith("headrace-errand") and host == "127.0.0.1" for name, host in credentials.asked)


async def test_a_renewal_that_breaks_ends_the_connection(node: PosixNode) -> None:
    """Whatever breaks it: what was asked meanwhile would wait for ever."""
    owner, credentials = node.owner("test"), Asking()
    credentials.before.let.set()
    credentials.within.let.set()
    settings = {**SETTINGS, "listener.name.clients.plain.connections.max.reauth.ms": "1000"}
    with headrace.testing.broker(settings) as running:
        link = await AsyncConnection.open(
            node,
            owner,
            "127.0.0.1",
            running.port,
            client_id="c",
            timeout_s=10,
            security=ConnectionSecurity(credentials=credentials),
        )
        credentials.within.let.clear()
        credentials.within.began.clear()
        assert await asyncio.to_thread(credentials.within.began.wait, 10)
        held = link.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=10)
        credentials.within.error = RuntimeError("it broke")
        credentials.within.let.set()
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(held, 5)
        assert link.closed
    assert str(node.defects.first) == "it broke"
    node.defects.first = None


class Flood:
    """A stream that takes all that it is given, and always has more."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.received: list[int] = []
        self.watches: list[bool] = []

    def send(self, parts: Sequence[memoryview]) -> int:
        self.sent.append(sum(map(len, parts)))
        return self.sent[-1]

    def receive_into(self, buffer: memoryview) -> int:
        self.received.append(len(buffer))
        return len(buffer)

    def on_writable(self, callback: object) -> None:
        self.watches.append(callback is not None)

    def close(self) -> None:
        pass


def flooded(node: PosixNode) -> tuple[AsyncConnection, Any]:
    connection, stream = AsyncConnection(node, node.owner("client"), "peer", "c"), Flood()
    connection._stream = cast("Any", stream)
    return connection, stream


@pytest.mark.parametrize("sizes", [[5 * TURN_BYTES + 7], [10, 3 * TURN_BYTES, 10], [TURN_BYTES - 1] * 5])
async def test_a_large_request_leaves_in_turns(node: PosixNode, sizes: list[int]) -> None:
    connection, stream = flooded(node)
    connection.channel.outgoing.extend(memoryview(bytes(size)) for size in sizes)
    while connection.channel.outgoing:
        before = sum(stream.sent)
        connection._push()
        assert 0 < sum(stream.sent) - before <= TURN_BYTES
    assert sum(stream.sent) == sum(sizes)
    assert stream.watches == [True, False]
    connection.close()


async def test_a_large_answer_arrives_in_turns(node: PosixNode) -> None:
    connection, stream = flooded(node)
    connection.channel._frame = memoryview(bytearray(20 * TURN_BYTES))
    connection._readable()
    assert 0 < sum(stream.received) < 2 * TURN_BYTES
    connection.close()
