"""Blocking work goes to worker threads through this seam: syncs, cold reads, cleaning, recovery.

A simulation runs the work inline, at a moment of its choosing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

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


class HelperDied(OSError):
    """The helper process ended before it had answered: it was killed, or ran out of memory."""


class Helper(Protocol):
    """A process beside the broker's, at a lower priority: for what a client can make as heavy as it likes.

    It is started by the first call, and has the modules that it was sent functions of.
    """

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function of a module returns, or raises. To be called on a worker: it waits, also for other callers.

        Arguments and result are copied. Raises HelperDied, and OSError where no process can be started.
        """
        ...

    def close(self) -> None:
        """Ends the process; whoever waits for it gets HelperDied."""
        ...
