"""When a node that died is started again, and when that has no end."""

from __future__ import annotations

from collections import deque
from typing import Final

FIRST_PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 10.0
DEATHS_MAX: Final = 5
"""So many deaths of one node within `WINDOW_S` end the whole."""
WINDOW_S: Final = 60.0


class Restarts:
    """The deaths of one node. Times are seconds of the steady clock."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=DEATHS_MAX)
        self._pause_s = FIRST_PAUSE_S

    def died(self, now_s: float) -> float | None:
        """The pause in seconds before the next start; None where there is to be none any more.

        The pause doubles with each death, and is the first one again after a minute without.
        """
        if self._deaths and now_s - self._deaths[-1] >= WINDOW_S:
            self._pause_s = FIRST_PAUSE_S
        self._deaths.append(now_s)
        if len(self._deaths) == DEATHS_MAX and now_s - self._deaths[0] < WINDOW_S:
            return None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)
        return pause_s
