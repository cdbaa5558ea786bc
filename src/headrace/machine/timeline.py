"""Tables with a latest and a committed state, and a way back from one to the other.

A leader appends records, applies them, and decides upon the result at once; it shows others only the committed state,
and reverts to it if an append is lost. So every change of a table remembers its old value until the log is committed
beyond it. If the log is committed with each append (one broker), nothing is remembered, and a change costs no more than
a dict's.

The same design as Kafka's TimelineHashMap and SnapshotRegistry (KIP-631), with one snapshot to revert to.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final[Any] = object()


class Timeline:
    """The written and committed offsets of one log, for the tables that are filled from it."""

    __slots__ = ("_changes", "_settled_offset", "_writes", "committed_offset", "is_level", "written_offset")

    def __init__(self) -> None:
        self._changes: deque[tuple[int, TimelineTable[Any, Any], Any, Any, Any]] = deque()
        """(end offset of the append, table, key, old value, new value) of uncommitted changes, in order."""
        self._writes: deque[int] = deque()
        """The end offset of each uncommitted append, in order."""
        self._settled_offset = 0
        """The end offset of the last append that is wholly committed."""
        self.written_offset = 0
        """The end offset of the records in the tables."""
        self.committed_offset = 0
        """The offset below which nothing can be lost."""
        self.is_level = True
        """Whether changes made now are already committed."""

    def __len__(self) -> int:
        """Returns the number of changes that may still be reverted."""
        return len(self._changes)

    def write(self, end_offset: int) -> None:
        """Attributes the following changes to records that end before `end_offset`."""
        assert end_offset >= self.written_offset, f"{end_offset} after {self.written_offset}"
        self.written_offset = end_offset
        self.is_level = end_offset <= self.committed_offset
        if self.is_level:
            self._settled_offset = end_offset
        else:
            self._writes.append(end_offset)

    def append(self, end_offset: int, committed_offset: int) -> None:
        """Notes that the following changes were appended, up to `end_offset`; the log is committed up to
        `committed_offset` by now.
        """
        if committed_offset >= end_offset and self.is_level:
            assert end_offset >= self.written_offset
            self.written_offset = self._settled_offset = end_offset
            self.committed_offset = max(committed_offset, self.committed_offset)
        else:
            self.commit(committed_offset)
            self.write(end_offset)

    def commit(self, offset: int) -> None:
        """Notes that the log is committed up to `offset`; a lower offset than before has no effect."""
        if offset <= self.committed_offset:
            return
        self.committed_offset = offset
        while self._writes and self._writes[0] <= offset:
            self._settled_offset = self._writes.popleft()
        changes = self._changes
        while changes and changes[0][0] <= offset:
            _, table, key, _, value = changes.popleft()
            table.settle(key, value)
        self.is_level = self.written_offset <= offset
        assert not changes or not self.is_level
        assert self._settled_offset <= self.written_offset, "what is settled was written"

    def revert(self) -> None:
        """Reverts every append that is not wholly committed."""
        changes = self._changes
        while changes:
            _, table, key, old, _ = changes.pop()
            table.undo(key, old)
        assert self._settled_offset <= self.committed_offset, "what is committed is never taken back"
        self._writes.clear()
        self.written_offset = self._settled_offset
        self.is_level = True

    def note(self, table: TimelineTable[Any, Any], key: Any, old: Any, value: Any) -> None:
        """Remembers a change; called by tables only."""
        self._changes.append((self.written_offset, table, key, old, value))


class TimelineTable(Generic[K, V]):
    """A dict on a timeline: decisions see `latest`, replies may show `committed`."""

    __slots__ = ("_behind", "_timeline", "latest")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.latest: dict[K, V] = {}
        """The latest state, read-only; `put` and `remove` change it."""
        self._behind: dict[K, tuple[V, int]] = {}
        """For each key with an uncommitted latest value: the committed value, and the number of uncommitted changes."""

    def __bool__(self) -> bool:
        """Returns whether the latest or the committed state holds anything."""
        return bool(self.latest or self._behind)

    def put(self, key: K, value: V) -> None:
        """Sets the value of `key`."""
        if not self._timeline.is_level:
            self._note(key, value)
        self.latest[key] = value

    def remove(self, key: K) -> None:
        """Removes `key`, if it is there."""
        if key in self.latest:
            if not self._timeline.is_level:
                self._note(key, _ABSENT)
            del self.latest[key]

    def committed(self, key: K) -> V | None:
        """Returns the committed value of `key`, or None."""
        behind = self._behind
        if not behind or key not in behind:
            return self.latest.get(key)
        value = behind[key][0]
        return None if value is _ABSENT else value

    def committed_items(self) -> list[tuple[K, V]]:
        """Returns every committed key with its value, in no particular order."""
        if not self._behind:
            return list(self.latest.items())
        items = [(key, value) for key, value in self.latest.items() if key not in self._behind]
        items.extend((key, value) for key, (value, _) in self._behind.items() if value is not _ABSENT)
        return items

    @property
    def is_uncommitted(self) -> bool:
        """Returns whether any key has an uncommitted value."""
        return bool(self._behind)

    def uncommitted(self) -> list[K]:
        """Returns every key with an uncommitted value."""
        return list(self._behind)

    def _note(self, key: K, value: V) -> None:
        old = self.latest.get(key, _ABSENT)
        committed, count = self._behind.get(key, (old, 0))
        self._behind[key] = (committed, count + 1)
        self._timeline.note(self, key, old, value)

    def settle(self, key: K, value: V) -> None:
        """Commits the oldest uncommitted change of `key`, to `value`; called by the timeline only."""
        _, count = self._behind[key]
        assert count > 0, "a change waits"
        if count == 1:
            del self._behind[key]
        else:
            self._behind[key] = (value, count - 1)

    def undo(self, key: K, old: V) -> None:
        """Reverts the newest change of `key` to `old`; called by the timeline only."""
        if old is _ABSENT:
            del self.latest[key]
        else:
            self.latest[key] = old
        committed, count = self._behind[key]
        if count == 1:
            assert committed is old
            del self._behind[key]
        else:
            self._behind[key] = (committed, count - 1)


def add_to(table: TimelineTable[K, int], key: K, by: int) -> None:
    """Adds to a count, which is 0 without an entry."""
    if not by:
        return
    count = table.latest.get(key, 0) + by
    assert count >= 0, "more was taken away than there was"
    if count:
        table.put(key, count)
    else:
        table.remove(key)
