"""Counts everything that the broker does, in one registry; the metrics page and tests read only its frozen statistics.

A counter is an int attribute that its owner increments directly (`counter.value += n`), because hot paths can afford an
addition, but no call. Gauges are callables, called when statistics are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


class Counter:
    """A number that only grows."""

    __slots__ = ("name", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Adds `amount`, which is not negative."""
        self.value += amount


@dataclass(frozen=True, slots=True)
class Statistics:
    """The content of the registry at one moment, sorted by name."""

    counters: Mapping[str, int]
    gauges: Mapping[str, float]


class Registry:
    """All counters and gauges of one broker, by dotted name (`requests.PRODUCE`, `connections.open`)."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def counter(self, name: str) -> Counter:
        """Returns the counter called `name`, made on first use."""
        found = self._counters.get(name)
        if found is None:
            found = self._counters[name] = Counter(name)
        return found

    def counters(self, names: Iterable[str]) -> list[Counter]:
        """Returns several counters, in the order of their names."""
        return [self.counter(name) for name in names]

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Registers a number that is read when statistics are."""
        self._gauges[name] = read

    def statistics(self) -> Statistics:
        """Returns all counters and gauges."""
        return Statistics(
            counters={name: self._counters[name].value for name in sorted(self._counters)},
            gauges={name: self._gauges[name]() for name in sorted(self._gauges)},
        )
