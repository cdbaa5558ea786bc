"""The offsets of one group: committed ones, and those pending in open transactions."""

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
    """Pending offsets: (producer id, partition) -> the offset that is committed with the producer's transaction."""

    __slots__ = ("_of_partition", "_of_producer")

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self._of_partition: dict[PartitionKey, dict[PendingKey, None]] = {}
        self._of_producer: dict[int, dict[PendingKey, None]] = {}

    def of_partition(self, partition: PartitionKey) -> list[PendingKey]:
        """Returns the keys of a partition in `latest`."""
        return list(self._of_partition.get(partition, ()))

    def of_producer(self, producer_id: int) -> list[PendingKey]:
        """Returns the keys of a producer in `latest`."""
        return list(self._of_producer.get(producer_id, ()))

    def put(self, key: PendingKey, value: Offset) -> None:
        """Sets a pending offset and indexes it."""
        super().put(key, value)
        self._index(key)

    def remove(self, key: PendingKey) -> None:
        """Removes a pending offset and its index entries."""
        super().remove(key)
        self._index(key)

    def undo(self, key: PendingKey, old: Offset) -> None:
        """Reverts a lost change, in the index too."""
        super().undo(key, old)
        self._index(key)

    def _index(self, key: PendingKey) -> None:
        is_there = key in self.latest
        _enter(self._of_producer, key[0], key, is_there)
        _enter(self._of_partition, key[1], key, is_there)


def _enter(index: dict[K, dict[PendingKey, None]], at: K, key: PendingKey, is_there: bool) -> None:
    """Adds a key to an entry of the index, or removes it; removes an empty entry."""
    if is_there:
        index.setdefault(at, {})[key] = None
    elif (keys := index.get(at)) is not None:
        keys.pop(key, None)
        if not keys:
            del index[at]


class OffsetTable:
    """The offsets of one group, by (topic, partition). Decisions use the latest ones, fetches the committed ones."""

    __slots__ = ("pending", "positions")

    def __init__(self, timeline: Timeline) -> None:
        self.positions: TimelineTable[PartitionKey, Offset] = TimelineTable(timeline)
        self.pending = PendingOffsets(timeline)

    @property
    def latest(self) -> dict[PartitionKey, Offset]:
        """The offsets as decisions see them; read-only."""
        return self.positions.latest

    @property
    def is_empty(self) -> bool:
        """Whether the group has neither committed nor pending offsets."""
        return not self.positions.latest and not self.pending.latest

    def remove(self, key: PartitionKey) -> None:
        """Removes the offset of a partition, and its pending offsets."""
        self.positions.remove(key)
        for waiting in self.pending.of_partition(key):
            self.pending.remove(waiting)

    def keys(self) -> set[PartitionKey]:
        """Returns every partition with a committed or pending offset."""
        return self.pending_keys().union(self.positions.latest)

    def pending_keys(self) -> set[PartitionKey]:
        """Returns the partitions with pending offsets, as decisions see them."""
        return {key for _, key in self.pending.latest}

    def all_committed(self) -> list[tuple[PartitionKey, Offset]]:
        """Returns all committed offsets, by topic and partition."""
        return sorted(self.positions.committed_items(), key=lambda item: item[0])

    def unstable(self) -> set[PartitionKey]:
        """Returns the partitions with pending offsets, as a fetch sees them (KIP-447)."""
        return {key for (_, key), _ in self.pending.committed_items()} if self.pending else set()
