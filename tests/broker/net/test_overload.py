"""Many clients that misbehave at once: memory stays inside its budgets, and a well-behaved neighbour is served."""

from __future__ import annotations

import resource
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.env.posix import raise_open_files_limit
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest

API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
MB = 1 << 20


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    """Client and broker share one process here, so connections may wait longer to be accepted than usual."""
    with running_broker({"socket.listen.backlog.size": "4096"}) as running:
        yield running


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def connect(port: int, count: int, receive_buffer: int = 4096) -> list[socket.socket]:
    raise_open_files_limit()
    sockets = []
    for number in range(count):
        each = socket.socket()
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
        sockets.append(each)
        if number % 40 == 39:
            # No more than the backlog holds, and the broker's thread gets its turn.
            for one in sockets[-40:]:
                connected = select.poll()
                connected.register(one, select.POLLOUT)
                connected.poll(10_000)
    for each in sockets:
        each.settimeout(10)
    return sockets


@contextmanager
def crowd(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(each) for each in connect(port, count)]


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.02)


def neighbour_is_served(served: TestBroker, topic: str) -> None:
    with Raw(served.port) as raw:
        before = time.monotonic()
        answer = raw.ask(produce(topic, batch(b"still here")), 9).responses[0].partition_responses[0]
        assert answer.error_code == 0
        assert time.monotonic() - before < 5


def test_2000_idle_connections(served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic()
    before = resident_bytes()
    with crowd(served.port, 2000):
        wait_until(lambda: served.call(lambda broker: len(broker.server.connections)) >= 2000)
        neighbour_is_served(served, name)
        assert resident_bytes() - before < 40 * MB
    wait_until(lambda: served.call(lambda broker: len(broker.server.connections)) < 10)


def test_300_announced_giants(served: TestBroker, topic: Callable[..., str]) -> None:
    """A buffer grows with what arrives, never with what is announced."""
    name = topic()
    before = resident_bytes()
    with crowd(served.port, 300) as sockets:
        for each in sockets:
            each.sendall(struct.pack(">ihhih", 90 * MB, 0, 9, 1, 1) + b"x" + bytes(1024))
        wait_until(lambda: served.call(lambda broker: broker.server.requests_budget.used) >= 300 * 1024)
        neighbour_is_served(served, name)
        held = served.call(lambda broker: broker.server.requests_budget.used)
        assert held < 300 * 70 * 1024
        assert resident_bytes() - before < 40 * MB
    wait_until(lambda: served.call(lambda broker: broker.server.requests_budget.used) == 0)


def test_300_readers_that_never_read(served: TestBroker, topic: Callable[..., str]) -> None:
    """A slow reader costs file slices, not bytes: 300 of them have 150 MB each on the way."""
    name = topic(max_message_bytes=str(2 * MB))
    value = b"v" * (1 * MB)
    with Raw(served.port) as raw:
        for _ in range(40):
            assert raw.ask(produce(name, batch(value)), 9).responses[0].partition_responses[0].error_code == 0
        ask = raw.frame(fetch(name, 0, partition_max_bytes=150 * MB, max_bytes=150 * MB), 11)
    before = resident_bytes()
    with crowd(served.port, 300) as sockets:
        for each in sockets:
            each.sendall(ask * 4)
        time.sleep(1)
        neighbour_is_served(served, name)
        assert served.call(lambda broker: broker.server.responses_budget.used) < 4 * MB
        assert resident_bytes() - before < 60 * MB
    wait_until(lambda: served.call(lambda broker: broker.server.responses_budget.used) == 0)


def test_a_client_that_asks_and_never_reads_is_not_read_from(served: TestBroker, topic: Callable[..., str]) -> None:
    """Answers that nobody takes stop the reading of further requests: pipelining cannot fill the broker's memory."""
    topic()
    with Raw(served.port, receive_buffer=4096) as raw:
        one = raw.frame(API_VERSIONS, 3)
        raw.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            while True:
                raw.socket.sendall(one * 500)
        assert served.call(lambda broker: broker.server.responses_budget.used) < 3 * MB
        raw.socket.settimeout(10)
        for _ in range(2000):
            assert raw.receive(18, 3)[1].error_code == 0


@pytest.mark.slow
def test_unanswered_requests_are_bounded(topic: Callable[..., str]) -> None:
    with running_broker({"connection.max.queued.requests": "10"}) as served, Raw(served.port) as raw:
        create_topic(served.port, "quiet")
        waiting = [raw.frame(fetch("quiet", 0, max_wait_ms=700), 11) for _ in range(40)]
        raw.socket.sendall(b"".join(waiting))
        wait_until(lambda: served.call(lambda broker: broker.fetches.waiting) == 10)
        time.sleep(0.1)
        assert served.call(lambda broker: broker.fetches.waiting) == 10
        for number in range(40):
            assert raw.receive(1, 11)[0] == number + 1


def test_waiting_fetches_are_bounded() -> None:
    with running_broker({"connections.max.waiting.fetches": "3"}) as served, Raw(served.port) as raw:
        create_topic(served.port, "quiet")
        for _ in range(3):
            raw.send(fetch("quiet", 0, max_wait_ms=60_000), 11)
        wait_until(lambda: served.call(lambda broker: broker.fetches.waiting) == 3)
        with Raw(served.port) as other:
            other.send(fetch("quiet", 0, max_wait_ms=60_000), 11)
            assert raw.receive(1, 11)[0] == 1, "the oldest is answered in its place"
            assert served.call(lambda broker: broker.fetches.waiting) == 3


def test_nobody_takes_all_places_of_waiting_fetches() -> None:
    with running_broker({"connections.max.waiting.fetches": "4"}) as served:
        create_topic(served.port, "quiet")

        def waiting() -> int:
            return served.call(lambda broker: broker.fetches.waiting)

        def of_holders() -> dict[str, int]:
            return served.call(lambda broker: {who: len(all_) for who, all_ in broker.fetches._of_holder.items()})

        with Raw(served.port) as light, Raw(served.port, source="127.0.0.2") as heavy:
            light.send(fetch("quiet", 0, max_wait_ms=60_000), 11)
            wait_until(lambda: waiting() == 1)
            for _ in range(3):
                heavy.send(fetch("quiet", 0, max_wait_ms=60_000), 11)
            wait_until(lambda: waiting() == 4)
            for number in range(20):
                heavy.send(fetch("quiet", 0, max_wait_ms=60_000), 11)
                assert heavy.receive(1, 11)[0] == number + 1, "its own give way, the oldest first"
            assert of_holders() == {"127.0.0.1": 1, "127.0.0.2": 3}
            light.send(fetch("quiet", 0, max_wait_ms=60_000), 11)
            assert heavy.receive(1, 11)[0] == 21
            assert of_holders() == {"127.0.0.1": 2, "127.0.0.2": 2}
        wait_until(lambda: waiting() == 0)
        assert of_holders() == {}


def test_requests_beyond_the_memory_budget_take_turns() -> None:
    """Twelve clients with 3 MB each, a budget of 2 MB: everyone gets through, and memory stays near the budget."""
    settings = {"queued.max.request.bytes": str(2 * MB), "message.max.bytes": str(4 * MB)}
    with running_broker(settings) as served:
        create_topic(served.port, "large", max_message_bytes=str(4 * MB))
        peaks: list[int] = []

        def write() -> int:
            with Raw(served.port, timeout_s=60) as client:
                answer = client.ask(produce("large", batch(b"v" * (3 * MB))), 9)
                code: int = answer.responses[0].partition_responses[0].error_code
                return code

        with ThreadPoolExecutor(12) as pool:
            writers = [pool.submit(write) for _ in range(12)]
            while not all(each.done() for each in writers):
                peaks.append(served.call(lambda broker: broker.server.requests_budget.used))
        assert [each.result() for each in writers] == [0] * 12
        assert max(peaks) < 12 * MB
        assert served.call(lambda broker: broker.server.requests_budget.used) == 0


def test_a_stopped_writer_is_closed_only_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.net.server.STALLED_FRAME_S", 0.3)
    monkeypatch.setattr("headrace.broker.net.server.SWEEP_S_MAX", 0.1)
    settings = {"queued.max.request.bytes": str(1 * MB), "message.max.bytes": str(4 * MB)}
    with running_broker(settings) as served:
        create_topic(served.port, "large", max_message_bytes=str(4 * MB))
        with Raw(served.port) as first, Raw(served.port) as second, Raw(served.port) as third:
            whole = first.frame(produce("large", batch(b"v" * (3 * MB))), 9)
            first.socket.sendall(whole[: 2 * MB])  # draws the budget, and overdraws it
            assert not first.is_closed(0.8)  # nobody waits
            second.socket.sendall(whole[: 800 * 1024])  # waits for memory that never comes
            assert first.is_closed(5)
            third.socket.settimeout(10)
            answer = third.ask(produce("large", batch(b"small")), 9).responses[0].partition_responses[0]
            assert answer.error_code == 0


def test_idle_connections_are_closed() -> None:
    with running_broker({"connections.max.idle.ms": "400"}) as served, Raw(served.port) as raw:
        assert raw.ask(API_VERSIONS, 3).error_code == 0
        assert raw.is_closed(3)


def test_connection_limits() -> None:
    with running_broker({"max.connections.per.ip": "3"}) as served:
        with crowd(served.port, 3):
            wait_until(lambda: served.call(lambda broker: len(broker.server.connections)) == 3)
            with Raw(served.port) as refused:
                assert refused.is_closed()
        wait_until(lambda: served.call(lambda broker: len(broker.server.connections)) == 0)
        with Raw(served.port) as again:
            assert again.ask(API_VERSIONS, 3).error_code == 0


@pytest.mark.slow
def test_small_requests_for_large_answers_that_come_at_once(served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic(200)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    with Raw(served.port, receive_buffer=4096) as raw:
        raw.socket.sendall(b"".join(raw.frame(asked, 8) for _ in range(2000)))

        def most_held() -> int:
            return served.call(
                lambda broker: max([0, *(each._replies.sending.held for each in broker.server.connections)])
            )

        wait_until(lambda: most_held() > 0)
        time.sleep(0.3)
        assert most_held() < 2 * MB
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MB)
        assert [raw.receive(3, 8)[0] for _ in range(2000)] == list(range(1, 2001))


@pytest.mark.slow
def test_large_answers_behind_a_waiting_fetch(served: TestBroker, topic: Callable[..., str]) -> None:
    name = topic(200)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    with Raw(served.port) as raw:
        before = served.call(lambda broker: broker.server.requests_budget.used)
        raw.send(fetch(name, 0, max_wait_ms=4000), 11)
        raw.socket.sendall(b"".join(raw.frame(asked, 8) for _ in range(255)))

        def kept() -> int:
            return served.call(lambda broker: max([0, *(each._replies._kept for each in broker.server.connections)]))

        wait_until(lambda: kept() >= MB)
        assert kept() < 1.2 * MB
        assert served.call(lambda broker: broker.server.requests_budget.used) - before > MB
        assert raw.receive(1, 11)[0] == 1
        assert [raw.receive(3, 8)[0] for _ in range(255)] == list(range(2, 257))
        wait_until(lambda: served.call(lambda broker: broker.server.requests_budget.used) == before)
