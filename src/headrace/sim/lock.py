"""A lock where one thread does everything: there is nothing to wait for, and a task that awaits must not hold it.

A lock between threads does not keep two tasks of one thread apart: a task that held one while it awaited would be
alone with its state on no machine. Here it is a defect as soon as another task comes to the same lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self


class SimLock:
    """See `env.node.Lock`. `who` says who is asking: the task that runs, None outside of tasks."""

    __slots__ = ("_holder", "_times", "_who")

    def __init__(self, who: Callable[[], object] = lambda: None) -> None:
        self._who = who
        self._holder: object = None
        self._times = 0

    def acquire(self, blocking: bool = True) -> bool:
        """See Lock.acquire."""
        who = self._who()
        if self._times and self._holder is not who:
            assert not blocking, f"{who} takes a lock that {self._holder} has not given back"
            return False
        self._holder = who
        self._times += 1
        return True

    def release(self) -> None:
        """See Lock.release."""
        assert self._times and self._holder is self._who(), "a lock is given back by who took it"
        self._times -= 1
        if not self._times:
            self._holder = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()
