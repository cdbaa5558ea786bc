"""The real world: POSIX files, the system's clock and its entropy.

The only broker-side module that touches os, time and random.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import mmap
import os
import random
import resource
import shutil
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from headrace.env.clock import Clock
from headrace.env.disk import Disk, is_passing
from headrace.env.entropy import Entropy
from headrace.env.owner import Lock
from headrace.env.posix_page_cache import NOWAIT, PIECE_BYTES, in_memory
from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer

_advise = getattr(os, "posix_fadvise", None)

VMSTAT_BYTES = 1 << 16

READ_ON_BYTES = 4 * PIECE_BYTES
"""How far requests to the disk run ahead of the reads that wait."""
HOLE_PROBES = (1_071_104, 2_244_608, 4_419_584, 8_708_096)
"""How far beyond a range it is looked whether the log is in memory. A vain look has the kernel fetch that page: the
next ranges must not look at the same ones."""

LARGE_PAGE_BYTES = 32 * 1024 * 1024
"""No page in which the system holds a part of a file is larger: 2 MB where small ones have 4 KB, 32 MB at 16 KB."""
LARGE_BYTES = 1024 * 1024
"""From here on memory comes from the system in pages of its own."""
_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""The modes of files and folders made here: logs hold clients' data, and the metadata log passwords of settings."""
PARTS_MAX = 1024
"""IOV_MAX of Linux: more buffers than this in one pwritev are refused."""

RESERVED_IDS = frozenset(bytes(15) + bytes([n]) for n in range(101))
"""Kafka keeps the first hundred ids (and the zero id) for itself: Uuid.RESERVED."""

_held_locks: set[str] = set()
"""Lock files that this process holds: fcntl locks do not exclude a process from itself."""

_held_locks_guard = threading.Lock()
_ahead_guard = threading.Lock()


@functools.cache
def _null() -> int:
    """Where pages go that are to be in memory, and nowhere else."""
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class PosixFile:
    """See `env.disk.File`. Closes with its last reference."""

    __slots__ = ("__weakref__", "_ahead", "_descriptor", "_is_read_by_pages", "_size", "path")

    def __init__(self, path: str, *, create: bool) -> None:
        self._descriptor = -1
        self._ahead = -1
        self._is_read_by_pages = False
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self.path = path
        self._descriptor = os.open(path, flags, FILE_MODE)
        self._size = os.fstat(self._descriptor).st_size

    def append(self, parts: Sequence[Buffer]) -> int:
        """See File.append."""
        at = self._size
        count = len(parts)
        if count > PARTS_MAX:
            parts = [b"".join(parts)]
        try:
            written = os.pwritev(self._descriptor, parts, at)
        except OSError:
            self._cut_back(at)
            raise
        if count > 2 or written < len(parts[0]) + (len(parts[1]) if count == 2 else 0):
            total = sum(map(len, parts))
            if written < total:
                self._write_rest(b"".join(parts), at, written)
                written = total
        self._size = at + written
        return at

    def _write_rest(self, data: bytes, at: int, written: int) -> None:
        """The rest of a write that the system cut short: a full disk shows itself here."""
        view = memoryview(data)
        try:
            while written < len(data):
                written += os.pwrite(self._descriptor, view[written:], at + written)
        except OSError:
            self._cut_back(at)
            raise

    def _cut_back(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            pass  # the write's own error says more, and recovery cuts a torn tail

    def write_at(self, at: int, data: Buffer) -> None:
        """See File.write_at."""
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += os.pwrite(self._descriptor, view[written:], at + written)
        self._size = max(self._size, at + len(view))

    def read(self, at: int, size: int) -> bytes:
        """See File.read."""
        data = os.pread(self._descriptor, size, at)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._descriptor, size - got, at + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_cached_into(self, at: int, buffer: memoryview) -> int:
        """See File.read_cached_into."""
        try:
            return os.preadv(self._descriptor, (buffer,), at, NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.read_into(at, buffer)  # a file system that lives in memory

    def read_into(self, at: int, buffer: memoryview) -> int:
        """See File.read_into."""
        got = 0
        while got < len(buffer):
            count = os.preadv(self._descriptor, [buffer[got:]], at + got)
            if not count:
                break
            got += count
        return got

    def read_ahead(self, at: int, size: int) -> None:
        """See File.read_ahead.

        The kernel's own readahead makes room for megabytes in one go, which nobody interrupts: not the thread that
        waits for them, nor the event loop, where its send comes upon the mark that starts the next ones. So a log that
        is not in memory is asked for in pieces, a few at a time, and after each the processor is offered to those who
        wait for it. Pieces become single pages, though, which take longer to send, for as long as they stay: a hole in
        a log that is in memory otherwise is filled by the kernel's readahead, in large ones.
        """
        end = min(at + size, self._size)
        if _advise is None:
            for begin in range(at, end, PIECE_BYTES):
                os.pread(self._descriptor, PIECE_BYTES, begin)
            return
        if not self._is_read_by_pages:
            self._is_read_by_pages = True
            _advise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        if not (self._is_hole(end) and self._fill(at, end)):
            self._read_pieces(at, end)

    def _is_hole(self, end: int) -> bool:
        """Whether most of what follows is in memory, as far as a few probes tell: the system took some pages back."""
        looked = [end + distance for distance in HOLE_PROBES if end + distance < self._size]
        missing = sum(not in_memory(self._descriptor, at, 1) for at in looked)
        return missing <= len(looked) // 4

    def _fill(self, at: int, end: int) -> bool:
        """Has the kernel's readahead bring a range in, on a descriptor of its own: in large pages, in one go.

        False where there is no descriptor left, no /proc, or where the system cannot send a file to nowhere.
        """
        try:
            with _ahead_guard:
                nowhere = _null()
                if self._ahead < 0:
                    self._ahead = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            while at < end and (read := os.sendfile(nowhere, self._ahead, at, end - at)):
                at += read
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOSYS):
                return False
            raise
        return True

    def _read_pieces(self, at: int, end: int) -> None:
        assert _advise is not None
        descriptor = self._descriptor
        for begin in range(at, end + READ_ON_BYTES, PIECE_BYTES):
            if begin < self._size:
                _advise(descriptor, begin, PIECE_BYTES, os.POSIX_FADV_WILLNEED)
            os.sched_yield()
            awaited = begin - READ_ON_BYTES
            if awaited >= at:
                os.pread(descriptor, 1, min(awaited + PIECE_BYTES, end) - 1)

    def forget(self, at: int) -> None:
        """See File.forget. Pages that wait to be written stay, and large ones of which only a part is named."""
        if _advise is not None:
            _advise(self._descriptor, at - at % LARGE_PAGE_BYTES, 0, os.POSIX_FADV_DONTNEED)

    def size(self) -> int:
        """See File.size."""
        return self._size

    def truncate(self, size: int) -> None:
        """See File.truncate."""
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        """See File.sync."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            if not is_passing(error):
                raise
            raise OSError(errno.EIO, f"a sync failed: {error.strerror}", self.path) from error

    def fileno(self) -> int:
        """See File.fileno."""
        return self._descriptor

    def slice(self, at: int, size: int) -> FileSlice:
        """See File.slice."""
        return FileSlice(self, at, size)

    def close(self) -> None:
        """See File.close."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        ahead, self._ahead = self._ahead, -1
        if ahead >= 0:
            os.close(ahead)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            self.close()


class PosixLock:
    """A held `.lock` file: fcntl against other processes (Kafka among them), a registry against this one."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """See DiskLock.release."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            with _held_locks_guard:
                _held_locks.discard(self._path)


class PosixDisk:
    """See `env.disk.Disk`."""

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        """See Disk.open."""
        return PosixFile(path, create=create)

    def write_pressure(self) -> float:
        """See Disk.write_pressure: Linux lets writers be up to the middle of its two thresholds."""
        try:
            with open("/proc/vmstat", "rb", buffering=0) as vmstat:
                counts = dict(line.split() for line in vmstat.read(VMSTAT_BYTES).splitlines())
            waiting = int(counts[b"nr_dirty"]) + int(counts[b"nr_writeback"])
            thresholds = int(counts[b"nr_dirty_threshold"]) + int(counts[b"nr_dirty_background_threshold"])
        except (OSError, KeyError, ValueError):
            return 0.0
        return waiting * 2 / max(thresholds, 1)

    def list(self, directory: str) -> list[str]:
        """See Disk.list."""
        return sorted(os.listdir(directory))

    def list_sizes(self, directory: str) -> Sequence[tuple[str, int]]:
        """See Disk.list_sizes."""
        with os.scandir(directory) as entries:
            return sorted((entry.name, entry.stat().st_size) for entry in entries if not entry.is_dir())

    def exists(self, path: str) -> bool:
        """See Disk.exists."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """See Disk.is_dir."""
        return os.path.isdir(path)

    def make_dirs(self, path: str) -> None:
        """See Disk.make_dirs."""
        os.makedirs(path, FOLDER_MODE, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """See Disk.rename."""
        os.replace(old, new)

    def remove(self, path: str) -> None:
        """See Disk.remove."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        """See Disk.remove_tree."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass

    def sync_directory(self, path: str) -> None:
        """See Disk.sync_directory."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def size(self, path: str) -> int:
        """See Disk.size."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """See Disk.modified_ms."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def read_file(self, path: str) -> bytes:
        """See Disk.read_file."""
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def write_file_atomically(self, path: str, data: bytes) -> None:
        """See Disk.write_file_atomically."""
        temporary = path + ".tmp"
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # of a process that died here, or a link that leads elsewhere
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        self.sync_directory(os.path.dirname(path) or ".")

    def write_file(self, path: str, data: bytes) -> None:
        """See Disk.write_file."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def held_open_max(self) -> int:
        """See Disk.held_open_max."""
        return max(open_files_limit() // HELD_OPEN_SHARE, 1)

    def free_bytes(self, path: str) -> int:
        """See Disk.free_bytes."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        """See Disk.total_bytes."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def lock(self, path: str) -> PosixLock | None:
        """See Disk.lock."""
        path = os.path.realpath(path)
        with _held_locks_guard:
            # Opening and closing the file again would drop the lock that this process holds: look here first.
            if path in _held_locks:
                return None
            while True:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
                try:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(descriptor)
                    return None
                if _is_at(path, descriptor):
                    break
                os.close(descriptor)  # who held it has removed it: the next one would lock another file
            _held_locks.add(path)
            return PosixLock(path, descriptor)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class PosixClock:
    """See `env.clock.Clock`."""

    def now_ms(self) -> int:
        """See Clock.now_ms."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # as it is: every readable event asks for it

    def sleep(self, seconds: float) -> None:
        """See Clock.sleep."""
        time.sleep(seconds)


class PosixEntropy:
    """See `env.entropy.Entropy`."""

    def uuid(self) -> bytes:
        """See Entropy.uuid."""
        while True:
            drawn = uuid.uuid4().bytes
            # A leading dash in base64 (top six bits 111110) would read as an option on a command line.
            if drawn not in RESERVED_IDS and drawn[0] >> 2 != 0b111110:
                return drawn

    def secret(self, size: int) -> bytes:
        """See Entropy.secret."""
        return os.urandom(size)

    def random(self) -> random.Random:
        """See Entropy.random."""
        return random.Random(os.urandom(32))


def thread_processor_s() -> float:
    """Seconds of a processor that the calling thread has used so far."""
    return time.thread_time()


class PosixEnvironment:
    """See `env.node.Environment`: this machine, without a loop."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.clock: Clock = PosixClock()
        self.disk: Disk = disk or PosixDisk()
        self.entropy: Entropy = PosixEntropy()

    def lock(self) -> Lock:
        """See Environment.lock."""
        return threading.RLock()

    def scratch(self, size: int) -> memoryview:
        """See Environment.scratch. A bytearray of 100 MB is filled with zeros first, for 40 ms in which no other thread
        runs; small pages take 6 ms to give back, large ones 0.3."""
        if size <= LARGE_BYTES:
            return memoryview(bytearray(size))
        pages = mmap.mmap(-1, size)
        if _HUGE_PAGES is not None:
            try:
                pages.madvise(_HUGE_PAGES)
            except OSError:
                pass  # the system has none
        return memoryview(pages)


RESERVED_SHARE = 4
"""One descriptor in so many is kept from connections: for segments, checkpoints, new topics, and an operator's tools.
"""
HELD_OPEN_SHARE = 8
"""One descriptor in so many, half of the reserve, is what the files of segments may hold; the other half is for files
that are open for a moment, those that slices on their way to slow consumers keep, and those that holes are filled
through: without one, pieces do."""


def open_files_limit() -> int:
    """Descriptors that this process may have; a large number where the system sets no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def reserved_descriptors() -> int:
    """Descriptors that connections leave alone."""
    return open_files_limit() // RESERVED_SHARE


def raise_open_files_limit() -> int:
    """Raises the soft limit of open files to the hard one; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or soft == resource.RLIM_INFINITY:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass  # containers may forbid it; the old limit stays
    return soft
