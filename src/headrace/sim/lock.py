"""A lock in a world with a single thread: it never blocks, and a task must not hold it across an await.

Only interrupted work (`steps`) may hold one for a while: if another part needs it, that work continues until it is
released.

A lock between threads does not exclude two tasks of one thread: on a real machine a task that held one across an await
would not be alone with its state. Here it is a defect as soon as another task reaches the same lock.
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
