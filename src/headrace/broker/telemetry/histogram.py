"""Histograms with fixed bounds, from which Prometheus computes quantiles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """The numbers of observed values up to each of `bounds`, which ascend, and the sum of the values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Number of values in each bucket; the last bucket has the values beyond all bounds."""
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Counts `value`, `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        """Number of observed values."""
        return sum(self.counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Yields (bound, number of values up to it); the last bound is infinity."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts):
            total += count
            yield bound, total
