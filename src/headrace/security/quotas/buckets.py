"""What was used of each quota. A bucket that is not used dies, and there are so many at most.

If one more is needed, the least recently used one goes: an active client keeps the state of its quota, however many
clients with other names connect.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

BUCKETS_MAX: Final = 10_000
IDLE_MS: Final = 3_600_000
"""A bucket that was not used for so long is empty in any case."""

K = TypeVar("K", bound=Hashable)
B = TypeVar("B")


class Buckets(Generic[K, B]):
    """A bounded map of buckets. `make` makes a bucket of which nothing was used."""

    def __init__(self, make: Callable[[], B], buckets_max: int = BUCKETS_MAX, idle_ms: int = IDLE_MS) -> None:
        self._make = make
        self._buckets_max = buckets_max
        self._idle_ms = idle_ms
        self._used: dict[K, tuple[B, int]] = {}
        """The bucket and when it was used, the one that waits longest first."""

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, name: K) -> bool:
        return name in self._used

    def use(self, name: K, now_ms: int) -> B:
        """The bucket of that name, a new one where there is none."""
        found = self._used.pop(name, None)
        if found is None:
            bucket = self._make()
            if len(self._used) >= self._buckets_max:
                del self._used[next(iter(self._used))]
        else:
            bucket = found[0]
        self._used[name] = bucket, now_ms
        return bucket

    def expire(self, now_ms: int) -> None:
        """Drops those that were not used for too long."""
        while self._used:
            name = next(iter(self._used))
            if now_ms - self._used[name][1] < self._idle_ms:
                return
            del self._used[name]
