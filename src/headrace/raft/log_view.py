"""The quorum's view of a node's log: its bounds, how far it is synced, and where epochs start.

No entry is kept here. Two logs that have an entry of the same epoch at the same offset are equal up to it, so epochs
are enough to compare logs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from headrace.raft.messages import Entries, Position


class LogView:
    """The shape of a log. `epochs` are (epoch, first offset), both rising; `start_epoch` is the epoch of the last entry
    before `start_offset` (that of the snapshot which replaced it), 0 if there never was one. `snapshot` is the end of
    the newest snapshot, by default the start of the log.

    Everything is synced at the start of a node: its shell syncs what a crash left in memory first.
    """

    def __init__(
        self,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Sequence[Position] = (),
        start_epoch: int = 0,
        snapshot: Position | None = None,
    ) -> None:
        assert end_offset >= start_offset
        self.start_offset = start_offset
        self.start_epoch = start_epoch
        self.end_offset = end_offset
        self.synced_offset = end_offset
        self._epochs = list(epochs)
        assert self._epochs == sorted(self._epochs) and all(e.offset < end_offset for e in self._epochs)
        self.snapshot = Position(start_epoch, start_offset) if snapshot is None else snapshot
        assert start_offset <= self.snapshot.offset <= end_offset

    def epoch_below(self, offset: int) -> int:
        """Returns the epoch of the last entry below an offset."""
        at = bisect_right(self._epochs, offset - 1, key=lambda position: position.offset)
        return self._epochs[at - 1].epoch if at else self.start_epoch

    @property
    def last(self) -> Position:
        """The end of the log."""
        return Position(self.epoch_below(self.end_offset), self.end_offset)

    @property
    def last_synced(self) -> Position:
        """The end of the log on stable storage."""
        return Position(self.epoch_below(self.synced_offset), self.synced_offset)

    @property
    def is_synced(self) -> bool:
        """Whether the whole log is on stable storage."""
        return self.synced_offset == self.end_offset

    def end_of(self, epoch: int) -> Position:
        """Returns the end of an epoch; for one without entries that of the largest epoch below it."""
        at = bisect_right(self._epochs, epoch, key=lambda position: position.epoch)
        found = self._epochs[at - 1].epoch if at else min(epoch, self.start_epoch)
        return Position(found, self._epochs[at].offset if at < len(self._epochs) else self.end_offset)

    def append(self, entries: Entries) -> None:
        """Appends entries."""
        last_epoch = self.last.epoch
        assert entries.base_offset == self.end_offset and entries.count > 0, "a log has no gaps"
        assert entries.epoch >= last_epoch, "epochs never fall in a log"
        if entries.epoch > last_epoch:
            self._epochs.append(Position(entries.epoch, entries.base_offset))
        self.end_offset = entries.end_offset

    def truncate(self, offset: int) -> None:
        """Drops everything from an offset on."""
        assert self.start_offset <= offset <= self.end_offset
        self._epochs = [position for position in self._epochs if position.offset < offset]
        self.end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)

    def synced(self, end: Position) -> None:
        """Notes that everything below `end` is on stable storage, if the log still has that end."""
        if end.offset <= self.end_offset and self.epoch_below(end.offset) == end.epoch:
            self.synced_offset = max(self.synced_offset, end.offset)

    def snapshotted(self, end: Position) -> None:
        """Notes the newest snapshot, which contains everything below `end`."""
        assert self.snapshot.offset <= end.offset <= self.end_offset and self.epoch_below(end.offset) == end.epoch
        self.snapshot = end
        self.synced_offset = max(self.synced_offset, end.offset)

    def shorten(self, start: Position) -> None:
        """Notes that a snapshot has replaced everything below `start`."""
        assert self.start_offset <= start.offset <= self.snapshot.offset
        assert self.epoch_below(start.offset) == start.epoch
        self.start_epoch, self.start_offset = start
        self._epochs = [position for position in self._epochs if self._ends(position) > start.offset]

    def _ends(self, position: Position) -> int:
        return self.end_of(position.epoch).offset

    def start_at(self, end: Position) -> None:
        """Notes that the snapshot that ends here has replaced the whole log."""
        self.start_offset = self.end_offset = self.synced_offset = end.offset
        self.start_epoch = end.epoch
        self.snapshot = end
        self._epochs = []
