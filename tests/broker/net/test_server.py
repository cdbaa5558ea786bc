"""When the answers of several connections leave, and what a server does with its requests when it ends."""

from __future__ import annotations

import inspect
import time
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from broker.raw import Raw

from headrace.broker.broker import Broker
from headrace.broker.net import send_queue
from headrace.broker.net.connection import Connection
from headrace.env.posix_network import PosixStream
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.primitives import Buffer


async def handle() -> None:
    raise AssertionError("the server has ended before it comes to this")


async def finish(handler: Coroutine[Any, Any, None]) -> None:
    await handler


def test_a_handler_that_is_never_come_to_is_closed() -> None:
    """Else Python says in some later test that nobody awaited it."""
    handler = handle()

    def end(broker: Broker) -> None:
        broker.server.start_task(finish(handler), handler)
        broker.server.owner.close()

    with running_broker() as running:
        running.call(end)
        until = time.monotonic() + 60
        while (state := inspect.getcoroutinestate(handler)) != inspect.CORO_CLOSED:
            assert time.monotonic() < until, state
            time.sleep(0.01)


def course_of(broker: TestBroker, raws: list[Raw], monkeypatch: pytest.MonkeyPatch) -> str:
    """All ask in one turn of the loop: h where the requests of one are handled, s where answers are sent."""
    course: list[str] = []
    take, send = Connection._take, PosixStream.send

    def taken(connection: Connection, end: int) -> None:
        course.append("h")
        take(connection, end)

    def sent(stream: PosixStream, parts: Sequence[Buffer], more: bool = False) -> int:
        course.append("s")
        return send(stream, parts, more)

    monkeypatch.setattr(Connection, "_take", taken)
    monkeypatch.setattr(PosixStream, "send", sent)

    def ask_all() -> None:
        for raw in raws:
            raw.send(ApiVersionsRequest(), 0)

    broker.call(lambda _: ask_all())  # on the loop, which serves nobody meanwhile
    for raw in raws:
        assert raw.receive(18, 0)[1].error_code == 0
    return "".join(course)


@pytest.mark.parametrize(
    ("beside_s", "together_s", "expected"),
    [
        pytest.param(60.0, 60.0, 10 * "h" + 10 * "s", id="together"),
        pytest.param(60.0, 0.0, 5 * "hhss", id="no longer than a moment"),
        pytest.param(-1.0, 60.0, 10 * "hs", id="not of one turn"),
    ],
)
def test_answers_of_one_turn_leave_together(
    beside_s: float, together_s: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_queue, "BESIDE_S", beside_s)
    monkeypatch.setattr(send_queue, "TOGETHER_S", together_s)
    with running_broker() as running, ExitStack() as several:
        raws = [several.enter_context(Raw(running.port)) for _ in range(10)]
        assert raws[-1].ask(ApiVersionsRequest(), 0).error_code == 0
        assert course_of(running, raws, monkeypatch) == expected


def test_answers_to_one_connection_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is there whom it could wait for."""
    monkeypatch.setattr(send_queue, "BESIDE_S", 60.0)
    with running_broker() as running, Raw(running.port) as raw:
        assert raw.ask(ApiVersionsRequest(), 0).error_code == 0
        assert course_of(running, [raw, raw, raw], monkeypatch) == "hs"
