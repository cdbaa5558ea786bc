"""What a machine's tables hold now, what they held when the log was last committed, and the way back.

A leader appends records, applies them, and decides upon the result at once; it shows others only the committed state,
and goes back to it if an append is lost. So every change of a table remembers its old value until the log is committed
beyond it. Where that is so from the start (one broker, whose log is committed with the append) nothing is remembered,
and a change costs no more than a dict's.

The same shape as Kafka's TimelineHashMap and SnapshotRegistry (KIP-631), with one snapshot to go back to.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final[Any] = object()


class Timeline:
    """One log, as the tables that are filled from it see it: how far it is written, and how far it is committed."""

    __slots__ = ("_changes", "_settled_offset", "_writes", "committed_offset", "is_level", "written_offset")

    def __init__(self) -> None:
        self._changes: deque[tuple[int, TimelineTable[Any, Any], Any, Any, Any]] = deque()
        """(end offset of the append, table, key, old value, new value) of uncommitted changes, in order."""
        self._writes: deque[int] = deque()
        """Where each append ends that is not committed, in order."""
        self._settled_offset = 0
        """Where the last append ends that is committed as a whole."""
        self.written_offset = 0
        """Where the log ends whose records the tables hold."""
        self.committed_offset = 0
        """Nothing below it can be lost."""
        self.is_level = True
        """Whether changes made now are committed already."""

    def __len__(self) -> int:
        """How many changes could still be taken back."""
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
        """The log is committed up to `offset`; what was known before does not go back."""
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
        """Takes back every append that is not committed as a whole: the tables hold what the log held before it."""
        changes = self._changes
        while changes:
            _, table, key, old, _ = changes.pop()
            table.undo(key, old)
        assert self._settled_offset <= self.committed_offset, "what is committed is never taken back"
        self._writes.clear()
        self.written_offset = self._settled_offset
        self.is_level = True

    def note(self, table: TimelineTable[Any, Any], key: Any, old: Any, value: Any) -> None:
        """Remembers a change: for tables alone."""
        self._changes.append((self.written_offset, table, key, old, value))


class TimelineTable(Generic[K, V]):
    """A dict on a timeline: decisions see `latest`, replies may show `committed`."""

    __slots__ = ("_behind", "_timeline", "latest")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.latest: dict[K, V] = {}
        """To be read; `put` and `remove` change it."""
        self._behind: dict[K, tuple[V, int]] = {}
        """Of each key whose latest value is not committed: the value that is, and how many changes wait."""

    def __bool__(self) -> bool:
        """Whether it holds anything, or did when the log was last committed."""
        return bool(self.latest or self._behind)

    def put(self, key: K, value: V) -> None:
        """Sets the value of `key`."""
        if not self._timeline.is_level:
            self._note(key, value)
        self.latest[key] = value

    def remove(self, key: K) -> None:
        """Forgets `key`, if it is there."""
        if key in self.latest:
            if not self._timeline.is_level:
                self._note(key, _ABSENT)
            del self.latest[key]

    def committed(self, key: K) -> V | None:
        """The committed value of `key`; None where there is none."""
        behind = self._behind
        if not behind or key not in behind:
            return self.latest.get(key)
        value = behind[key][0]
        return None if value is _ABSENT else value

    def committed_items(self) -> list[tuple[K, V]]:
        """Every committed key with its value, in no order that means anything."""
        if not self._behind:
            return list(self.latest.items())
        items = [(key, value) for key, value in self.latest.items() if key not in self._behind]
        items.extend((key, value) for key, (value, _) in self._behind.items() if value is not _ABSENT)
        return items

    @property
    def is_uncommitted(self) -> bool:
        """Whether the latest value of any key is not committed."""
        return bool(self._behind)

    def uncommitted(self) -> list[K]:
        """Every key whose latest value is not committed."""
        return list(self._behind)

    def _note(self, key: K, value: V) -> None:
        old = self.latest.get(key, _ABSENT)
        committed, count = self._behind.get(key, (old, 0))
        self._behind[key] = (committed, count + 1)
        self._timeline.note(self, key, old, value)

    def settle(self, key: K, value: V) -> None:
        """The oldest change of `key` that waits, to `value`, is committed: for the timeline alone."""
        _, count = self._behind[key]
        assert count > 0, "a change waits"
        if count == 1:
            del self._behind[key]
        else:
            self._behind[key] = (value, count - 1)

    def undo(self, key: K, old: V) -> None:
        """The newest change of `key` is lost, and `old` is its value again: for the timeline alone."""
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
