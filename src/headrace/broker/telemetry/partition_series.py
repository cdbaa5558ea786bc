"""Metrics of each partition that this broker leads: its first and last offsets, and whether enough replicas are in
sync."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from headrace.broker.telemetry.families import Family, Sample
from headrace.broker.telemetry.partition_numbers import PARTITIONS_AT_ONCE, LedReplica, in_sync

PARTITION: Final = "kafka_topic_partition_"
CLUSTER: Final = "kafka_cluster_partition_"


class PartitionSeries:
    """The section of the metrics page with a series for each partition."""

    def __init__(self, led: Callable[[], Iterable[LedReplica]], partitions_max: int) -> None:
        """`led` returns the replicas that this broker leads; `partitions_max` of them have series."""
        self._led = led
        self._partitions_max = partitions_max

    def families(self) -> Iterator[Family | None]:
        """Yields the families of the section."""
        ends: list[Sample] = []
        starts: list[Sample] = []
        under: list[Sample] = []
        at: list[Sample] = []
        for count, replica in enumerate(list(islice(self._led(), self._partitions_max))):
            if count % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                yield None
            labels = {"topic": replica.topic, "partition": str(replica.index)}
            ends.append(("", labels, replica.state.high_watermark))
            starts.append(("", labels, replica.log.log_start_offset))
            found = in_sync(replica)
            under.append(("", labels, found.is_under))
            at.append(("", labels, found.is_at))
        yield Family(PARTITION + "current_offset", "gauge", "The high watermark of a partition.", ends)
        yield Family(PARTITION + "oldest_offset", "gauge", "Where a partition begins.", starts)
        yield Family(CLUSTER + "underminisr", "gauge", "1 where fewer than min.insync.replicas are in sync.", under)
        yield Family(CLUSTER + "atminisr", "gauge", "1 where one more failure makes it fewer.", at)
