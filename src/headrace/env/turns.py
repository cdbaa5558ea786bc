"""Turns for work that can wait: so little of it at once that others on the same loop are served meanwhile.

Steps of TLS handshakes, of logins, connections that knock: each takes some hundred microseconds, and unauthenticated
clients may cause thousands of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from headrace.env.owner import Owner

SLICE_S: Final = 0.00025
"""So much is done at once, or one step that takes longer; then the loop turns to the others."""


class Turns(Protocol):
    """Who says when a step may be made."""

    def ask(self, step: Callable[[], None]) -> None:
        """Calls `step` later, once: after those that were asked for before it."""
        ...


class SlicedTurns:
    """Makes steps one after the other, a slice of time at once, and rests after it: so long that what is done stays a
    share of the time, and until the next turn of the loop in any case.

    It holds one step for each who waits; until its turn a step costs nothing.
    """

    def __init__(self, owner: Owner, monotonic: Callable[[], float], share: Callable[[], float] = lambda: 1.0) -> None:
        """`share`, above 0 and up to 1, is what the steps may have of the time as of now."""
        self._owner = owner
        self._monotonic = monotonic
        self._share = share
        self._steps: deque[Callable[[], None]] = deque()
        self._left_s = SLICE_S
        self._rests = False
        self._is_due = False

    def __len__(self) -> int:
        """How many steps wait."""
        return len(self._steps)

    def ask(self, step: Callable[[], None]) -> None:
        """See Turns."""
        self._steps.append(step)
        self._run_soon()

    def has_turn(self) -> bool:
        """Whether a step may be made at once, by `serve`: nobody else waits, and something is left of the slice."""
        return not self._rests and not self._steps

    def serve(self, step: Callable[[], None]) -> None:
        """Makes a step, and counts what it took."""
        began = self._monotonic()
        try:
            step()
        finally:
            self._left_s -= self._monotonic() - began
            if self._left_s <= 0 and not self._rests:
                self._rest()

    def _rest(self) -> None:
        self._rests = True
        rest_s = (SLICE_S - self._left_s) * (1 / self._share() - 1)
        if rest_s > 0:
            self._owner.later(rest_s, self._rested)
        else:
            self._owner.soon(self._rested)

    def _rested(self) -> None:
        self._rests = False
        self._left_s = SLICE_S
        self._run()

    def _run_soon(self) -> None:
        if self._steps and not self._rests and not self._is_due:
            self._is_due = True
            self._owner.soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        try:
            while self._steps and not self._rests:
                self.serve(self._steps.popleft())
        finally:
            self._run_soon()  # a step failed
