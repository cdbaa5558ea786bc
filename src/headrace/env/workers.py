"""Blocking work goes to worker threads through this seam: syncs, cold reads, cleaning, recovery.

A simulation runs the work inline, at a moment of its choosing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from headrace.env.completion import Completion

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Raised:
    """The outcome of work that raised an exception on its worker."""

    error: BaseException


class Workers(Protocol):
    """A few threads with a queue. Work must not change what the event loop owns."""

    def submit(self, work: Callable[[], T]) -> Completion[T | Raised]:
        """Runs `work` on a worker. The completion has its result, or what it raised; it never comes if the pool is
        killed."""
        ...

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work` on a worker and returns its result, or raises what it raised."""
        ...

    def close(self) -> None:
        """Waits for all running and queued work."""
        ...

    def kill(self) -> None:
        """Drops queued work, and the results of running work."""
        ...


class HelperDied(OSError):
    """The helper process ended before it had answered: it was killed, or ran out of memory."""


class Helper(Protocol):
    """A process beside the broker's, at a lower priority: for what a client can make as heavy as it likes.

    It is started by the first call, and has the modules that it was sent functions of.
    """

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Returns what a function of a module returns there, or raises what it raises. Blocks, also for other callers:
        only workers call it.

        Arguments and result are copied. Raises HelperDied, and OSError if no process can be started.
        """
        ...

    def close(self) -> None:
        """Ends the process. Calls that wait for it raise HelperDied."""
        ...
