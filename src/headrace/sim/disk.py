"""A disk that forgets: unsynced data may be lost, torn or zeroed at a crash, and any call may fail.

The effect of each crash is drawn from the given generator:
- of each file, the writes since its last sync survive as a random prefix, the last of them possibly cut in the middle
  or followed by zeros if the file was longer (a file system that stored the size and not the data);
- on a disk that `writes_pages`, each page of a file survives independently, as it was at some moment since the last
  sync, and so does the size: a kernel writes dirty pages back in any order. What was truncated does not return;
- of each folder, the creations, renames and removals since its last sync survive as a random prefix; a rename, of a
  file or of a folder with its content, is one step, as in a journal.

A synced file whose name was not synced is lost with its name. `fail` injects errors, `room_bytes` is a full disk. On a
disk that `drops_unsynced`, data that a sync failed to write are read as before, and no later sync writes them: the
kernel considers the pages written. This lasts when only the process dies, until `SimFile.forget`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer


class PowerCut(BaseException):
    """The machine stops in the middle of an operation on the disk: nothing that it does after this has an effect."""


Write = tuple[int, bytes | None]
"""(position, data), or (size, None) for a truncation."""
PAGES_KEPT: Final = (0.2, 0.5, 0.9)
"""Of those that are dirty, when the power goes."""
PAGE_BYTES: Final = (64, 512, 4096)
"""What a disk writes as a whole, and what a kernel does; files are small here, so that a page is, too."""


class _Node:
    """A file's content: what is visible now, what a crash certainly leaves, and the writes in between."""

    __slots__ = ("data", "durable", "has_dropped", "modified_ms", "unsynced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.unsynced: list[Write] = []
        self.has_dropped = False
        """Whether something is in memory that no sync will write."""
        self.modified_ms = 0

    def write(self, at: int, data: bytes) -> None:
        if at > len(self.data):
            self.data.extend(bytes(at - len(self.data)))
        self.data[at : at + len(data)] = data
        self.unsynced.append((at, data))

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.unsynced.append((size, None))

    def sync(self) -> None:
        self.durable = self._written() if self.has_dropped else bytes(self.data)
        self.unsynced.clear()

    def _written(self) -> bytes:
        """What is on the disk, with what waits to be written."""
        written = _Node()
        written.data = bytearray(self.durable)
        for at, data in self.unsynced:
            if data is None:
                written.truncate(at)
            else:
                written.write(at, data)
        return bytes(written.data)

    def forget(self, at: int) -> None:
        """Pages that are taken for written are read from the disk; the size of a file is nothing that a sync drops."""
        if self.has_dropped:
            size = len(self.data)
            written = self._written()[:size].ljust(size, b"\0")
            self.data[at:] = written[at:]
            self.has_dropped = self.data[:at] != written[:at]

    def drop(self) -> None:
        """A sync has failed, and the kernel takes its pages for written."""
        self.has_dropped = self.has_dropped or bool(self.unsynced)
        self.unsynced.clear()

    def crash_by_page(self, rng: random.Random) -> None:
        """Crashes as an operating system that loses single pages would."""
        disk, true = bytearray(self.durable), bytearray(self.durable)
        size_known = rng.randint(0, len(self.unsynced))
        page_bytes = rng.choice(PAGE_BYTES)
        begin = 0
        while True:
            end = next((at for at in range(begin, len(self.unsynced)) if self.unsynced[at][1] is None), None)
            is_last = end is None or end >= size_known
            size = _write_back(disk, true, self.unsynced[begin:end], page_bytes, rng, size_known - begin)
            _set_size(disk, size if is_last else len(true))
            if end is None or is_last:
                break
            for each in (disk, true):
                _set_size(each, self.unsynced[end][0])
            begin = end + 1
        self.data = disk
        self.has_dropped = False
        self.sync()

    def crash(self, rng: random.Random) -> None:
        survivor = _Node()
        survivor.data = bytearray(self.durable)
        survive = rng.randint(0, len(self.unsynced))
        for at, data in self.unsynced[:survive]:
            if data is None:
                survivor.truncate(at)
            else:
                survivor.write(at, data)
        if survive < len(self.unsynced) and rng.random() < 0.5:
            at, data = self.unsynced[survive]
            if data:
                torn = rng.randint(0, len(data))
                survivor.write(at, data[:torn] + (bytes(len(data) - torn) if rng.random() < 0.3 else b""))
        self.data = survivor.data
        self.has_dropped = False
        self.sync()


def _set_size(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def _write_back(
    disk: bytearray, true: bytearray, writes: Sequence[Write], page_bytes: int, rng: random.Random, size_known: int
) -> int:
    """Makes writes to `true`, and lets each page of them reach `disk` as it was at some moment. Returns the size after
    so many writes (`size_known`), as far as there are any."""
    touched: dict[int, list[int]] = {}
    for number, (at, data) in enumerate(writes):
        assert data is not None
        # What lies between the end of a file and a write behind it is zeros, written or not.
        for page in range(at // page_bytes, -(-(at + len(data)) // page_bytes)):
            touched.setdefault(page, []).append(number)
    kept = rng.choice(PAGES_KEPT)
    moments = {}
    for page, numbers in touched.items():
        moments[page] = numbers[-1] if rng.random() < kept else rng.choice([-1, *numbers[:-1]])
    size = len(true)
    for number, (at, data) in enumerate(writes):
        assert data is not None
        _set_size(true, max(len(true), at + len(data)))
        true[at : at + len(data)] = data
        if number < size_known:
            size = len(true)
        for page in range(at // page_bytes, -(-(at + len(data)) // page_bytes)):
            if moments[page] == number:
                begin, end = page * page_bytes, min((page + 1) * page_bytes, len(true))
                _set_size(disk, max(len(disk), end))
                disk[begin:end] = true[begin:end]
    return size


class SimFile:
    """See `env.disk.File`."""

    def __init__(self, disk: SimDisk, path: str, node: _Node) -> None:
        self._disk = disk
        self._node = node
        self.path = path

    def append(self, parts: Sequence[Buffer]) -> int:
        """See File.append."""
        at = len(self._node.data)
        data = b"".join(parts)
        try:
            self._disk.take(self.path, "write", len(data))
        except OSError as error:
            if error.errno != errno.ENOSPC:  # a full disk lets the file be cut back
                self._tear(at, data)
            raise
        self._node.write(at, data)
        self._node.modified_ms = self._disk.now_ms
        return at

    def write_at(self, at: int, data: Buffer) -> None:
        """See File.write_at."""
        content = bytes(data)
        try:
            self._disk.take(self.path, "write", max(at + len(content) - len(self._node.data), 0))
        except OSError:
            self._tear(at, content)
            raise
        self._node.write(at, content)
        self._node.modified_ms = self._disk.now_ms

    def _tear(self, at: int, data: bytes) -> None:
        torn = self._disk.torn(len(data))
        if torn:
            self._node.write(at, data[:torn])

    def read_cached_into(self, at: int, buffer: memoryview) -> int:
        """Nothing is cold here."""
        return self.read_into(at, buffer)

    def read(self, at: int, size: int) -> bytes:
        """See File.read."""
        self._disk.take(self.path, "read", 0)
        data = bytes(self._node.data[at : at + size])
        self._disk.let_others_in()  # what they write now has not been read
        return data

    def read_into(self, at: int, buffer: memoryview) -> int:
        """See File.read_into."""
        data = self.read(at, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_ahead(self, at: int, size: int) -> None:
        """Nothing is cold here."""

    def forget(self, at: int) -> None:
        """See File.forget."""
        self._node.forget(at - at % min(PAGE_BYTES))

    def size(self) -> int:
        """See File.size."""
        return len(self._node.data)

    def truncate(self, size: int) -> None:
        """See File.truncate."""
        self._disk.take(self.path, "write", 0)
        self._node.truncate(size)

    def sync(self) -> None:
        """See File.sync."""
        try:
            self._disk.take(self.path, "sync", 0)
        except OSError:
            if self._disk.drops_unsynced:
                self._node.drop()
            raise
        self._node.sync()
        self._disk.let_others_in()  # what they write now is not safe

    def fileno(self) -> int:
        """A simulated file has no descriptor: simulated sockets read slices."""
        raise OSError(errno.EBADF, "a simulated file has no descriptor", self.path)

    def slice(self, at: int, size: int) -> FileSlice:
        """See File.slice."""
        return FileSlice(self, at, size)

    def close(self) -> None:
        """See File.close."""


class SimDiskLock:
    """See `env.disk.DiskLock`."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """See DiskLock.release."""
        self._disk.locks.discard(self._path)


RENAME = "rename "
"""The kind of a change that gives a file or a folder another name, before that name."""

Names = dict[str, "_Node | None"]
"""Path -> content, None for a folder."""


class SimDisk:
    """An `env.disk.Disk` that forgets and fails."""

    def __init__(self, rng: random.Random, *, room_bytes: int = 1 << 60) -> None:
        self._rng = rng
        self._names: Names = {"": None, "/": None}
        self._durable_names: Names = dict(self._names)
        self._unsynced_names: list[tuple[str, str, _Node | None]] = []
        self.locks: set[str] = set()
        self.now_ms = 0
        self.room_bytes = room_bytes
        self.fail: Callable[[str, str], OSError | None] | None = None
        """Asked before each operation with (operation, path): an error to raise, or None."""
        self.broken: Callable[[str, str], OSError | None] | None = None
        """Asked likewise, before `fail`: what fails for longer than other faults last."""
        self.between: Callable[[], None] | None = None
        """Called before each operation, and after those whose outcome others may change: others may have a turn."""
        self.powered = True
        """Whether the machine that uses it runs; else whatever is still called there has no effect."""
        self.operations = 0
        self.writes_pages = False
        """Whether each page of a file reaches it by itself."""
        self.drops_unsynced = False
        """Whether what a sync failed to write is never written, though it can be read until the power goes."""
        self.tears_failed_writes = False
        """Whether a write that fails leaves a part of itself in the file, as where cutting it off again fails too."""

    def torn(self, size: int) -> int:
        """How much of a write that failed stays."""
        return self._rng.randint(0, size) if self.tears_failed_writes else 0

    @property
    def has_dropped(self) -> bool:
        """Whether a file can be read in a state that it will not have after a loss of power, even if it is synced."""
        return any(node.has_dropped for node in self._names.values() if node is not None)

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """What reads inside the block is no process of this machine: nothing counts, and nothing fails."""
        kept = self.operations, self.fail, self.broken, self.powered, self.between
        self.fail, self.broken, self.powered, self.between = None, None, True, None
        try:
            yield
        finally:
            self.operations, self.fail, self.broken, self.powered, self.between = kept

    def let_others_in(self) -> None:
        """Others may have a turn. Raises PowerCut for what a process does that has ended meanwhile."""
        if self.between is not None:
            self.between()

    def take(self, path: str, operation: str, grows: int) -> None:
        """Counts an operation; raises what is injected, or ENOSPC."""
        self.let_others_in()
        if not self.powered:
            raise PowerCut
        self.operations += 1
        for fails in (self.broken, self.fail):
            error = fails(operation, path) if fails is not None else None
            if error is not None:
                raise error
        if grows > self.room_bytes:
            raise OSError(errno.ENOSPC, "the disk is full", path)
        self.room_bytes -= grows

    def crash(self) -> None:
        """Power goes: see the module. Open files must not be used afterwards."""
        survive = self._rng.randint(0, len(self._unsynced_names))
        names = dict(self._durable_names)
        for kind, path, node in self._unsynced_names[:survive]:
            _apply(names, kind, path, node)
        for _, content in sorted(names.items(), key=lambda item: item[0]):
            if content is not None and self.writes_pages:
                content.crash_by_page(self._rng)
            elif content is not None:
                content.crash(self._rng)
        self._names = names
        self._durable_names = dict(names)
        self._unsynced_names = []
        self.locks.clear()

    def empty(self) -> None:
        """A new disk takes its place: nothing is on it."""
        self._names = {"": None, "/": None, "/data": None}
        self._durable_names = dict(self._names)
        self._unsynced_names = []

    def replace(self, directory: str) -> None:
        """A new disk is mounted there: nothing is on it. For disks that no process uses."""
        for path in [each for each in self._names if each != directory and _lies_in(each, directory)]:
            self._change("gone", path, None)
        self._durable_names = dict(self._names)
        self._unsynced_names = []

    def remove_for_good(self, path: str) -> None:
        """An operator removes a file, and no loss of power brings it back. For disks that no process uses."""
        self._change("gone", path, None)
        self._durable_names = dict(self._names)
        self._unsynced_names = []

    def kill(self) -> None:
        """The process dies and the machine stays up: nothing that was written is lost."""
        self.locks.clear()

    def _change(self, kind: str, path: str, node: _Node | None) -> None:
        _apply(self._names, kind, path, node)
        self._unsynced_names.append((kind, path, node))

    # See Disk for the rest.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """See Disk.open."""
        self.take(path, "open", 0)
        node = self._names.get(path)
        if node is None:
            if path in self._names or not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if _parent(path) not in self._names:
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            node = _Node()
            node.modified_ms = self.now_ms
            self._change("set", path, node)
        return SimFile(self, path, node)

    def list(self, directory: str) -> list[str]:
        """See Disk.list."""
        self.take(directory, "list", 0)
        if directory not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such folder", directory)
        prefix = directory.rstrip("/") + "/"
        names = (path[len(prefix) :] for path in self._names if path.startswith(prefix))
        return sorted(name for name in names if name and "/" not in name)

    def list_sizes(self, directory: str) -> Sequence[tuple[str, int]]:
        """See Disk.list_sizes."""
        found = ((name, self._names[f"{directory}/{name}"]) for name in self.list(directory))
        return [(name, len(node.data)) for name, node in found if node is not None]

    def write_pressure(self) -> float:
        """See Disk.write_pressure: nobody waits for this one."""
        return 0.0

    def exists(self, path: str) -> bool:
        """See Disk.exists."""
        return path in self._names

    def is_dir(self, path: str) -> bool:
        """See Disk.is_dir."""
        return path in self._names and self._names[path] is None

    def make_dirs(self, path: str) -> None:
        """See Disk.make_dirs."""
        self.take(path, "make", 0)
        parts = path.split("/")
        for count in range(2, len(parts) + 1):
            each = "/".join(parts[:count])
            if each not in self._names:
                self._change("set", each, None)

    def rename(self, old: str, new: str) -> None:
        """See Disk.rename."""
        self.take(old, "rename", 0)
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        node = self._names[old]
        self._change(f"rename {new}", old, node)
        self.let_others_in()

    def remove(self, path: str) -> None:
        """See Disk.remove."""
        self.take(path, "remove", 0)
        node = self._names.get(path)
        if node is not None:
            self.room_bytes += len(node.data)
            self._change("gone", path, None)

    def remove_tree(self, path: str) -> None:
        """See Disk.remove_tree."""
        self.take(path, "remove", 0)
        for each in sorted((name for name in self._names if name == path or name.startswith(path + "/")), reverse=True):
            self._change("gone", each, None)

    def sync_directory(self, path: str) -> None:
        """See Disk.sync_directory: the names in that folder (and how it came to be) are safe."""
        self.take(path, "sync", 0)
        safe = {path}
        for kind, name, _ in reversed(self._unsynced_names):
            # What is safe under a folder's new name was done under its old one before.
            if kind.startswith(RENAME) and any(_lies_in(kind.removeprefix(RENAME), each) for each in safe):
                safe.add(name)
        rest: list[tuple[str, str, _Node | None]] = []
        for kind, name, node in self._unsynced_names:
            if any(_lies_in(name, each) for each in safe):
                _apply(self._durable_names, kind, name, node)
            else:
                rest.append((kind, name, node))
        self._unsynced_names = rest
        self.let_others_in()  # a name that they make now is not safe

    def size(self, path: str) -> int:
        """See Disk.size."""
        return len(self._node(path).data)

    def modified_ms(self, path: str) -> int:
        """See Disk.modified_ms."""
        return self._node(path).modified_ms

    def _node(self, path: str) -> _Node:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def read_file(self, path: str) -> bytes:
        """See Disk.read_file."""
        self.take(path, "read", 0)
        return bytes(self._node(path).data)

    def write_file_atomically(self, path: str, data: bytes) -> None:
        """See Disk.write_file_atomically."""
        temporary = path + ".tmp"
        self.write_file(temporary, data)
        self.open(temporary).sync()
        self.rename(temporary, path)
        self.sync_directory(_parent(path))

    def write_file(self, path: str, data: bytes) -> None:
        """See Disk.write_file."""
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        if data:
            file.write_at(0, data)

    def held_open_max(self) -> int:
        """See Disk.held_open_max."""
        return 1 << 30

    def free_bytes(self, path: str) -> int:
        """See Disk.free_bytes."""
        return self.room_bytes

    def total_bytes(self, path: str) -> int:
        """See Disk.total_bytes."""
        return self.room_bytes + sum(len(node.data) for node in self._names.values() if node is not None)

    def lock(self, path: str) -> SimDiskLock | None:
        """See Disk.lock."""
        if path in self.locks:
            return None
        self.open(path, create=True)
        self.locks.add(path)
        return SimDiskLock(self, path)

    def damage(self, path: str, at: int, value: int) -> None:
        """Changes one byte for good, as bad hardware does."""
        node = self._node(path)
        node.data[at] = value
        node.durable = bytes(node.data[: len(node.durable)])


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _lies_in(path: str, directory: str) -> bool:
    """Whether a path is a folder, or of something under it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _apply(names: Names, kind: str, path: str, node: _Node | None) -> None:
    if kind == "set":
        names[path] = node
    elif kind == "gone":
        names.pop(path, None)
    else:
        # A rename is one step: a crash leaves the old name or the new one, never none, nor a half of each.
        new = kind.removeprefix(RENAME)
        if node is None:
            for each in [name for name in names if _lies_in(name, path)]:
                names[new + each[len(path) :]] = names.pop(each)
        else:
            names.pop(path, None)
            names[new] = node
