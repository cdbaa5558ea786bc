"""How long requests took, by API: from the readable event that brought a request to its answer.

Requests that arrived together share the moment of their arrival, and those of them that were answered together share
one observation: nothing is measured for each. An answer that waits (for a disk, for other replicas, for data to fetch)
is measured on its own. What a client takes to read its answer is not in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from headrace.broker.telemetry.histogram import Histogram

BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class RequestTimes:
    """The histograms, in seconds, by API key. One for all connections of a server."""

    __slots__ = ("_monotonic", "by_key")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.by_key: dict[int, Histogram] = {}
        """Of the APIs that were asked for so far."""

    def answered(self, key: int, began: float, count: int = 1) -> None:
        """`count` requests that arrived at `began` were answered."""
        seconds = self._monotonic() - began
        histogram = self.by_key.get(key)
        if histogram is None:
            histogram = self.by_key[key] = Histogram(BOUNDS_S)
        # What `observe` does, without the call: the short ways of Produce and Fetch come here.
        histogram.counts[bisect_left(BOUNDS_S, seconds)] += count
        histogram.sum += seconds * count
