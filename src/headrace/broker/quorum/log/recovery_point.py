"""How far the metadata log was synced, in a file of its own beside `meta.properties`.

It tells damage from an unfinished write. Everything below its offset was on stable storage once, and other voters have
counted on it: a log that is bad or missing there is not truncated, and a voter that lacks some of it does not vote.
Nothing above it was ever acknowledged as synced.

The file has two pages with an offset and its checksum each. The first is synced when it is written (at a start, a clean
stop, before a truncation, and now and then); the second is written after each sync of the log and left to the system,
so that it costs no sync of its own: the end of a process leaves it exact, the end of the power perhaps an older one.
The larger offset holds.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.metadata.damage import RECOVERY_POINT_FILE
from headrace.wire.checksum import crc32c

if TYPE_CHECKING:
    from headrace.env import Disk, File

PAGE_BYTES: Final = 4096
KEPT_EVERY_SYNCS: Final = 1000
"""After so many syncs of the log the offset is synced too: power that fails leaves no older one."""
_OFFSET: Final = Struct(">Q")
_CHECKSUM: Final = Struct(">I")


class RecoveryPoint:
    """See the module. `offset` is how far the log was synced, None where nothing says so: a log of an older release or
    of Apache Kafka's, or one whose directory was emptied."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Reads the file in a metadata directory, where there is one. Raises OSError."""
        self.path = f"{directory}/{RECOVERY_POINT_FILE}"
        self._disk = disk
        self._file: File | None = None
        self._kept: int | None = None
        self._syncs = 0
        self.offset: int | None = None
        if disk.exists(self.path):
            data = disk.read_file(self.path)
            pages = [_read(data[at : at + PAGE_BYTES]) for at in (0, PAGE_BYTES)]
            self._kept = pages[0]
            self.offset = max((each for each in pages if each is not None), default=None)

    def reached(self, offset: int) -> None:
        """The log is synced up to an offset. On the thread that synced it. Raises OSError."""
        if self.offset is not None and offset <= self.offset:
            return
        self._syncs += 1
        if not self.offset or self._syncs % KEPT_EVERY_SYNCS == 0:
            self.keep(offset)
        else:
            self._opened().write_at(PAGE_BYTES, _page(offset))
            self.offset = offset

    def keep(self, offset: int) -> None:
        """Has the offset on stable storage, be it higher or lower than the one before. Raises OSError."""
        if (self.offset, self._kept) == (offset, offset):
            return
        pages = _page(offset) * 2
        if self._file is None and not self._disk.exists(self.path):
            self._disk.write_file_atomically(self.path, pages)
        else:
            file = self._opened()
            file.write_at(0, pages)
            file.sync()
        self.offset = self._kept = offset

    def lower(self, offset: int) -> None:
        """The log is about to be cut at an offset. Raises OSError."""
        if self.offset is not None and self.offset > offset:
            self.keep(offset)

    def close(self) -> None:
        """Closes the file; more than once is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file


def _page(offset: int) -> bytes:
    data = _OFFSET.pack(offset)
    return (data + _CHECKSUM.pack(crc32c(data))).ljust(PAGE_BYTES, b"\0")


def _read(page: bytes) -> int | None:
    """The offset in a page, None in one that was never whole on the disk."""
    if len(page) < _OFFSET.size + _CHECKSUM.size:
        return None
    data = page[: _OFFSET.size]
    if _CHECKSUM.unpack_from(page, _OFFSET.size)[0] != crc32c(data):
        return None
    return int(_OFFSET.unpack(data)[0])
