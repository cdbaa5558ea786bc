"""The real node: owners that end what they started, connections that go out, defects that are kept, a kill that leaves
nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from headrace.env.network import Listener, Stream
from headrace.env.posix_node import PosixNode, fields_text, on_hang_up
from headrace.env.workers import Raised


async def until(holds: Callable[[], object]) -> None:
    """Waits for a condition that callbacks make true."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


@pytest.fixture
async def node() -> AsyncIterator[PosixNode]:
    node = PosixNode(worker_threads=1, sync_threads=1)
    yield node
    await node.close()


async def test_an_owner_ends_its_timers_and_tasks(node: PosixNode) -> None:
    owner, other = node.owner("one"), node.owner("other")
    came: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.01)
        came.append("task")

    owner.later(0.01, came.append, "timer")
    owner.spawn(work())
    other.later(0.01, came.append, "other's")
    owner.close()
    await asyncio.sleep(0.05)
    assert came == ["other's"]
    owner.later(0, came.append, "late")
    owner.spawn(work())
    await asyncio.sleep(0.05)
    assert came == ["other's"], "a closed owner starts nothing"


async def test_a_cancelled_timer_does_not_come_and_one_that_came_is_forgotten(node: PosixNode) -> None:
    owner = node.owner("one")
    came: list[int] = []
    timer = owner.later(0.01, came.append, 1)
    owner.later(0.01, came.append, 2)
    timer.cancel()
    timer.cancel()
    await asyncio.sleep(0.05)
    assert came == [2]
    assert not owner.timers  # type: ignore[attr-defined]


async def test_what_escapes_is_a_defect(node: PosixNode) -> None:
    owner = node.owner("one")

    async def fails() -> None:
        raise ValueError("in a task")

    def breaks() -> None:
        raise KeyError("in a callback")

    owner.spawn(fails())
    owner.soon(breaks)
    owner.later(0, breaks)
    await asyncio.sleep(0.02)
    assert node.defects.count == 3
    assert isinstance(node.defects.first, KeyError)


async def test_connections_go_out_and_come_in(node: PosixNode) -> None:
    accepted: list[Stream] = []
    connected: list[Stream] = []
    failed: list[OSError] = []
    listener = node.network.listen(
        "127.0.0.1",
        0,
        backlog=5,
        receive_buffer=-1,
        send_buffer=-1,
        on_connection=accepted.append,
        on_failure=failed.append,
    )
    listener.pause(False)
    node.network.connect("localhost", listener.port, on_connected=connected.append, on_failure=failed.append)
    await until(lambda: accepted and connected)
    connected[0].send((b"hello",))
    buffer = memoryview(bytearray(10))
    sizes: list[int] = []
    accepted[0].on_readable(lambda: sizes.append(accepted[0].receive_into(buffer)))
    await until(lambda: sizes)
    assert bytes(buffer[: sizes[0]]) == b"hello"
    listener.close()
    node.network.connect("127.0.0.1", listener.port, on_connected=connected.append, on_failure=failed.append)
    await until(lambda: failed)
    assert failed[0].errno == errno.ECONNREFUSED
    abandoned = node.network.connect("127.0.0.1", 1, on_connected=connected.append, on_failure=failed.append)
    abandoned.cancel()
    await asyncio.sleep(0.05)
    assert (len(connected), len(failed)) == (1, 1)


def listening(node: PosixNode) -> tuple[Listener, list[Stream]]:
    """A listener, and what it accepts."""
    accepted: list[Stream] = []
    listener = node.network.listen(
        "127.0.0.1",
        0,
        backlog=5,
        receive_buffer=-1,
        send_buffer=-1,
        on_connection=accepted.append,
        on_failure=print,
    )
    listener.pause(False)
    return listener, accepted


async def test_a_peer_that_has_ended_is_noticed_without_reading(node: PosixNode) -> None:
    listener, accepted = listening(node)
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        await until(lambda: accepted)
        assert not accepted[0].has_hung_up(None)
        client.sendall(b"last words")
    await until(lambda: accepted[0].has_hung_up(None))
    assert not accepted[0].has_hung_up(9)
    assert accepted[0].has_hung_up(10)
    assert accepted[0].receive_into(memoryview(bytearray(99))) == 10
    assert accepted[0].has_hung_up()


async def test_work_on_a_worker_is_delivered_with_its_result_or_with_what_it_raised(node: PosixNode) -> None:
    got: list[str | Raised] = []
    names: list[str] = []

    def receive(name: str | Raised) -> None:
        assert node.completions.is_delivering, "the completion queue delivers it"
        names.append(threading.current_thread().name)
        got.append(name)

    def fail() -> str:
        raise KeyError("missing")

    node.workers.submit(lambda: threading.current_thread().name).deliver_to(receive)
    await until(lambda: got)
    node.workers.submit(fail).deliver_to(receive)
    await until(lambda: len(got) == 2)
    name, raised = got
    assert isinstance(name, str) and name.startswith("headrace")
    assert isinstance(raised, Raised) and isinstance(raised.error, KeyError)
    assert names == [threading.current_thread().name] * 2


async def test_a_kill_leaves_nothing(node: PosixNode) -> None:
    came: list[str] = []
    listener, accepted = listening(node)
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        await until(lambda: accepted)
        go_on = threading.Event()
        node.workers.submit(go_on.wait).deliver_to(lambda _: came.append("work"))
        node.workers.submit(lambda: came.append("queued")).deliver_to(lambda _: came.append("work"))
        node.owner("one").later(0.01, came.append, "timer")
        node.kill()
        go_on.set()
        await asyncio.sleep(0.05)
        assert came == []
        client.settimeout(5)
        assert client.recv(1) == b""
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", listener.port), timeout=1)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "topic created"),
        ({"topic": "rides", "partitions": 3}, "topic created topic=rides partitions=3"),
        ({"why": 'a "bad" day'}, 'topic created why="a \\"bad\\" day"'),
        ({"name": ""}, 'topic created name=""'),
        ({"name": "one\ntwo"}, 'topic created name="one\\ntwo"'),
    ],
)
def test_an_event_is_one_line(fields: dict[str, object], text: str) -> None:
    assert fields_text("topic created", fields) == text


async def test_the_end_of_a_pipe_is_heard_once() -> None:
    mine, theirs = os.pipe()
    heard: list[str] = []
    on_hang_up(mine, lambda: heard.append("end"))
    await asyncio.sleep(0.02)
    assert heard == []
    os.close(theirs)
    await until(lambda: heard)
    await asyncio.sleep(0.02)
    assert heard == ["end"]
    os.close(mine)
