"""Blocking work goes to worker threads through this seam: syncs, cold reads, cleaning, recovery.

A simulation runs the work inline, at a moment of its choosing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    """A few threads with a queue. Work must not change what the event loop owns."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Runs `work` on a worker, then `done(result, error)` on the event loop; one of the two is set."""
        ...

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work` on a worker and returns its result, or raises what it raised."""
        ...

    def close(self) -> None:
        """Waits for what is running; what is still queued runs too."""
        ...

    def kill(self) -> None:
        """Nobody hears any more of what is running; what is still queued does not run."""
        ...
