"""The offsets of one group: as committed by its members, and those that wait for a transaction to end."""

from __future__ import annotations

from typing import TypeAlias

from headrace.groups.records import Offset
from headrace.machine.timeline import Timeline, TimelineTable

PartitionKey: TypeAlias = tuple[str, int]
"""(topic, partition)"""


class OffsetTable:
    """Committed offsets by (topic, partition). Decisions look at the latest ones; fetches see those whose records are
    committed in the log."""

    __slots__ = ("pending", "positions")

    def __init__(self, timeline: Timeline) -> None:
        self.positions: TimelineTable[PartitionKey, Offset] = TimelineTable(timeline)
        self.pending: TimelineTable[tuple[int, PartitionKey], Offset] = TimelineTable(timeline)
        """(producer id, partition) -> the offset that counts once the producer's transaction commits"""

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
        for waiting in [waiting for waiting in self.pending.latest if waiting[1] == key]:
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
