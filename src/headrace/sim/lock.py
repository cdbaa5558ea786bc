"""A lock where one thread does everything: there is nothing to wait for, and a task that awaits must not hold it.

Only work that is interrupted (`steps`) may hold one for a while: who wants it waits until that has gone on.

A lock between threads does not keep two tasks of one thread apart: a task that held one while it awaited would be
alone with its state on no machine. Here it is a defect as soon as another task comes to the same lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self


class SimLock:
    """See `env.node.Lock`. `who` says who is asking: the task that runs, None outside of tasks."""

    __slots__ = ("_times", "_wait", "_who", "holder")

    def __init__(self, who: Callable[[], object] = lambda: None, wait: Callable[[SimLock], None] | None = None) -> None:
        """`who` identifies the caller, `wait` lets the holder go on; None: nobody can."""
        self._who = who
        self._wait = wait
        self.holder: object = None
        self._times = 0

    @property
    def is_held(self) -> bool:
        """Whether anybody holds it."""
        return self._times > 0

    def acquire(self, blocking: bool = True) -> bool:
        """See Lock.acquire."""
        who = self._who()
        while self._times and self.holder is not who:
            if not blocking:
                return False
            assert self._wait is not None, f"{who} takes a lock that {self.holder} has not given back"
            self._wait(self)
        self.holder = who
        self._times += 1
        return True

    def release(self) -> None:
        """See Lock.release."""
        assert self._times and self.holder is self._who(), "a lock is given back by who took it"
        self._times -= 1
        if not self._times:
            self.holder = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()
