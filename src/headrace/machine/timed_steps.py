"""Work of a machine over several turns of the event loop, during which time passes."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

R = TypeVar("R")

TimedSteps: TypeAlias = Generator[int, int, R]
"""A generator that yields the steps since the last time, is sent the time in ms, and returns the result."""


def in_one_turn(steps: TimedSteps[R], now_ms: int) -> R:
    """Runs all steps in one turn, and returns the result."""
    try:
        next(steps)
        while True:
            steps.send(now_ms)
    except StopIteration as end:
        result: R = end.value
        return result
