"""Measures the share of time in which the event loop uses no processor."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.env import Node, Owner

INTERVAL_S: Final = 5.0
MARKS: Final = 13
"""Number of samples: the share covers the last minute, and up to five seconds more."""


class LoopShare:
    """Samples of the loop's processor time; runs from `start` until its owner is closed. Used on the loop's thread."""

    def __init__(self, node: Node, owner: Owner) -> None:
        self._monotonic, self._used = node.clock.monotonic, node.processor_s
        self._owner = owner
        self._marks: deque[tuple[float, float]] = deque(maxlen=MARKS)
        """Times, each with the processor time that the loop's thread had used."""

    def start(self) -> None:
        """Starts measuring; called again for each sample."""
        self._marks.append((self._monotonic(), self._used()))
        self._owner.later(INTERVAL_S, self.start)

    def idle(self) -> float:
        """Returns the idle share, from 0.0 (the loop keeps a core busy) to 1.0 (it has nothing to do)."""
        if not self._marks:
            return 1.0
        then, used_then = self._marks[0]
        passed = self._monotonic() - then
        if passed <= 0:
            return 1.0
        # Limited to this range, because the system's two clocks are not read at the same moment.
        return min(1.0, max(0.0, 1.0 - (self._used() - used_then) / passed))
