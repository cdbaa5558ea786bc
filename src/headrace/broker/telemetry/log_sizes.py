"""Metrics of log sizes by partition, collected some logs at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Final, Protocol

from headrace.broker.telemetry.families import Family, Sample, gauge

SEGMENTS_AT_ONCE: Final = 500
"""Segments added up between two yields: some 0.1 ms."""


class SizedLog(Protocol):
    """The parts of a log that metrics read."""

    @property
    def topic_partition(self) -> tuple[str, int]:
        """Topic and partition index of the log."""
        ...

    @property
    def segments(self) -> Sized:
        """Segments of the log."""
        ...

    def size_bytes(self) -> int:
        """Returns the bytes of all batches."""
        ...


class LogSizes:
    """The section of the metrics page about log sizes."""

    def __init__(self, logs: Callable[[], Iterable[SizedLog]], partitions_max: int) -> None:
        """`logs` returns the open logs, the oldest first; `partitions_max` of them have series of their own."""
        self._logs = logs
        self._partitions_max = partitions_max

    def families(self) -> Iterator[Family | None]:
        """Yields the families of the section."""
        samples: list[Sample] = []
        total = others = segments = 0
        for log in self._logs():
            size = log.size_bytes()
            total += size
            if len(samples) < self._partitions_max:
                topic, index = log.topic_partition
                samples.append(("", {"topic": topic, "partition": str(index)}, size))
            else:
                others += 1
            segments += 1 + len(log.segments)
            if segments >= SEGMENTS_AT_ONCE:
                segments = 0
                yield None
        yield Family("kafka_log_log_size", "gauge", "Bytes of a partition's log on this broker.", samples)
        yield gauge("headrace_log_size_bytes", "Bytes of all logs on this broker.", total)
        yield gauge(
            "headrace_partitions_without_series",
            "Partitions beyond metrics.partitions.max, which headrace_log_size_bytes alone counts.",
            others,
        )
