"""Metrics families and samples, as plain values, between their sources and the page.

A section is a generator of families. It yields None after a moment of work, so that other tasks may run (see
`exposition`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from headrace.broker.telemetry.histogram import Histogram

Labels = Mapping[str, str]
NO_LABELS: Final[Labels] = {}
Sample = tuple[str, Labels, float]
"""A suffix of the family's name, the labels, and the value."""


class Family(NamedTuple):
    """All samples of one name. A counter's name lacks the `_total` that its samples have."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    samples: list[Sample]


Section = Callable[[], Iterator[Family | None]]


def gauge(name: str, about: str, value: float) -> Family:
    """Returns a gauge without labels."""
    return Family(name, "gauge", about, [("", NO_LABELS, value)])


def gauges(name: str, about: str, values: Iterable[tuple[Labels, float]]) -> Family:
    """Returns a gauge with a sample for each set of labels."""
    return Family(name, "gauge", about, [("", labels, value) for labels, value in values])


def counter(name: str, about: str, value: float) -> Family:
    """Returns a counter without labels."""
    return Family(name, "counter", about, [("_total", NO_LABELS, value)])


def counters(name: str, about: str, values: Iterable[tuple[Labels, float]]) -> Family:
    """Returns a counter with a sample for each set of labels."""
    return Family(name, "counter", about, [("_total", labels, value) for labels, value in values])


def histograms(name: str, about: str, values: Iterable[tuple[Labels, Histogram]], unit: float = 1.0) -> Family:
    """Returns a histogram for each set of labels; observations are multiplied by `unit`."""
    samples: list[Sample] = []
    for labels, histogram in values:
        total = 0
        for bound, total in histogram.buckets():
            shown = "+Inf" if bound == float("inf") else f"{bound * unit:g}"
            samples.append(("_bucket", {**labels, "le": shown}, total))
        samples.append(("_count", labels, total))
        samples.append(("_sum", labels, histogram.sum * unit))
    return Family(name, "histogram", about, samples)
