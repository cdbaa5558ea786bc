"""Making a log safe: batches first, then the indexes of what is full, then the folder and the leader epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.log import lookup
from headrace.log.filenames import PARTITION_METADATA
from headrace.log.segment import Segment, index_of

if TYPE_CHECKING:
    from headrace.env import Lock
    from headrace.log.log import Log


class Flushing:
    """How far one log is safe, and which names are not. One thread flushes at a time, while another appends.

    `guard` keeps out those who flush: whoever cuts the log holds it.
    """

    __slots__ = ("_is_named", "_names_dirty", "flushed_offset", "fresh", "guard")

    def __init__(self, flushed_offset: int, guard: Lock, *, fresh: bool) -> None:
        """`fresh`: the log's folder has been made since the start, or a crash came, and its names are not safe."""
        self.flushed_offset = flushed_offset
        self.guard = guard
        self.fresh = fresh
        self._is_named = not fresh and flushed_offset > 0  # one that was never flushed may have lost its topic id
        self._names_dirty = True  # who made the files may have died before syncing their names

    def new_name(self) -> None:
        """The folder has a new file."""
        self._names_dirty = True

    def sync_names(self, log: Log) -> None:
        """See Log.sync_names."""
        with self.guard:
            self._sync_new_names(log)

    def was_never_used(self, log: Log) -> bool:
        """A log that never held anything is created again where a power cut takes its folder: it need not be synced."""
        return self.fresh and not log.end_offset

    def cut(self, offset: int) -> None:
        """The log ends at an offset now: no more than that is safe."""
        self.flushed_offset = min(self.flushed_offset, offset)

    def start_at(self, offset: int) -> None:
        """The log begins and ends at an offset now."""
        self.flushed_offset = offset

    def flush(self, log: Log, up_to: int | None) -> int:
        """See Log.flush."""
        with self.guard:
            # The order of these two reads matters: batches below the end lie in the segments known after it.
            end_offset = log.end_offset
            segments = log.segments
            if up_to is not None and self.flushed_offset >= up_to:
                return self.flushed_offset
            if self.flushed_offset < end_offset:
                for segment in segments[index_of(segments, self.flushed_offset) :]:
                    _sync(log, segment, is_active=segment is segments[-1])
                self._sync_new_names(log)
            log.epochs.write(durable=True)
            self.flushed_offset = max(self.flushed_offset, end_offset)
            return self.flushed_offset

    def write_epochs(self, log: Log) -> None:
        """See Log.write_epochs."""
        with self.guard:
            if log.epochs.dirty and self.fresh:
                # This syncs the folder: a power cut must not leave it with a partition.metadata that is a name alone.
                self._sync_names(log)
            log.epochs.write(durable=True)

    def _sync_new_names(self, log: Log) -> None:
        """Syncs the folder where files have been made since it last was."""
        if self._names_dirty:
            self._names_dirty = False  # before it is synced: whoever makes a file meanwhile says so again
            try:
                self._sync_names(log)
            except OSError:
                self.new_name()
                raise

    def _sync_names(self, log: Log) -> None:
        disk = log.resources.disk
        if not self._is_named:
            path = f"{log.directory}/{PARTITION_METADATA}"
            if disk.exists(path):
                file = disk.open(path)
                file.sync()
                file.close()
            disk.sync_directory(log.directory.rpartition("/")[0])
            self._is_named = True
            self.fresh = False
        disk.sync_directory(log.directory)

    def sync_indexes(self, log: Log) -> None:
        """See Log.sync_indexes."""
        for segment in log.segments:
            if segment.index_dirty and segment.base_offset < self.flushed_offset:
                with self.guard:  # for one segment at a time: flushes, which somebody may wait for, come in between
                    _sync_indexes(log, segment)


def _sync_indexes(log: Log, segment: Segment) -> None:
    _skip_what_went(log, segment, lambda: segment.sync_indexes(ended=segment is not log.active))


def _sync(log: Log, segment: Segment, *, is_active: bool) -> None:
    def sync() -> None:
        if segment.owes_aborted:
            lookup.aborted_in(log, segment)
        segment.sync()
        if not is_active:
            segment.sync_indexes(ended=True)

    _skip_what_went(log, segment, sync)


def _skip_what_went(log: Log, segment: Segment, sync: Callable[[], None]) -> None:
    """Retention and compaction take files away while a flush goes on; a segment of the log must be there."""
    try:
        sync()
    except FileNotFoundError:
        with log.lock:  # whoever takes a segment away has it
            if segment in log.segments:
                raise
