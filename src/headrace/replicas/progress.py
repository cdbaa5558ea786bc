"""How far a partition is committed, as its leader sees it.

The high watermark is the lowest offset that every in-sync replica has reached. A leader counts itself by what it has
written, or, where acknowledgements wait for the disk (`acks.flush=before-reply`), by what it has synced.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class LeaderProgress:
    """The offsets of the in-sync replicas under one leader epoch; `reached` maps a replica's node id to its end
    offset."""

    __slots__ = ("high_watermark", "leader_epoch", "node_id", "reached")

    def __init__(self, node_id: int, leader_epoch: int, isr: tuple[int, ...], high_watermark: int) -> None:
        assert node_id in isr, "a leader is in sync with itself"
        self.node_id = node_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.reached = dict.fromkeys(isr, high_watermark)

    def advance(self, replica: int, offset: int) -> bool:
        """A replica has everything below `offset`; says whether the high watermark moved. It never falls."""
        if replica not in self.reached:
            return False
        self.reached[replica] = offset
        lowest = offset if len(self.reached) == 1 else min(self.reached.values())
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True


class OffsetWaiters(Generic[T]):
    """Who waits for a watermark to reach an offset, released in order of offset, then of arrival."""

    __slots__ = ("_arrivals", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, waiter: T) -> None:
        """Registers a waiter for `offset`."""
        self._arrivals += 1
        heappush(self._heap, (offset, self._arrivals, waiter))

    def reached(self, offset: int) -> list[T]:
        """Removes and returns those whose offset is at most `offset`."""
        heap = self._heap
        released: list[T] = []
        while heap and heap[0][0] <= offset:
            released.append(heappop(heap)[2])
        return released

    def take_all(self) -> list[T]:
        """Removes and returns everyone: the replica can reach nothing any more."""
        released = [waiter for _, _, waiter in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap = []
        return released
