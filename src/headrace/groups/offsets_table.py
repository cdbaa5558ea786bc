"""The offsets of one group: as committed by its members, and those that wait for a transaction to end."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias, TypeVar

from headrace.groups.records import Offset
from headrace.machine.timeline import Timeline, TimelineTable

K = TypeVar("K", bound=Hashable)

PartitionKey: TypeAlias = tuple[str, int]
"""(topic, partition)"""
PendingKey: TypeAlias = tuple[int, PartitionKey]
"""(producer id, partition)"""


class PendingOffsets(TimelineTable[PendingKey, Offset]):
    """(producer id, partition) -> the offset that counts once the producer's transaction commits."""

    __slots__ = ("_of_partition", "_of_producer")

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self._of_partition: dict[PartitionKey, dict[PendingKey, None]] = {}
        self._of_producer: dict[int, dict[PendingKey, None]] = {}

    def of_partition(self, partition: PartitionKey) -> list[PendingKey]:
        """The keys of a partition in `latest`."""
        return list(self._of_partition.get(partition, ()))

    def of_producer(self, producer_id: int) -> list[PendingKey]:
        """The keys of a producer in `latest`."""
        return list(self._of_producer.get(producer_id, ()))

    def put(self, key: PendingKey, value: Offset) -> None:
        """See TimelineTable."""
        super().put(key, value)
        self._index(key)

    def remove(self, key: PendingKey) -> None:
        """See TimelineTable."""
        super().remove(key)
        self._index(key)

    def undo(self, key: PendingKey, old: Offset) -> None:
        """See TimelineTable."""
        super().undo(key, old)
        self._index(key)

    def _index(self, key: PendingKey) -> None:
        is_there = key in self.latest
        _enter(self._of_producer, key[0], key, is_there)
        _enter(self._of_partition, key[1], key, is_there)


def _enter(index: dict[K, dict[PendingKey, None]], at: K, key: PendingKey, is_there: bool) -> None:
    """Has a key in the index at one place, or nowhere; an empty place goes."""
    if is_there:
        index.setdefault(at, {})[key] = None
    elif (keys := index.get(at)) is not None:
        keys.pop(key, None)
        if not keys:
            del index[at]


class OffsetTable:
    """Committed offsets by (topic, partition). Decisions look at the latest ones; fetches see those whose records are
    committed in the log."""

    __slots__ = ("pending", "positions")

    def __init__(self, timeline: Timeline) -> None:
        self.positions: TimelineTable[PartitionKey, Offset] = TimelineTable(timeline)
        self.pending = PendingOffsets(timeline)

    @property
    def latest(self) -> dict[PartitionKey, Offset]:
        """What decisions see; to be read."""
        return self.positions.latest

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left in it."""
        return not self.positions.latest and not self.pending.latest

    def remove(self, key: PartitionKey) -> None:
        """Removes the offset of a partition, and what transactions would make of it."""
        self.positions.remove(key)
        for waiting in self.pending.of_partition(key):
            self.pending.remove(waiting)

    def keys(self) -> set[PartitionKey]:
        """Every partition that has an offset, or may get one."""
        return self.pending_keys().union(self.positions.latest)

    def pending_keys(self) -> set[PartitionKey]:
        """Partitions whose offset an open transaction may yet change, as decisions see it."""
        return {key for _, key in self.pending.latest}

    def all_committed(self) -> list[tuple[PartitionKey, Offset]]:
        """Everything that a fetch sees, by topic and partition."""
        return sorted(self.positions.committed_items(), key=lambda item: item[0])

    def unstable(self) -> set[PartitionKey]:
        """Partitions whose offset an open transaction may yet change, as a fetch sees it (KIP-447)."""
        return {key for (_, key), _ in self.pending.committed_items()} if self.pending else set()
