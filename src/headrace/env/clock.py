"""Time, as the rest of the broker sees it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two readings of time: one for people and records, one for measuring."""

    def now_ms(self) -> int:
        """The wall clock in milliseconds since 1970; may go back."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread: for worker threads only (the cleaner's throttle)."""
        ...
