"""Collections of garbage hold the loop: how much one of them looks at is bounded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker.serve import GC_THRESHOLDS

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
