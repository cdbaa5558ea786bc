"""A budget of bytes shared by many connections, which keeps their total within one named limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Budget:
    """Bytes in use against a limit.

    `take` refuses beyond the limit. `overdraw` lets one holder at a time exceed it, so that one frame can always be
    finished: otherwise many half-received frames could fill the budget and wait for each other for ever.
    """

    __slots__ = ("_waiting", "limit", "overdrawn_by", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.overdrawn_by: object | None = None
        """Holder of the current overdraft, if there is one."""
        self._waiting: deque[Callable[[], None]] = deque()
        """Callbacks of waiting holders, in order of arrival."""

    @property
    def exhausted(self) -> bool:
        """Whether the budget is used up."""
        return self.used >= self.limit

    @property
    def contended(self) -> bool:
        """Whether any holder waits for bytes."""
        return bool(self._waiting)

    def take(self, size: int) -> bool:
        """Takes `size` bytes if the limit allows it; returns whether it did."""
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def overdraw(self, size: int, holder: object) -> bool:
        """Takes `size` bytes beyond the limit, for one holder at a time; returns whether it did. `settle` ends the
        overdraft."""
        if self.overdrawn_by is not None and self.overdrawn_by is not holder:
            return False
        self.overdrawn_by = holder
        self.used += size
        return True

    def force(self, size: int) -> None:
        """Takes `size` bytes that are in memory already, even beyond the limit."""
        self.used += size

    def settle(self, holder: object) -> None:
        """Ends the overdraft of a holder; harmless if it had none."""
        if self.overdrawn_by is holder:
            self.overdrawn_by = None
            self._wake()

    def give(self, size: int) -> None:
        """Returns bytes, and wakes waiting holders."""
        self.used -= size
        assert self.used >= 0, "more bytes returned than taken"
        if self._waiting:
            self._wake()

    def wait(self, callback: Callable[[], None]) -> None:
        """Queues a callback, called in order of arrival when a retry may succeed."""
        self._waiting.append(callback)

    def _wake(self) -> None:
        waiting = len(self._waiting)
        while waiting and (self.used < self.limit or self.overdrawn_by is None):
            waiting -= 1
            self._waiting.popleft()()
            if self.used >= self.limit:
                return
