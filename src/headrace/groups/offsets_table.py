"""The offsets of one group: as last appended, as last committed, and those that wait for a transaction to end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from headrace.groups.records import Offset

PartitionKey: TypeAlias = tuple[str, int]
"""(topic, partition)"""


class OffsetTable:
    """Committed offsets by (topic, partition).

    Decisions look at what was appended last (`latest`); fetches see what is committed. The two differ for the moment
    between an append and its commit, and `behind` holds that difference alone, so that it is empty most of the time.
    """

    __slots__ = ("behind", "latest", "pending")

    def __init__(self) -> None:
        self.latest: dict[PartitionKey, Offset] = {}
        self.behind: dict[PartitionKey, tuple[Offset | None, int]] = {}
        """Where the committed value is another one: that value, and how many appended changes are not committed."""
        self.pending: dict[int, dict[PartitionKey, Offset]] = {}
        """producer id -> offsets of its open transaction"""

    def __bool__(self) -> bool:
        return bool(self.latest or self.behind or self.pending)

    def put(self, key: PartitionKey, offset: Offset | None) -> None:
        """A committed change: an offset, or None for its removal."""
        if offset is None:
            self.latest.pop(key, None)
        else:
            self.latest[key] = offset

    def put_uncommitted(self, key: PartitionKey, offset: Offset | None) -> None:
        """A change that is appended and not committed; `commit` follows for each, in order."""
        value, count = self.behind.get(key) or (self.latest.get(key), 0)
        self.behind[key] = (value, count + 1)
        self.put(key, offset)

    def commit(self, key: PartitionKey, offset: Offset | None) -> None:
        """The oldest uncommitted change of `key`, to `offset`, is committed."""
        _, count = self.behind[key]
        if count == 1:
            del self.behind[key]
        else:
            self.behind[key] = (offset, count - 1)

    def committed(self, key: PartitionKey) -> Offset | None:
        """The offset that a fetch sees."""
        if self.behind and key in self.behind:
            return self.behind[key][0]
        return self.latest.get(key)

    def all_committed(self) -> Iterator[tuple[PartitionKey, Offset]]:
        """Everything that a fetch sees, by topic and partition."""
        for key in sorted({*self.latest, *self.behind}):
            offset = self.committed(key)
            if offset is not None:
                yield key, offset

    def is_unstable(self, key: PartitionKey) -> bool:
        """Whether an open transaction may yet change the offset (KIP-447)."""
        return bool(self.pending) and any(key in offsets for offsets in self.pending.values())
