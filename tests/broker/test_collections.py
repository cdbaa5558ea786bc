"""Collections of garbage hold the loop: how much one of them looks at is bounded."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker.serve import GC_THRESHOLDS
from headrace.env.posix_node import PosixNode

YOUNG_MAX = 25_000
"""Objects: some 6 ms."""


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_a_burst_of_objects_that_stay_is_looked_at_a_little_at_a_time(thresholds: None) -> None:
    looked_at: list[tuple[int, int]] = []

    def began(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            generation = info["generation"]
            looked_at.append((generation, sum(len(gc.get_objects(each)) for each in range(generation + 1))))

    gc.callbacks.append(began)
    kept = [[number] for number in range(300_000)]
    gc.callbacks.remove(began)
    assert len(kept) == 300_000
    assert len(looked_at) > 10, "they were collected"
    assert max(count for generation, count in looked_at if generation < 2) <= YOUNG_MAX
    assert not [count for generation, count in looked_at if generation == 2], "the whole heap is not looked at"


def test_the_whole_heap_is_not_looked_at_because_much_is_made(thresholds: None) -> None:
    generations: list[int] = []

    def began(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.set_threshold(20, *GC_THRESHOLDS[1:])  # as after 500 times as many objects
    gc.callbacks.append(began)
    kept = [[number] for number in range(300_000)]
    gc.callbacks.remove(began)
    assert len(kept) == 300_000 and len(generations) > 10_000
    assert 2 not in generations


class Target:
    """Something that a timer holds."""

    def __init__(self, was_called: asyncio.Event) -> None:
        self._was_called = was_called

    def called(self) -> None:
        self._was_called.set()


@pytest.mark.parametrize("ends", ["called", "cancelled"])
def test_a_timer_that_is_over_is_freed_at_once(ends: str) -> None:
    async def run() -> None:
        node = PosixNode(worker_threads=1)
        owner, was_called = node.owner("test"), asyncio.Event()
        target = Target(was_called)
        noted, timer = weakref.ref(target), owner.later(0 if ends == "called" else 3600, target.called)
        if ends == "called":
            await was_called.wait()
        else:
            timer.cancel()
        del target, timer
        assert noted() is None
        await owner.closed()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
