"""A request that waits for its partitions is answered in the call that says that they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.requests.readiness import once_ready

KEY = ("t", 0)


class Partitions:
    """One partition, which is ready for as long as the call lasts that says so."""

    def __init__(self) -> None:
        self.ready = False
        self.waiting: list[Callable[[], None]] = []

    def all_ready(self, _for_appends: bool) -> bool:
        return self.ready

    def is_ready(self, _key: object, *, for_appends: bool) -> bool:
        return self.ready

    def when_ready(self, _key: object, callback: Callable[[], None], *, for_appends: bool) -> None:
        self.waiting.append(callback)

    def be_ready_for_a_moment(self) -> None:
        self.ready = True
        for callback in self.waiting:
            callback()
        self.ready = False


async def ask(partitions: Partitions, answer: Callable[[], Any]) -> Any:
    """What becomes of a request that comes while the partition is not ready."""
    broker: Any = SimpleNamespace(
        replicas=partitions, node=SimpleNamespace(future=asyncio.get_running_loop().create_future)
    )
    later = once_ready(broker, [KEY], answer, for_appends=True)
    assert isinstance(later, Coroutine)
    task = asyncio.ensure_future(later)
    await asyncio.sleep(0)
    partitions.be_ready_for_a_moment()
    return await task


async def test_it_is_answered_while_they_are_ready() -> None:
    partitions = Partitions()
    assert await ask(partitions, lambda: partitions.ready) is True


async def test_what_it_raises_is_raised_where_it_is_answered() -> None:
    def answer() -> None:
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await ask(Partitions(), answer)


async def test_an_answer_that_comes_later_is_waited_for() -> None:
    async def late() -> str:
        await asyncio.sleep(0)
        return "late"

    assert await ask(Partitions(), late) == "late"
