"""What a server does with its requests when it ends."""

from __future__ import annotations

import inspect
import time
from collections.abc import Coroutine
from typing import Any

from headrace.broker.broker import Broker
from headrace.testing.running import broker as running_broker


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
        until = time.monotonic() + 10
        while (state := inspect.getcoroutinestate(handler)) != inspect.CORO_CLOSED:
            assert time.monotonic() < until, state
            time.sleep(0.01)
