"""Metrics of the groups that this broker coordinates: committed offsets and lag, under kafka_exporter's names.

The lag is counted to the high watermark, as in Kafka's tools, if this broker has a replica of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from headrace.broker.telemetry.families import Family, Sample, gauge

OFFSETS_AT_ONCE: Final = 100
"""Offsets handled between two yields: some 0.2 ms."""
GROUPS: Final = "kafka_consumergroup_"

Committed: TypeAlias = tuple[str, Iterable[tuple[tuple[str, int], int]]]
"""A group, with its committed offset in each partition."""


class GroupNumbers:
    """The section of the metrics page about groups."""

    def __init__(
        self, committed: Callable[[], Iterator[Committed]], end_of: Callable[[str, int], int | None], offsets_max: int
    ) -> None:
        """`committed` iterates over the groups, which may change meanwhile; `end_of` returns the high watermark of a
        partition, or None if it is not known here; `offsets_max` offsets have series of their own."""
        self._committed = committed
        self._end_of = end_of
        self._offsets_max = offsets_max

    def families(self) -> Iterator[Family | None]:
        """Yields the families of the section."""
        positions: list[Sample] = []
        lags: list[Sample] = []
        sums: list[Sample] = []
        count = others = 0
        for group, offsets in self._committed():
            behind: dict[str, int] = {}
            for (topic, index), position in offsets:
                count += 1
                if count % OFFSETS_AT_ONCE == 0:
                    yield None
                end = self._end_of(topic, index)
                lag = None if end is None else max(0, end - position)
                if lag is not None:
                    behind[topic] = behind.get(topic, 0) + lag
                if len(positions) >= self._offsets_max:
                    others += 1
                    continue
                labels = {"consumergroup": group, "topic": topic, "partition": str(index)}
                positions.append(("", labels, position))
                if lag is not None:
                    lags.append(("", labels, lag))
            if len(sums) < self._offsets_max:
                sums += [("", {"consumergroup": group, "topic": topic}, lag) for topic, lag in behind.items()]
        yield Family(GROUPS + "current_offset", "gauge", "Where a group goes on in a partition.", positions)
        yield Family(GROUPS + "lag", "gauge", "Committed messages of a partition that a group has not read.", lags)
        yield Family(GROUPS + "lag_sum", "gauge", "The same, of all partitions of a topic.", sums)
        yield gauge(
            "headrace_group_offsets_without_series",
            "Committed offsets beyond metrics.offsets.max, which kafka_consumergroup_lag_sum alone counts.",
            others,
        )
