"""The two sparse indexes of a segment: from an offset to a position in the log, and from a time to an offset.

`.index`: entries of 8 bytes, (offset relative to the segment's base int32, position int32), both rising; the offset is
the last one of the batch at that position. `.timeindex`: entries of 12 bytes, (timestamp int64, relative offset int32),
rising; the timestamp is the largest one up to that offset. Kafka gives the files of an active segment their full size,
so zeros at the end are not entries.

New entries stay in memory until `write_out`: a crash loses only entries for data that recovery scans again.
What `load` and the lookups raise as IndexDamaged is rebuilt from the batches by the segment: an index that is missing,
whose entries do not rise, or that points to where its log has nothing.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from operator import lt

from headrace.env import Disk, File, Lock
from headrace.log.seal import NOT_COVERED, Sum

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12

WRITE_OUT_ENTRIES = 512
"""The number of entries that an active segment keeps in memory before they are written to its index file."""

CACHE_BYTES_MAX = 16 * 1024 * 1024
"""The limit of decoded offset indexes in a broker's memory, in bytes; the least recently used are dropped first."""

SCANNED_WITHOUT_INDEX_BYTES = 64 * 1024
"""The size up to which a segment may be scanned from its start: an empty index of it is accepted."""

_TIME_ENTRY = struct.Struct(">qi")


class IndexDamaged(ValueError):
    """Raised for a file that cannot be the index of its segment."""


class IndexCache:
    """Decoded offset indexes within a limit of bytes. The key identifies the content of one file (see `OffsetIndex`).

    It is not the path: files are renamed, and a late reader may put back what it read before.
    """

    __slots__ = ("_arrays", "_bytes", "_lock", "bytes_max")

    def __init__(self, lock: Lock, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._arrays: OrderedDict[object, array[int]] = OrderedDict()
        self._bytes = 0
        self._lock = lock

    def get(self, key: object) -> array[int] | None:
        """Returns the cached entries of an index, or None."""
        found = self._arrays.get(key)
        if found is not None:
            try:
                self._arrays.move_to_end(key)
            except KeyError:
                pass  # another thread dropped it in between; what was found is still right
        return found

    def put(self, key: object, entries: array[int]) -> None:
        """Caches entries, and drops others if necessary."""
        with self._lock:
            self._drop(key)
            self._arrays[key] = entries
            self._bytes += 8 * len(entries)
            while self._bytes > self.bytes_max and self._arrays:
                _, dropped = self._arrays.popitem(last=False)
                self._bytes -= 8 * len(dropped)

    def drop(self, key: object) -> None:
        """Drops an index that changed or was removed."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: object) -> None:
        dropped = self._arrays.pop(key, None)
        if dropped is not None:
            self._bytes -= 8 * len(dropped)
            assert self._bytes >= 0, "each index is counted once"


def _cut_file(disk: Disk, path: str, size: int) -> None:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        assert not size, "what is kept is in the file"
        return
    if file.size() > size:
        file.truncate(size)
    file.close()


def _rise(entries: array[int]) -> bool:
    """Returns whether both the offsets and the positions of the entries rise."""
    positions = [entry & 0xFFFFFFFF for entry in entries]
    return all(map(lt, entries, entries[1:])) and all(map(lt, positions, positions[1:]))


class OffsetIndex:
    """The position of each indexed offset. An entry is one int: relative offset << 32 | position."""

    __slots__ = ("_cache", "_disk", "_key", "_tail", "_written", "last", "path", "sealed")

    def __init__(self, disk: Disk, path: str, cache: IndexCache) -> None:
        self._disk = disk
        self._cache = cache
        self._key = object()  # of the decoded entries: another one once the file no longer begins with them
        self.path = path
        self._written = 0  # entries in the file
        self._tail: array[int] = array("Q")  # entries after those
        self.last = 0  # the last entry; 0 when there is none
        self.sealed: Sum = NOT_COVERED  # what the file begins with

    def __len__(self) -> int:
        return self._written + len(self._tail)

    def load(self, log_bytes: int) -> None:
        """Finds the last entry, in the index of a log file of `log_bytes`. Raises IndexDamaged, OSError."""
        try:
            size = self._disk.size(self.path)
        except FileNotFoundError:
            raise IndexDamaged(f"{self.path} is missing") from None
        if size < self.sealed.size:
            raise IndexDamaged(f"{self.path} has lost its end")
        count, last = size // OFFSET_ENTRY_BYTES, 0
        if count:
            file = self._disk.open(self.path)
            data = file.read((count - 1) * OFFSET_ENTRY_BYTES, 2 * OFFSET_ENTRY_BYTES)
            file.close()
            last = int.from_bytes(data[:OFFSET_ENTRY_BYTES], "big")
            if any(data[OFFSET_ENTRY_BYTES:]):
                raise IndexDamaged(f"{self.path}: {size} bytes are not entries")
            if not last:
                entries = self._read()
                count = len(entries)
                last = entries[-1] if count else 0
        if not count and log_bytes > SCANNED_WITHOUT_INDEX_BYTES:
            raise IndexDamaged(f"{self.path} is empty")
        if last >> 63 or (count and (last & 0xFFFFFFFF) >= log_bytes):
            raise IndexDamaged(f"{self.path}: its last entry points beyond the log")
        self._written = count
        self.last = last

    def stored(self) -> array[int]:
        """Reads the entries of the file unchecked, none if there is no file: for recovery. Raises OSError."""
        try:
            return self._read(NOT_COVERED)
        except FileNotFoundError:
            return array("Q")

    def _read(self, sealed: Sum | None = None) -> array[int]:
        path = ""
        while path != self.path:  # renamed meanwhile: the old name may be that of another index now
            path = self.path
            data = self._disk.read_file(path)
        if not (self.sealed if sealed is None else sealed).is_beginning_of(data):
            raise IndexDamaged(f"{self.path} does not begin as it was sealed")
        entries = array("Q")
        entries.frombytes(data[: len(data) - len(data) % OFFSET_ENTRY_BYTES])
        entries.byteswap()
        end = len(entries)
        while end and not entries[end - 1]:
            # A fully sized file is megabytes of zeros: leap over them before counting one by one.
            while end > 4096 and not any(entries[end - 4096 : end]):
                end -= 4096
            if not entries[end - 1]:
                end -= 1
        del entries[end:]
        return entries

    def entries(self) -> array[int]:
        """Returns all entries, including unwritten ones. Raises IndexDamaged, OSError."""
        written = self._entries_written()
        return written + self._tail if self._tail else written

    def _entries_written(self, wait: bool = True) -> array[int]:
        while True:
            key, written = self._key, self._written
            if not written:
                return array("Q")
            found = self._cache.get(key)
            if found is not None and len(found) == written:
                return found
            if not wait:
                raise BlockingIOError(f"{self.path} is not in memory")
            found = self._read()
            del found[written:]
            if len(found) == written and _rise(found):
                self._cache.put(key, found)
                return found
            if key is self._key and written == self._written:  # else it was cut meanwhile
                raise IndexDamaged(f"{self.path}: its entries do not rise")

    def forget(self) -> None:
        """Drops the decoded entries: the file changed or is removed."""
        key, self._key = self._key, object()
        self._cache.drop(key)

    def append(self, relative_offset: int, position: int) -> None:
        """Adds an entry; both must be above those of the last one."""
        entry = relative_offset << 32 | position
        assert entry > self.last or not len(self), "index entries rise"
        self._tail.append(entry)
        self.last = entry

    def lookup(self, relative_offset: int, wait: bool = True) -> int:
        """Returns the position of the batch of the last entry at or below an offset; 0 if there is none.

        Without `wait` it raises BlockingIOError instead of reading the file. Raises IndexDamaged.
        """
        key = relative_offset << 32 | 0xFFFFFFFF
        if key >= self.last:
            return self.last & 0xFFFFFFFF
        tail = self._tail[:]  # another thread may write it out, and cut it, while this one looks
        if not tail or key < tail[0]:
            tail = self._entries_written(wait)
        at = bisect_right(tail, key)
        return tail[at - 1] & 0xFFFFFFFF if at else 0

    def offset_from(self, position: int, wait: bool = True) -> int | None:
        """Returns the relative offset of the first entry at or beyond a position, or None.

        Without `wait` it raises BlockingIOError instead of reading the file. Raises IndexDamaged.
        """
        if (self.last & 0xFFFFFFFF) < position:
            return None
        tail = self._tail[:]  # another thread may write it out, and cut it, while this one looks
        for entries in (tail,) if tail and tail[0] & 0xFFFFFFFF < position else (self._entries_written(wait), tail):
            at = bisect_left(entries, position, key=lambda entry: entry & 0xFFFFFFFF)
            if at < len(entries):
                return entries[at] >> 32
        return None

    def extend(self, other: OffsetIndex, position: int) -> None:
        """Takes over the entries of another index of the same log for batches from `position` on."""
        for entry in other._tail[:]:
            if entry & 0xFFFFFFFF >= position:
                self.append(entry >> 32, entry & 0xFFFFFFFF)

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries at or above an offset. Writes nothing: a full disk must not interrupt a truncation."""
        limit = (relative_offset << 32) - 1
        kept = bisect_right(self._tail, limit)
        if kept:
            del self._tail[kept:]
            self.last = self._tail[-1]
        else:
            written = self._entries_written()
            self.cut(written[: bisect_right(written, limit)])

    def cut(self, entries: array[int]) -> None:
        """Truncates the file after `entries`, its prefix. The kept part is not rewritten, so it stays safe."""
        self.sealed = NOT_COVERED
        self._written = len(entries)
        self._tail = array("Q")
        self.last = entries[-1] if len(entries) else 0
        _cut_file(self._disk, self.path, self._written * OFFSET_ENTRY_BYTES)
        self.forget()

    def replace(self, entries: array[int]) -> None:
        """Replaces the whole index with `entries`, and writes them."""
        self.sealed = NOT_COVERED
        data = array("Q", entries)
        data.byteswap()
        self._disk.write_file(self.path, data.tobytes())
        self._written = len(entries)
        self._tail = array("Q")
        self.last = entries[-1] if len(entries) else 0
        self.forget()

    @property
    def waiting(self) -> int:
        """The number of entries that are in memory only."""
        return len(self._tail)

    def write_out(self) -> None:
        """Writes the entries in memory to the file; one thread at a time."""
        tail = self._tail
        count = len(tail)
        if not count:
            return
        data = tail[:count]
        data.byteswap()
        file = self._disk.open(self.path, create=True)
        file.write_at(self._written * OFFSET_ENTRY_BYTES, data.tobytes())
        file.close()
        self._cache.drop(self._key)
        # In place, as another thread may append; a lookup between the two lines finds an earlier entry, which serves.
        del tail[:count]
        self._written += count

    def file_to_sync(self) -> File:
        """Returns the file with all entries written, and truncated if it is fully sized: they are safe once it is
        synced.

        One thread at a time, as `write_out`; the caller syncs.
        """
        self.write_out()
        file = self._disk.open(self.path, create=True)
        if file.size() != self._written * OFFSET_ENTRY_BYTES:
            file.truncate(self._written * OFFSET_ENTRY_BYTES)
        return file


def times_rise(entries: list[tuple[int, int]]) -> bool:
    """Whether the timestamps of a time index rise, and its offsets do not fall."""
    before_timestamp, before_offset = -1, 0
    for timestamp, offset in entries:
        if timestamp <= before_timestamp or offset < before_offset:
            return False
        before_timestamp, before_offset = timestamp, offset
    return True


class TimeIndex:
    """The largest timestamp up to each indexed offset."""

    __slots__ = ("_count", "_disk", "_tail", "last_relative_offset", "last_timestamp", "path", "sealed")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._count = 0  # entries in the file
        self._tail = bytearray()
        self.last_timestamp = -1
        self.last_relative_offset = 0
        self.sealed: Sum = NOT_COVERED  # what the file begins with

    def __len__(self) -> int:
        return self._count + len(self._tail) // TIME_ENTRY_BYTES

    @property
    def last(self) -> tuple[int, int]:
        """The last entry: (timestamp, relative offset); (-1, 0) where there is none."""
        return self.last_timestamp, self.last_relative_offset

    def load(self) -> None:
        """Finds the last entry, in the index of a log file that has batches. Raises IndexDamaged, OSError.

        One without entries is damaged: closing a segment writes its largest timestamp.
        """
        try:
            size = self._disk.size(self.path)
        except FileNotFoundError:
            raise IndexDamaged(f"{self.path} is missing") from None
        if size < self.sealed.size:
            raise IndexDamaged(f"{self.path} has lost its end")
        count = size // TIME_ENTRY_BYTES
        if not count:
            raise IndexDamaged(f"{self.path} is empty")
        file = self._disk.open(self.path)
        first = max(count - 2, 0)
        data = file.read(first * TIME_ENTRY_BYTES, 3 * TIME_ENTRY_BYTES)
        data, rest = data[: (count - first) * TIME_ENTRY_BYTES], data[(count - first) * TIME_ENTRY_BYTES :]
        file.close()
        if any(rest):
            raise IndexDamaged(f"{self.path}: {size} bytes are not entries")
        if not any(data[-TIME_ENTRY_BYTES:]):
            data = self._read()
            count = len(data) // TIME_ENTRY_BYTES
        if not count or not times_rise(list(_TIME_ENTRY.iter_unpack(data[-2 * TIME_ENTRY_BYTES :]))):
            raise IndexDamaged(f"{self.path}: its entries do not rise")
        self._tail = bytearray()
        self._count = count
        self._set_last(data)

    def _read(self) -> bytes:
        try:
            data = self._disk.read_file(self.path)
        except FileNotFoundError:
            return b""
        end = len(data.rstrip(b"\0"))
        count = min(-(-end // TIME_ENTRY_BYTES), len(data) // TIME_ENTRY_BYTES)
        return data[: count * TIME_ENTRY_BYTES]

    def _set_last(self, data: bytes) -> None:
        if data:
            self.last_timestamp, self.last_relative_offset = _TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY_BYTES)
        else:
            self.last_timestamp, self.last_relative_offset = -1, 0

    def stored(self) -> list[tuple[int, int]]:
        """Reads the entries of the file unchecked: for recovery. Raises OSError."""
        return list(_TIME_ENTRY.iter_unpack(self._read()))

    def entries(self) -> list[tuple[int, int]]:
        """Returns all (timestamp, relative offset). Raises IndexDamaged, OSError."""
        while True:
            count = self._count
            data = self._read()[: count * TIME_ENTRY_BYTES] if count else b""
            # The tail after the file: entries that are written out in between are missing, and none comes twice.
            tail = bytes(self._tail)
            entries = list(_TIME_ENTRY.iter_unpack(data + tail[: len(tail) - len(tail) % TIME_ENTRY_BYTES]))
            if len(data) == count * TIME_ENTRY_BYTES and times_rise(entries) and self.sealed.is_beginning_of(data):
                return entries
            if count == self._count:  # else it was cut meanwhile
                raise IndexDamaged(f"{self.path}: its entries do not rise")

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Adds an entry if its timestamp is above the last one."""
        if timestamp > self.last_timestamp:
            self._tail += _TIME_ENTRY.pack(timestamp, relative_offset)
            self.last_timestamp = timestamp
            self.last_relative_offset = relative_offset

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Returns the last entry at or below a timestamp; (-1, 0) if there is none. Raises IndexDamaged, OSError."""
        entries = self.entries()
        at = bisect_right(entries, (timestamp, 1 << 40))
        return entries[at - 1] if at else (-1, 0)

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries at or above an offset. Writes nothing: a full disk must not interrupt a truncation."""
        entries = [entry for entry in self.entries() if entry[1] < relative_offset]
        in_memory = len(entries) - self._count
        if in_memory > 0:
            del self._tail[in_memory * TIME_ENTRY_BYTES :]
            self.last_timestamp, self.last_relative_offset = entries[-1]
        else:
            self.cut(entries)

    def cut(self, entries: list[tuple[int, int]]) -> None:
        """Truncates the file after `entries`, its prefix. The kept part is not rewritten, so it stays safe."""
        self.sealed = NOT_COVERED
        self._count = len(entries)
        self._tail = bytearray()
        self.last_timestamp, self.last_relative_offset = entries[-1] if entries else (-1, 0)
        _cut_file(self._disk, self.path, self._count * TIME_ENTRY_BYTES)

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Replaces the whole index with `entries`, and writes them."""
        self.sealed = NOT_COVERED
        data = b"".join(_TIME_ENTRY.pack(*entry) for entry in entries)
        self._disk.write_file(self.path, data)
        self._count = len(entries)
        self._tail = bytearray()
        self._set_last(data)

    def write_out(self) -> None:
        """Writes the entries in memory to the file; one thread at a time."""
        count = len(self._tail) // TIME_ENTRY_BYTES
        if not count:
            return
        data = bytes(self._tail[: count * TIME_ENTRY_BYTES])
        file = self._disk.open(self.path, create=True)
        file.write_at(self._count * TIME_ENTRY_BYTES, data)
        file.close()
        del self._tail[: len(data)]
        self._count += count

    def file_to_sync(self) -> File:
        """Returns the file with all entries written and truncated, to be synced by the caller, as
        `OffsetIndex.file_to_sync`."""
        self.write_out()
        file = self._disk.open(self.path, create=True)
        if file.size() != self._count * TIME_ENTRY_BYTES:
            file.truncate(self._count * TIME_ENTRY_BYTES)
        return file
