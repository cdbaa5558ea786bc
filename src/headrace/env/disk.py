"""Files and directories, as the rest of the broker sees them.

All calls are synchronous; the shell decides what goes to a worker thread. A failed disk is an `OSError`, nothing else.
Nothing written is safe until `File.sync` has returned, and no name is safe until `sync_directory` of its folder has.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, Protocol

from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PASSING: Final = _FULL | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}


def is_full(error: OSError) -> bool:
    """Whether a disk is full rather than broken: writing goes on when there is room again."""
    return error.errno in _FULL


def is_passing(error: OSError) -> bool:
    """Whether an error says nothing about the disk: no room, no descriptor or no memory is free now.

    What met it is refused or put off, and tried again. Any other error takes the log directory out of use.
    """
    return error.errno in _PASSING


class File(Protocol):
    """One open file. It closes with its last reference, so a slice on its way to a socket keeps it open.

    One thread appends; any thread may read and sync at the same time.
    """

    path: str

    def append(self, parts: Sequence[Buffer]) -> int:
        """Writes all parts at the end with as few system calls as possible; returns where they start.

        When it raises OSError the file is as long as before (what was written of the parts is cut off again).
        """
        ...

    def write_at(self, at: int, data: Buffer) -> None:
        """Overwrites bytes; may extend the file."""
        ...

    def read(self, at: int, size: int) -> bytes:
        """Up to `size` bytes from `at`; fewer only at the end of the file."""
        ...

    def read_cached_into(self, at: int, buffer: memoryview) -> int:
        """Fills as much of `buffer` as is in memory, from its beginning on; returns how much that was."""
        ...

    def read_into(self, at: int, buffer: memoryview) -> int:
        """Fills as much of `buffer` as the file holds from `at`; returns how much that was."""
        ...

    def read_ahead(self, at: int, size: int) -> None:
        """Returns when a range is in memory; what follows it is on its way there. For a worker: it waits for the disk.

        From the first call on, the system reads only the requested bytes of this file, without read-ahead.
        """
        ...

    def forget(self, at: int) -> None:
        """The next read from `at` on sees what the disk has, but for what still waits to be written.

        A sync that fails leaves in memory what it did not write, and no later sync writes that: an earlier process may
        have had one. Nothing happens on systems that cannot do it.
        """
        ...

    def size(self) -> int:
        """Bytes in the file, as this handle knows it: one handle alone may change the size of a file."""
        ...

    def truncate(self, size: int) -> None:
        """Cuts the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """Returns when all that was written is on stable storage (fdatasync). Its own errors never pass, a full disk
        neither: what it failed to write may be taken for written, so that another one proves nothing."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile."""
        ...

    def slice(self, at: int, size: int) -> FileSlice:
        """A range of the file that a socket can send without reading it into Python."""
        ...

    def close(self) -> None:
        """Closes at once; more than once is harmless."""
        ...


class DiskLock(Protocol):
    """A held lock on a directory's `.lock` file."""

    def release(self) -> None:
        """Lets the next one in; more than once is harmless."""
        ...


class Disk(Protocol):
    """A file system. Paths are strings with `/`; a missing file is FileNotFoundError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing; `create` makes the file where there is none."""
        ...

    def write_pressure(self) -> float:
        """How much waits to be written out, as a share of what the system lets lie before it makes writers wait; 0.0
        where it does not tell."""
        ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted: the same order in every run."""
        ...

    def list_sizes(self, directory: str) -> Sequence[tuple[str, int]]:
        """Names and sizes in bytes of the files (not the folders) in a directory, sorted by name."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether that is a directory."""
        ...

    def make_dirs(self, path: str) -> None:
        """Makes a directory and those above it; nothing happens where it is there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Renames atomically, replacing a file that has the new name."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file; one that is not there is no error."""
        ...

    def remove_tree(self, path: str) -> None:
        """Removes a directory with all in it; one that is not there is no error."""
        ...

    def sync_directory(self, path: str) -> None:
        """Returns when the names in that directory are on stable storage."""
        ...

    def size(self, path: str) -> int:
        """Bytes in a file."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was last written, in milliseconds since 1970."""
        ...

    def read_file(self, path: str) -> bytes:
        """The whole of a file."""
        ...

    def write_file_atomically(self, path: str, data: bytes) -> None:
        """Old or new content after a crash, never a mixture: a synced `.tmp` beside it, renamed over, folder synced."""
        ...

    def write_file(self, path: str, data: bytes) -> None:
        """Replaces the content of a file without syncing: for what a crash may take."""
        ...

    def held_open_max(self) -> int:
        """How many files may be held open for long: the others who open some must find descriptors."""
        ...

    def free_bytes(self, path: str) -> int:
        """Room left for an ordinary user on the file system that holds `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Size of the file system that holds `path`."""
        ...

    def lock(self, path: str) -> DiskLock | None:
        """Takes an exclusive lock that Java's FileChannel.lock honours too; None when another holder has it."""
        ...
