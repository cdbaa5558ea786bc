"""Owners of timers and tasks, and locks between threads: what a node gives to the parts of a broker."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Lock(AbstractContextManager[Any], Protocol):
    """What keeps two threads out of the same state: `with lock:`. The thread that holds it may take it again.

    It is between threads, and no task may wait while it holds one.
    """

    def acquire(self, blocking: bool = True) -> bool:
        """Takes it; False where another thread holds it and the caller would not wait (`blocking` false)."""
        ...

    def release(self) -> None:
        """Gives it back, once for each time that it was taken."""
        ...


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """It will not come; harmless when it has, or was cancelled before."""
        ...


class Owner(Protocol):
    """The owner of timers and tasks. Once closed, nothing that it started runs any more, and it starts nothing.

    An exception that leaves a callback or a task is a defect, and goes to the node's defect handler.
    """

    name: str

    def soon(self, callback: Callable[..., object], *args: Any) -> Timer:
        """Calls back in the next turn of the loop."""
        ...

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Calls back after `delay_s` seconds of the steady clock."""
        ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Task[Any]:
        """Starts a task. Awaiting it raises what it raised; a task that nobody awaits must not raise."""
        ...

    def close(self) -> None:
        """Cancels every timer and task; more than once is harmless."""
        ...

    async def closed(self) -> None:
        """Closes, and returns when the last task has ended."""
        ...
