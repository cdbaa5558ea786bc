"""The objects that the segments of a broker share."""

from __future__ import annotations

from collections.abc import Callable

from headrace.env import Disk, Lock
from headrace.log.files import OPEN_FILES_MAX, OpenFiles
from headrace.log.offset_index import IndexCache


class Resources:
    """The shared objects of a broker's segments: the disk, the open files, the decoded indexes, and locks.

    `lock` creates another lock for the broker's threads.
    """

    __slots__ = (
        "disk",
        "files",
        "index_making",
        "index_repairs",
        "index_writes",
        "indexes",
        "lock",
        "renames",
        "starts",
    )

    def __init__(self, disk: Disk, lock: Callable[[], Lock], files_max: int = OPEN_FILES_MAX) -> None:
        self.disk = disk
        self.lock = lock
        self.files = OpenFiles(lock(), files_max)
        self.indexes = IndexCache(lock())
        self.index_writes = lock()
        """Index entries go to files from the thread that appends and from those that flush: one at a time, and briefly
        (nothing is synced under it)."""
        self.index_making = lock()
        """Decides between threads that make a segment's indexes at once. No holder of it waits for the disk."""
        self.index_repairs = lock()
        """One thread at a time rebuilds damaged indexes, which may take long."""
        self.renames = lock()
        """Between the renaming of a segment's files and that of its rebuilt indexes: these must not get another one's
        name."""
        self.starts = object()
        """Another object each time that the start of any log moves: a pass over logs at rest compares it."""

    def start_moved(self) -> None:
        """Notes that the start of a log moves."""
        self.starts = object()
