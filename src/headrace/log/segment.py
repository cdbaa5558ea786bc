"""One segment of a log: a `.log` file of record batches, its two sparse indexes, and its aborted transactions.

A segment holds offsets from its base offset on. Its indexes are opened when first needed: a thousand old segments cost
nothing but their names. The file is reached through `file()`, which opens it again when the cache had closed it.
"""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from headrace.env import File
from headrace.log.append_results import Staged
from headrace.log.filenames import CLEANED, DELETED, INDEX, LOG, REBUILT, SEGMENT_KINDS, SWAP, TIME_INDEX
from headrace.log.offset_index import WRITE_OUT_ENTRIES, IndexDamaged, OffsetIndex, TimeIndex
from headrace.log.resources import Resources
from headrace.log.scan import Scan, is_batch_at
from headrace.log.seal import NOT_COVERED
from headrace.log.sealed import SealedFiles
from headrace.wire.batch import BATCH_OVERHEAD, BATCH_PLACE, read_header
from headrace.wire.primitives import Buffer

T = TypeVar("T")

RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""Largest offset of a segment, counted from its base: indexes hold 32 bits."""

INDEX_INTERVAL_BYTES = 4096
"""Bytes between the index entries of a segment whose indexes are rebuilt outside of recovery."""

SCAN_BYTES = 8192
"""Bytes read at a time while looking for a batch from an index entry on: an index interval and a header."""

_UNKNOWN = -2  # of max_timestamp: to be taken from the time index when it is asked for


class Segment(SealedFiles):
    """A `.log` file of record batches with its indexes. `created_ms` and `first_timestamp` decide when it is rolled; -1
    means not known."""

    __slots__ = (
        "_cuts",
        "_first_timestamp",
        "_found_last",
        "_index",
        "_max_timestamp_offset",
        "_time_index",
        "bytes_since_index",
        "created_ms",
        "index_dirty",
        "newest_timestamp",
        "open_file",
        "recently_used",
    )

    def __init__(
        self,
        resources: Resources,
        directory: str,
        base_offset: int,
        *,
        size: int,
        created_ms: int = -1,
        suffix: str = "",
    ) -> None:
        super().__init__(resources, f"{directory}/{base_offset:020d}", base_offset, size=size, suffix=suffix)
        self._cuts = 0
        # An offset that a batch starts at, where, and after how many cuts that was found: another thread may still be
        # reading when the segment is cut, and a batch that comes later may lie elsewhere.
        self._found_last = (-1, 0, 0)
        self.created_ms = created_ms
        self._first_timestamp = -1 if size == 0 else _UNKNOWN
        self.bytes_since_index = 0
        self.index_dirty = False
        self.open_file: File | None = None
        self.recently_used = False
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.newest_timestamp = -1 if size == 0 else _UNKNOWN  # `max_timestamp` before it has been looked up
        self._max_timestamp_offset = -1

    # Files

    @property
    def path(self) -> str:
        """The `.log` file."""
        return f"{self.stem}{LOG}{self.suffix}"

    @property
    def directory(self) -> str:
        """The folder of the log."""
        return self.stem.rpartition("/")[0]

    def file(self) -> File:
        """The open `.log` file. Raises OSError."""
        file = self.open_file
        if file is None:
            self.open_file = file = self.by_name(LOG, self._resources.disk.open)
            self._resources.files.opened(self)
        else:
            self.recently_used = True
        return file

    def file_to_append(self, size: int, interval_bytes: int) -> File:
        """Returns the open `.log` file, with its end where the segment's is, for `size` more bytes. Raises OSError."""
        file = self.open_file
        if file is None or file.size() != self.size:
            file = self._reopened()
        if self.newest_timestamp == _UNKNOWN or self.bytes_since_index + size > interval_bytes:
            self.load_indexes()  # what cannot be noted afterwards must not be in the file
        return file

    def _reopened(self) -> File:
        """The file with its end where the segment's is: a worker may have opened it while another handle was written
        to. That one knows of an earlier end, and what it wrote would replace batches."""
        file = self.file()
        if file.size() != self.size:
            self.open_file = file = self._resources.disk.open(self.path)
            self._resources.files.opened(self)
            if file.size() != self.size:
                raise OSError(errno.EIO, f"{self.path} has {file.size()} bytes, and {self.size} were written")
        return file

    def file_to_read(self) -> File:
        """Returns the open `.log` file. Raises BlockingIOError if it is not open."""
        file = self.open_file
        if file is None:
            raise BlockingIOError(f"{self.stem} is not open")
        self.recently_used = True
        return file

    def release(self) -> None:
        """Closes the file as soon as no slice needs it any more."""
        self.open_file = None
        self._resources.files.forget(self)

    def moved(self, directory: str, suffix: str) -> None:
        """Notes where the files are now; the caller has renamed them or their folder."""
        with self._resources.index_making:
            self.stem = f"{directory}/{self.base_offset:020d}"
            self.suffix = suffix
            if self._index is not None:
                self._index.path = f"{self.stem}{INDEX}{suffix}"
            if self._time_index is not None:
                self._time_index.path = f"{self.stem}{TIME_INDEX}{suffix}"
        if self.open_file is not None:
            self.open_file.path = self.path

    def rename(self, suffix: str) -> None:
        """Gives all files another suffix ("", `.deleted`, `.cleaned`, `.swap`); the log goes first. Raises OSError.

        Recovery counts on that order: a log with its final name owns indexes that still have a `.swap`.
        """
        assert suffix in ("", DELETED, CLEANED, SWAP)
        disk = self._resources.disk
        with self._resources.renames:
            for kind in SEGMENT_KINDS:
                old = f"{self.stem}{kind}{self.suffix}"
                if disk.exists(old):
                    disk.rename(old, f"{self.stem}{kind}{suffix}")
            self.moved(self.stem.rpartition("/")[0], suffix)

    def remove_files(self) -> None:
        """Deletes all files. Raises OSError."""
        self.release()
        self.stop_sealing()
        if self._index is not None:
            self._index.forget()
        for path in self.paths():
            self._resources.disk.remove(path)

    # Indexes

    @property
    def is_indexed(self) -> bool:
        """Whether both indexes are loaded: read, or rebuilt."""
        return self._index is not None and self._time_index is not None

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read on first use; rebuilt if it is missing or damaged. Raises OSError."""
        index = self._index
        while index is None:
            path = f"{self.stem}{INDEX}{self.suffix}"
            made = OffsetIndex(self._resources.disk, path, self._resources.indexes)
            try:
                if self._opened_with:
                    sealed = self.read_seal()
                    made.sealed = NOT_COVERED if sealed is None else sealed.offset_index
                    made.load(self.size)
                    self.check_entry(made.last)
            except (IndexDamaged, FileNotFoundError):
                index = self._repaired(path)[0]
                continue
            with self._resources.index_making:
                index = self._index
                if index is None:
                    made.path = f"{self.stem}{INDEX}{self.suffix}"
                    self._index = index = made
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read on first use; rebuilt if it is missing or damaged. Raises OSError."""
        index = self._time_index
        while index is None:
            path = f"{self.stem}{TIME_INDEX}{self.suffix}"
            made = TimeIndex(self._resources.disk, path)
            try:
                if self._opened_with:
                    self._load_times(made)
            except (IndexDamaged, FileNotFoundError):
                index = self._repaired(path)[1]
                continue
            with self._resources.index_making:
                index = self._time_index
                if index is None:
                    made.path = f"{self.stem}{TIME_INDEX}{self.suffix}"
                    self._time_index = index = made
        return index

    def _load_times(self, made: TimeIndex) -> None:
        sealed = self.read_seal()
        if sealed is not None:
            made.sealed = sealed.time_index
        made.load()
        if sealed is not None and sealed.max_relative_offset >= 0 and sealed.log_bytes == self._opened_with:
            if made.last != (sealed.max_timestamp, sealed.max_relative_offset):
                raise IndexDamaged(f"{made.path} does not end as it was sealed")
        self.check_times(made.last_relative_offset, made.last_timestamp, self.index.last)

    def check_entry(self, entry: int) -> None:
        """Raises IndexDamaged where an entry of the offset index does not point to a batch that begins at or below its
        offset. Raises OSError."""
        if entry:
            data = self.file().read(entry & 0xFFFFFFFF, BATCH_OVERHEAD)
            if not is_batch_at(data, self.base_offset, self.base_offset + (entry >> 32)):
                raise IndexDamaged(f"{self.path_of(INDEX)}: there is no batch at byte {entry & 0xFFFFFFFF}")

    def check_times(self, relative_offset: int, timestamp: int, indexed: int) -> None:
        """Raises IndexDamaged where a time index lacks its end: `indexed` is the last entry of the offset index, and a
        batch that has one has its timestamp in both, unless an earlier one was as large. Raises OSError."""
        if relative_offset < indexed >> 32:
            header = self.file().read(indexed & 0xFFFFFFFF, BATCH_OVERHEAD)
            if len(header) == BATCH_OVERHEAD and read_header(header).max_timestamp > timestamp:
                raise IndexDamaged(f"{self.stem}{TIME_INDEX}{self.suffix} has lost its end")

    def _repaired(self, path: str) -> tuple[OffsetIndex | None, TimeIndex | None]:
        """Rebuilds both indexes unless another thread has just done it, or the files were renamed from `path`, which
        could not be read: the rename may be the only reason."""
        with self._resources.index_repairs:
            is_there = path in self.paths()
            if is_there and (self._index is None or self._time_index is None):
                self.rebuild_indexes()
            return self._index, self._time_index

    def rebuild_indexes(self, interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        """Rebuilds both indexes from the headers of the batches. Raises OSError.

        The files are there at once and safe: recovery trusts what lies below the recovery point. The time index comes
        first, as a crash in between must leave something that shows the damage.
        """
        with self._resources.index_repairs:
            while True:
                place = self.stem, self.suffix
                try:
                    if self._take_indexes(self._rebuilt(interval_bytes)):
                        return
                except FileNotFoundError:
                    with self._resources.renames:
                        if place == (self.stem, self.suffix):
                            raise
                # Else it was renamed meanwhile, or its folder.

    def _rebuilt(self, interval_bytes: int) -> Segment:
        """Returns a copy with new indexes in files of their own: readers use this one until it is complete."""
        directory = self.stem.rpartition("/")[0]
        built = Segment(self._resources, directory, self.base_offset, size=self.size, suffix=self.suffix + REBUILT)
        index, time_index = built.open_indexes_unchecked()
        index.replace(array("Q"))
        time_index.replace([])
        built.set_max_timestamp(-1, -1)
        for position, header, _ in Scan(self.file(), 0, built.size, crc_from=built.size):
            built.note_batch(position, header.last_offset, header.size, header.max_timestamp, interval_bytes)
        built.finish_indexes()
        built.sync_indexes()
        return built

    def _take_indexes(self, built: Segment) -> bool:
        """Takes over what `_rebuilt` made; False where it is not to be found under this segment's name any more."""
        disk = self._resources.disk
        index, time_index = built.index, built.time_index
        with self._resources.renames:
            if built.stem != self.stem or built.suffix != self.suffix + REBUILT:
                disk.remove(index.path)
                disk.remove(time_index.path)
                return False
            disk.rename(time_index.path, f"{self.stem}{TIME_INDEX}{self.suffix}")
            disk.rename(index.path, f"{self.stem}{INDEX}{self.suffix}")
            with self._resources.index_making:
                index.path = f"{self.stem}{INDEX}{self.suffix}"
                time_index.path = f"{self.stem}{TIME_INDEX}{self.suffix}"
                if self._index is not None:
                    index.extend(self._index, built.size)
                self._index, self._time_index = index, time_index
                if self.size == built.size or built.newest_timestamp > self.newest_timestamp:
                    self._max_timestamp_offset = built._max_timestamp_offset
                    self.newest_timestamp = built.newest_timestamp
                    self.bytes_since_index = built.bytes_since_index
                self.index_dirty = True
        self.put_rebuilt(time_index.last)
        disk.sync_directory(self.stem.rpartition("/")[0])
        return True

    def open_indexes_unchecked(self) -> tuple[OffsetIndex, TimeIndex]:
        """Empty indexes for recovery, which replaces their contents."""
        disk = self._resources.disk
        self._index = OffsetIndex(disk, f"{self.stem}{INDEX}{self.suffix}", self._resources.indexes)
        self._time_index = TimeIndex(disk, f"{self.stem}{TIME_INDEX}{self.suffix}")
        self.bytes_since_index = 0
        self.index_dirty = True
        return self._index, self._time_index

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch: from it on the time to the next roll counts; -1: no batch yet."""
        if self._first_timestamp == _UNKNOWN:
            header = self.file().read(0, BATCH_OVERHEAD)
            self._first_timestamp = read_header(header).max_timestamp if len(header) == BATCH_OVERHEAD else -1
        return self._first_timestamp

    def begin(self, first_timestamp: int, created_ms: int | None = None) -> None:
        """From when on the time to the next roll counts: by the first batch (-1: none yet), and by the clock."""
        self._first_timestamp = first_timestamp
        if created_ms is not None:
            self.created_ms = created_ms

    def created(self, now_ms: int) -> None:
        """Takes a time for that of the segment's making, where none is known: it became the last one."""
        if self.created_ms < 0:
            self.created_ms = now_ms

    def forget_first_timestamp(self) -> None:
        """The first batch is there now: its timestamp is read when it is asked for."""
        self._first_timestamp = _UNKNOWN if self.size else -1

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a batch in here, as far as the time index tells; -1 where there is none."""
        if self.newest_timestamp == _UNKNOWN:
            index = self.time_index
            with self._resources.index_making:
                if self.newest_timestamp == _UNKNOWN:
                    self._max_timestamp_offset = self.base_offset + index.last_relative_offset
                    self.newest_timestamp = index.last_timestamp
        return self.newest_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch with `max_timestamp`."""
        return self._max_timestamp_offset if self.max_timestamp >= 0 else -1

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
        """What recovery found by reading all batches."""
        self.newest_timestamp = timestamp
        self._max_timestamp_offset = offset

    def load_indexes(self) -> None:
        """Reads what `note_batch` goes by, so that it does not fail then. Raises OSError."""
        _ = self.index, self.time_index, self.max_timestamp

    def note_batch(self, position: int, last_offset: int, size: int, timestamp: int, interval_bytes: int) -> None:
        """Takes in a batch that lies at `position` now: its largest timestamp, and index entries where one is due.

        An entry is due when more than the interval lies between the last one and the start of this batch (as in Kafka).
        """
        if timestamp > self.newest_timestamp:
            if timestamp > self.max_timestamp:
                self.newest_timestamp = timestamp
                self._max_timestamp_offset = last_offset
        if self.bytes_since_index > interval_bytes:
            index = self.index
            index.append(last_offset - self.base_offset, position)
            self.index_dirty = True
            if self.max_timestamp >= 0:
                self.time_index.maybe_append(self.newest_timestamp, self._max_timestamp_offset - self.base_offset)
            if index.waiting >= WRITE_OUT_ENTRIES:
                with suppress(OSError):  # they stay in memory, and a flush tells of a failing disk
                    self.write_out_indexes()
            self.bytes_since_index = 0
        self.bytes_since_index += size

    def appended(self, staged: Sequence[Staged], interval_bytes: int) -> None:
        """Notes batches that the file has at its end now."""
        position = self.size
        for _, last_offset, size, timestamp, _, _, aborted in staged:
            if timestamp > self.newest_timestamp or self.bytes_since_index > interval_bytes:
                self.note_batch(position, last_offset, size, timestamp, interval_bytes)
            else:
                self.bytes_since_index += size
            position += size
            if aborted is not None:
                self.add_aborted(aborted)
        self.size = position
        self.recently_used = True

    def appended_plain(self, found: array[int], count: int, interval_bytes: int) -> None:
        """Does the same for plain batches: `found` holds their base offsets and the end of the last, their positions
        and the end of the last, and their largest timestamps and the largest of these."""
        begin, end = found[count + 1], found[2 * count + 1]
        if found[-1] <= self.newest_timestamp and self.bytes_since_index + end - begin <= interval_bytes:
            self.bytes_since_index += end - begin
        else:
            for at in range(count):
                position, timestamp = found[count + 1 + at], found[2 * count + 2 + at]
                size = found[count + 2 + at] - position
                if timestamp > self.newest_timestamp or self.bytes_since_index > interval_bytes:
                    self.note_batch(position, found[at + 1] - 1, size, timestamp, interval_bytes)
                else:
                    self.bytes_since_index += size
        self.size = end
        self.recently_used = True

    def end(self) -> None:
        """Completes the indexes of a segment that is not written any more; they are to be synced, and sealed. Raises
        OSError."""
        self.finish_indexes()
        self.index_dirty = True
        self.complete_files()

    def finish_indexes(self) -> None:
        """Completes the indexes of a segment that takes no more appends: a last time entry, all entries in files."""
        if self.max_timestamp >= 0:
            times = self.time_index
            if self.newest_timestamp > times.last_timestamp:
                times.maybe_append(self.newest_timestamp, self._max_timestamp_offset - self.base_offset)
                self.index_dirty = True
        self.write_out_indexes()

    def write_out_indexes(self) -> None:
        """Writes the index entries in memory to the files. Raises OSError."""
        with self._resources.index_writes:
            if self._index is not None:
                self._index.write_out()
            if self._time_index is not None:
                self._time_index.write_out()

    def sync(self) -> None:
        """Returns when the batches are safe, and the aborted transactions; for the rest see `sync_indexes`.

        Raises OSError.
        """
        self.file().sync()
        if self.write_aborted():
            self.put_seal()

    def sync_indexes(self, *, ended: bool = False) -> None:
        """Returns when the index entries are safe too; the segment is sealed. Raises OSError."""
        self.index_dirty = False
        try:
            index, time_index = self.index, self.time_index
            with self._resources.index_writes:
                files = index.file_to_sync(), time_index.file_to_sync()
            # Without the lock: who appends must not wait for the disk.
            for file in files:
                file.sync()
                file.close()
        except OSError:
            self.index_dirty = True
            raise
        self.put_seal(time_index.last if ended else None)

    # Looking up

    def find(self, offset: int, *, limit: int | None = None, wait: bool = True) -> tuple[int, int] | None:
        """(position, size) of the first batch that ends at or above `offset`; None where the segment ends before it.

        Without `wait` it raises BlockingIOError rather than go to the disk: for a file that is not open, an index that
        is not decoded, or a batch.
        """
        cuts = self._cuts  # before anything is read
        end = self.size if limit is None else limit
        next_offset, position, found_after = self._found_last
        is_checked = offset == next_offset and found_after == cuts
        if not is_checked:
            position = 0
            if offset > self.base_offset:
                if not wait and self._index is None:
                    raise BlockingIOError(f"the index of {self.stem} is not in memory")
                try:
                    position = self.index.lookup(offset - self.base_offset, wait)
                except IndexDamaged:
                    self.rebuild_indexes()
                    position = self.index.lookup(offset - self.base_offset)
            is_checked = not position
        if not wait and self.open_file is None:
            raise BlockingIOError(f"{self.stem} is not open")
        file = self.file()
        while position < end:
            if wait:
                data: Buffer = file.read(position, SCAN_BYTES)
            else:
                room = memoryview(bytearray(SCAN_BYTES))
                data = room[: file.read_cached_into(position, room)]
                if not data or len(data) < BATCH_PLACE.size <= end - position:
                    raise BlockingIOError(f"byte {position} of {self.stem} is not in memory")
            if not is_checked:
                if not is_batch_at(data, self.base_offset, offset):
                    if not wait:
                        raise BlockingIOError(f"the index of {self.stem} is damaged")
                    self.rebuild_indexes()
                    position, is_checked = self.index.lookup(offset - self.base_offset), True
                    continue
                is_checked = True
            at = 0
            while at + BATCH_PLACE.size <= len(data):
                base, length, delta = BATCH_PLACE.unpack_from(data, at)
                size = length + 12
                if size < BATCH_OVERHEAD:
                    return None
                if base + delta >= offset:
                    # A reader in sequence comes back for what follows.
                    self._found_last = (base + delta + 1, position + at + size, cuts)
                    return position + at, size
                at += size
            if not at:
                return None
            position += at
        return None

    def _look_up(self, action: Callable[[], T]) -> T:
        """Looks up in an index, which is rebuilt if the look-up shows that it is damaged."""
        try:
            return action()
        except IndexDamaged:
            self.rebuild_indexes()
            return action()

    def offset_beyond(self, position: int, wait: bool) -> int | None:
        """`OffsetIndex.offset_from`, relative to the segment's base."""
        return self._look_up(lambda: self.index.offset_from(position, wait))

    def offset_before(self, timestamp: int) -> int:
        """An offset of the segment, from which on the first record after `timestamp` is found. Raises OSError."""
        newest, relative_offset = self._look_up(lambda: self.time_index.lookup(timestamp))
        if newest >= 0 and not self._has_newest(newest, relative_offset):
            self.rebuild_indexes()
            relative_offset = self.time_index.lookup(timestamp)[1]
        return self.base_offset + relative_offset

    def _has_newest(self, timestamp: int, relative_offset: int) -> bool:
        """Whether the batch that a time entry names has the timestamp that it says."""
        place = self.find(self.base_offset + relative_offset)
        if place is None:
            return False
        header = read_header(self.file().read(place[0], BATCH_OVERHEAD))
        return header.base_offset <= self.base_offset + relative_offset and header.max_timestamp == timestamp

    def cut_file(self, position: int) -> None:
        """Cuts what recovery found to be no batches, for good. Its indexes end before that. Raises OSError."""
        self.remove_seal()
        self.file().truncate(position)
        self.file().sync()
        self.size = position

    def truncate(self, position: int, end_offset: int) -> None:
        """Cuts the segment at a batch that starts at `position`; offsets from `end_offset` on are gone."""
        assert 0 <= position <= self.size and end_offset >= self.base_offset, "a cut is within the segment"
        self.remove_seal()
        self._look_up(lambda: self.index.truncate(end_offset - self.base_offset))
        self._look_up(lambda: self.time_index.truncate(end_offset - self.base_offset))
        self.index_dirty = True  # a crash may bring back what was cut, and other batches take its place
        self.file().truncate(position)
        self.size = position
        self._cuts += 1
        self.bytes_since_index = 0
        last = self.time_index
        self.set_max_timestamp(-1, -1)
        if last.last_timestamp >= 0:
            self.set_max_timestamp(last.last_timestamp, self.base_offset + last.last_relative_offset)
        # What lies behind the last entry has none yet: it got its timestamp in memory alone.
        start = self.index.lookup(last.last_relative_offset)
        for _, header, _ in Scan(self.file(), start, position, crc_from=position, read_bytes=SCAN_BYTES):
            if header.max_timestamp > self.newest_timestamp:
                self.set_max_timestamp(header.max_timestamp, header.last_offset)
        if position == 0:
            self._first_timestamp = -1
        aborted = self.aborted()
        if aborted and aborted[-1].last_offset >= end_offset:
            self.set_aborted([entry for entry in aborted if entry.last_offset < end_offset])


def index_of(segments: Sequence[Segment], offset: int) -> int:
    """Index of the segment that holds an offset; 0 for offsets below the first one."""
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
