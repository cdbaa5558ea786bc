"""Measures how long the event loop is blocked, by the lateness of a timer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from headrace.env import Node, Owner

INTERVAL_S: Final = 0.1
"""Interval of the timer: a block longer than this is always seen, a shorter one in proportion."""
BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
MAX_OVER_S: Final = 60.0
"""Span of the maximum, which covers the last one to two of these."""


class LoopLag:
    """The lateness of a periodic timer; runs from `start` until its owner is closed."""

    def __init__(self, node: Node, owner: Owner) -> None:
        self.histogram = Histogram(BOUNDS_S)
        self._monotonic = node.clock.monotonic
        self._owner = owner
        self._due = self._turns_at = 0.0
        self._max = self._max_before = 0.0

    @property
    def max_s(self) -> float:
        """Longest delay of the last minute or two, in seconds."""
        return max(self._max, self._max_before)

    def start(self) -> None:
        """Starts measuring."""
        now = self._monotonic()
        self._turns_at = now + MAX_OVER_S
        self._wait(now)

    def _wait(self, now: float) -> None:
        self._due = now + INTERVAL_S
        self._owner.later(INTERVAL_S, self._look)

    def _look(self) -> None:
        now = self._monotonic()
        late = max(0.0, now - self._due)
        self.histogram.observe(late)
        if now >= self._turns_at:
            self._turns_at = now + MAX_OVER_S
            self._max_before, self._max = self._max, 0.0
        self._max = max(self._max, late)
        self._wait(now)
