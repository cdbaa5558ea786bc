"""Waiters for a watermark (committed, synced) to reach an offset."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")


class OffsetWaiters(Generic[T]):
    """Waiters for a watermark to reach an offset, released in order of offset, then of arrival.

    A waiter may have a deadline on any monotonic clock. Almost all are released long before it, so deadlines are not
    sorted: `expire` scans all waiters, and is to be called at `wake_at` only.
    """

    __slots__ = ("_arrivals", "_heap", "wake_at")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T, float]] = []
        self._arrivals = 0
        self.wake_at = inf
        """A lower bound of all deadlines; infinity if there are none."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, waiter: T, deadline: float = inf) -> bool:
        """Registers a waiter for `offset`; returns whether `wake_at` became earlier."""
        self._arrivals += 1
        heappush(self._heap, (offset, self._arrivals, waiter, deadline))
        if deadline >= self.wake_at:
            return False
        self.wake_at = deadline
        return True

    def reached(self, offset: int) -> list[T]:
        """Removes and returns the waiters whose offset is at most `offset`."""
        heap = self._heap
        released: list[T] = []
        while heap and heap[0][0] <= offset:
            released.append(heappop(heap)[2])
        return released

    def take_all(self) -> list[T]:
        """Removes and returns all waiters."""
        released = [entry[2] for entry in sorted(self._heap, key=_in_order)]
        self._heap = []
        self.wake_at = inf
        return released

    def expire(self, now: float) -> list[T]:
        """Removes and returns the waiters whose deadline has passed; sets `wake_at` to the next deadline."""
        due = sorted((entry for entry in self._heap if entry[3] <= now), key=_in_order)
        if due:
            self._heap = [entry for entry in self._heap if entry[3] > now]
            heapify(self._heap)
        self.wake_at = min((entry[3] for entry in self._heap), default=inf)
        return [entry[2] for entry in due]


def _in_order(entry: tuple[int, int, object, float]) -> tuple[int, int]:
    return entry[:2]
