"""How much of the time the event loop uses no processor."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.env import Node, Owner

INTERVAL_S: Final = 5.0
MARKS: Final = 13
"""The share is that of the last minute, and of up to five seconds more."""


class LoopShare:
    """Measures how much of the time the event loop is idle; runs from `start` on, as long as its owner is not closed.

    To be asked on the loop.
    """

    def __init__(self, node: Node, owner: Owner) -> None:
        self._monotonic, self._used = node.clock.monotonic, node.processor_s
        self._owner = owner
        self._marks: deque[tuple[float, float]] = deque(maxlen=MARKS)
        """Moments, and what processor time the loop's thread had used then."""

    def start(self) -> None:
        """Begins to look."""
        self._marks.append((self._monotonic(), self._used()))
        self._owner.later(INTERVAL_S, self.start)

    def idle(self) -> float:
        """From 0.0, where the loop keeps a core busy, to 1.0, where it has nothing to do."""
        if not self._marks:
            return 1.0
        then, used_then = self._marks[0]
        passed = self._monotonic() - then
        if passed <= 0:
            return 1.0
        # The two clocks of the system are not read at the same moment.
        return min(1.0, max(0.0, 1.0 - (self._used() - used_then) / passed))
