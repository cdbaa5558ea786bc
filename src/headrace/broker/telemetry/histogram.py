"""Counts by size: what Prometheus makes quantiles of."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """How many observed values were at most each of `bounds`, which rise; and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of each bound those that the one before did not take, and at the end those beyond all bounds."""
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """`count` times the same value."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self.counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """(bound, values up to it), the last one with infinity and all of them."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts):
            total += count
            yield bound, total
