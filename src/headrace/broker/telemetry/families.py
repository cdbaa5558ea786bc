"""Metrics on their way to a page: families of samples, as plain values.

A section is a generator of families. It yields None where it has worked for a moment and others may have the event
loop: see `exposition`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from headrace.broker.telemetry.histogram import Histogram

Labels = Mapping[str, str]
NO_LABELS: Final[Labels] = {}
Sample = tuple[str, Labels, float]
"""A suffix of the family's name, labels, and the value."""


class Family(NamedTuple):
    """All samples of one name. A counter's name is without `_total`, which its samples have."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    samples: list[Sample]


Section = Callable[[], Iterator[Family | None]]


def gauge(name: str, about: str, value: float) -> Family:
    """A gauge without labels."""
    return Family(name, "gauge", about, [("", NO_LABELS, value)])


def gauges(name: str, about: str, values: Iterable[tuple[Labels, float]]) -> Family:
    """A gauge for each set of labels."""
    return Family(name, "gauge", about, [("", labels, value) for labels, value in values])


def counter(name: str, about: str, value: float) -> Family:
    """A counter without labels."""
    return Family(name, "counter", about, [("_total", NO_LABELS, value)])


def counters(name: str, about: str, values: Iterable[tuple[Labels, float]]) -> Family:
    """A counter for each set of labels."""
    return Family(name, "counter", about, [("_total", labels, value) for labels, value in values])


def histograms(name: str, about: str, values: Iterable[tuple[Labels, Histogram]], unit: float = 1.0) -> Family:
    """A histogram for each set of labels; observations are multiplied by `unit`."""
    samples: list[Sample] = []
    for labels, histogram in values:
        total = 0
        for bound, total in histogram.buckets():
            shown = "+Inf" if bound == float("inf") else f"{bound * unit:g}"
            samples.append(("_bucket", {**labels, "le": shown}, total))
        samples.append(("_count", labels, total))
        samples.append(("_sum", labels, histogram.sum * unit))
    return Family(name, "histogram", about, samples)
