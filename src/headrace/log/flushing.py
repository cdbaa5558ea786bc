"""Flushes a log: batches first, then the indexes of full segments, then the folder and the leader epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.log import lookup
from headrace.log.filenames import PARTITION_METADATA
from headrace.log.segment import Segment, index_of
from headrace.log.state import LogState


class Flushing:
    """The flushed part of one log, and its unsynced file names. One thread flushes at a time, while another appends.

    `guard` excludes flushes: a truncation of the log holds it.
    """

    __slots__ = ("_is_named", "_names_dirty", "flushed_offset", "fresh", "guard", "state")

    def __init__(self, state: LogState, flushed_offset: int, *, fresh: bool) -> None:
        """Creates the state. `fresh`: the folder was created since the start, or survived a crash, so its names are not
        safe."""
        self.state = state
        self.flushed_offset = flushed_offset
        """The offset below which everything is on stable storage."""
        self.guard = state.resources.lock()
        self.fresh = fresh
        self._is_named = not fresh and flushed_offset > 0  # one that was never flushed may have lost its topic id
        self._names_dirty = True  # the files' creator may have died before it synced their names

    def new_name(self) -> None:
        """Notes a new file in the folder."""
        self._names_dirty = True

    def was_never_used(self) -> bool:
        """Returns whether the log never held anything: if a power cut takes its folder it is created again, so it need
        not be synced."""
        return self.fresh and not self.state.bounds.end_offset

    def cut(self, offset: int) -> None:
        """Notes a truncation: at most this offset is safe."""
        self.flushed_offset = min(self.flushed_offset, offset)

    def start_at(self, offset: int) -> None:
        """Notes that the log now starts and ends at an offset."""
        self.flushed_offset = offset

    def flush(self, up_to: int | None = None) -> int:
        """Flushes everything below `up_to` (None: the end); returns the offset up to which the log is safe.

        For worker threads, while appends go on. Raises OSError.
        """
        state = self.state
        with self.guard:
            # The order of these two reads matters: batches below the end lie in the segments known after it.
            end_offset = state.bounds.end_offset
            segments = state.segments
            if up_to is not None and self.flushed_offset >= up_to:
                return self.flushed_offset
            if self.flushed_offset < end_offset:
                for segment in segments[index_of(segments, self.flushed_offset) :]:
                    _sync(state, segment, is_active=segment is segments[-1])
                self._sync_new_names()
            state.epochs.write(durable=True)
            self.flushed_offset = max(self.flushed_offset, end_offset)
            return self.flushed_offset

    def write_epochs(self) -> None:
        """Writes the leader epochs to stable storage. For worker threads. Raises OSError."""
        with self.guard:
            epochs = self.state.epochs
            if epochs.dirty and self.fresh:
                # This syncs the folder: a power cut must not leave it with a partition.metadata that is a name alone.
                self._sync_names()
            epochs.write(durable=True)

    def sync_names(self) -> None:
        """Syncs the names of new files, if there are any. For worker threads. Raises OSError."""
        with self.guard:
            self._sync_new_names()

    def _sync_new_names(self) -> None:
        """Syncs the folder if files have been created since the last sync."""
        if self._names_dirty:
            self._names_dirty = False  # before the sync: a file created meanwhile sets it again
            try:
                self._sync_names()
            except OSError:
                self.new_name()
                raise

    def _sync_names(self) -> None:
        disk, directory = self.state.resources.disk, self.state.directory
        if not self._is_named:
            path = f"{directory}/{PARTITION_METADATA}"
            if disk.exists(path):
                file = disk.open(path)
                file.sync()
                file.close()
            disk.sync_directory(directory.rpartition("/")[0])
            self._is_named = True
            self.fresh = False
        disk.sync_directory(directory)

    def sync_indexes(self) -> None:
        """Syncs the indexes of the flushed part, as required before a recovery point is written. Raises OSError."""
        state = self.state
        for segment in state.segments:
            if segment.index_dirty and segment.base_offset < self.flushed_offset:
                with self.guard:  # for one segment at a time: flushes, which somebody may wait for, come in between
                    _sync_indexes(state, segment)

    @contextmanager
    def held_still(self) -> Iterator[bool]:
        """Excludes flushes and renames of the log unless one is running; yields whether it is excluded. Does not
        wait."""
        guard, lock = self.guard, self.state.lock
        if not guard.acquire(blocking=False):
            yield False
            return
        try:
            if not lock.acquire(blocking=False):
                yield False
                return
            try:
                yield True
            finally:
                lock.release()
        finally:
            guard.release()


def _sync_indexes(state: LogState, segment: Segment) -> None:
    _skip_removed(state, segment, lambda: segment.sync_indexes(ended=segment is not state.active))


def _sync(state: LogState, segment: Segment, *, is_active: bool) -> None:
    def sync() -> None:
        if segment.owes_aborted:
            lookup.aborted_in(state, segment)
        segment.sync()
        if not is_active:
            segment.sync_indexes(ended=True)

    _skip_removed(state, segment, sync)


def _skip_removed(state: LogState, segment: Segment, sync: Callable[[], None]) -> None:
    """Retention and compaction take files away while a flush goes on; a segment of the log must be there."""
    try:
        sync()
    except FileNotFoundError:
        with state.lock:  # held by the remover of a segment
            if segment in state.segments:
                raise
