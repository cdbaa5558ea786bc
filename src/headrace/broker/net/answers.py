"""What a handler may return instead of an answer: the promise of one, or the end of its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CloseConnectionError(Exception):
    """Raised by a handler where Kafka's answer is to close the connection; the reason goes to the log line."""


class UnknownVersionError(CloseConnectionError):
    """The same, of a version of an API that does not exist: its client comes back, so nobody hurries."""


class Pending(Generic[T]):
    """An answer that comes later: the handler returns it, keeps it, and resolves it exactly once."""

    __slots__ = ("_on_resolved", "abandon", "hurry", "resolved", "value")

    def __init__(self, abandon: Callable[[], None] | None = None, *, hurry: Callable[[], None] | None = None) -> None:
        """`abandon` is called when nobody waits for the answer any more, because the connection is gone. `hurry` is
        called when the client has asked for something else behind this."""
        self.resolved = False
        self.value: T | None = None
        self.abandon = abandon
        self.hurry = hurry
        self._on_resolved: Callable[[], None] | None = None

    def resolve(self, value: T | None) -> None:
        """Gives the answer (None: nothing is sent, and the requests behind it are free to be answered)."""
        assert not self.resolved, "an answer is given once"
        self.resolved = True
        self.value = value
        if self._on_resolved is not None:
            self._on_resolved()

    def when_resolved(self, callback: Callable[[], None]) -> None:
        """Calls back once there is a value; at once if there is one already. One listener only: the connection."""
        assert self._on_resolved is None
        if self.resolved:
            callback()
        else:
            self._on_resolved = callback
