"""Durations of requests by API: from the readable event that brought a request to its answer.

Requests that arrived together share their arrival time. Requests answered on the short paths of Produce and Fetch are
only counted there, and share the time at which everything that arrived with them is handled and their answers are
passed to the system, so that nothing is measured for each. An answer that waits (for a disk, other replicas, or data to
fetch) is measured on its own. The time that a client takes to read its answer is not included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from headrace.broker.telemetry.histogram import Histogram
from headrace.wire.apis import ApiKey

BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class RequestTimes:
    """The histograms, in seconds, by API key; one for all connections of a server.

    `produced` and `fetched` count the requests answered on the short paths since the last call of `handled`.
    """

    __slots__ = ("_fetch", "_monotonic", "_produce", "by_key", "fetched", "produced")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._produce, self._fetch = Histogram(BOUNDS_S), Histogram(BOUNDS_S)
        self.by_key: dict[int, Histogram] = {ApiKey.PRODUCE: self._produce, ApiKey.FETCH: self._fetch}
        """Histograms of Produce and Fetch, and of other APIs requested so far."""
        self.produced = self.fetched = 0

    def answered(self, key: int, began: float) -> None:
        """Counts a request that arrived at `began` and was answered now."""
        histogram = self.by_key.get(key)
        if histogram is None:
            histogram = self.by_key[key] = Histogram(BOUNDS_S)
        histogram.observe(self._monotonic() - began)

    def handled(self, seconds: float) -> None:
        """Counts the short paths' requests that arrived `seconds` ago."""
        count = self.produced
        if count:
            self.produced = 0
            self._produce.counts[bisect_left(BOUNDS_S, seconds)] += count
            self._produce.sum += seconds * count
        if self.fetched:
            self._fetch.observe(seconds, self.fetched)
            self.fetched = 0
