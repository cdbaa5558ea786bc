"""Work of a machine that takes several turns of the event loop, for which time passes meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

R = TypeVar("R")

TimedSteps: TypeAlias = Generator[int, int, R]
"""Yields how much it has done since the last time, is sent the time in milliseconds, and returns the result."""


def in_one_turn(steps: TimedSteps[R], now_ms: int) -> R:
    """Returns the result of all steps, made in one turn."""
    try:
        next(steps)
        while True:
            steps.send(now_ms)
    except StopIteration as end:
        result: R = end.value
        return result
