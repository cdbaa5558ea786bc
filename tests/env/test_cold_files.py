"""Files that are not in memory: what the probes see, and what is read ahead."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.env.posix import READ_ON_BYTES, PosixDisk, PosixFile
from headrace.env.posix_page_cache import CACHESTAT, PIECE_BYTES, in_memory, pages_counted_by

PAGE = 4096
SIZE = 3 * 1024 * 1024
PATIENCE_S = 30
NO_SUCH_CALL = 100_000


def resident(descriptor: int, at: int, size: int) -> list[bool]:
    """Which pages of a range are in memory, as mincore says it, which reads nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    begin = at // PAGE * PAGE
    pages = (ctypes.c_ubyte * -((begin - at - size) // PAGE))()
    with mmap.mmap(descriptor, SIZE, mmap.MAP_PRIVATE) as view:
        held = ctypes.c_char.from_buffer(view)
        where = ctypes.c_void_p(ctypes.addressof(held) + begin)
        failed = libc.mincore(where, ctypes.c_size_t(at + size - begin), pages)
        del held
    assert not failed, os.strerror(ctypes.get_errno())
    return [bool(page & 1) for page in pages]


def evict(descriptor: int, at: int, size: int) -> None:
    """Drop a range; the kernel keeps pages that its journal, or a read that is under way, has its hands on."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        os.posix_fadvise(descriptor, at, size, os.POSIX_FADV_DONTNEED)
        if not any(resident(descriptor, at, size)):
            return
        assert time.monotonic() < deadline
        time.sleep(0.001)


class SlowDisk:
    """The page cache before a disk that brings nothing while anybody looks; only bytes outside the hole are held.

    A real miss makes the kernel fetch the page, and a quick disk has brought it before the look is over.
    """

    def __init__(self, hole: tuple[int, int]) -> None:
        begin, size = hole
        self.missing = range(begin, begin + size)

    def preadv(self, _descriptor: int, buffers: list[bytearray], at: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        (buffer,) = buffers
        if any(byte in self.missing for byte in range(at, at + len(buffer))):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return len(buffer)


@pytest.fixture
def cold(tmp_path: Path) -> PosixFile:
    """A file of which nothing is in memory."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    file = PosixDisk().open(str(path))
    file.sync()
    evict(file.fileno(), 0, SIZE)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    return file


def test_a_range_that_was_read_ahead_is_in_memory(cold: PosixFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pieces, as what follows is not in memory: the kernel's readahead may be as large as the file."""
    at, size = 5 * PAGE + 7, 1024 * 1024
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", SlowDisk((at + size, SIZE)).preadv)
        cold.read_ahead(at, size)
    assert in_memory(cold.fileno(), at, size)
    assert not any(resident(cold.fileno(), at + size + READ_ON_BYTES + PIECE_BYTES, PAGE))


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_system_that_cannot_fill_reads_pieces_and_a_bad_disk_is_told(
    cold: PosixFile, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fails(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    cold.read(0, SIZE)
    evict(cold.fileno(), 0, PIECE_BYTES)
    monkeypatch.setattr(os, "sendfile", fails)
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output"):
            cold.read_ahead(0, PIECE_BYTES)
    else:
        cold.read_ahead(0, PIECE_BYTES)
        assert in_memory(cold.fileno(), 0, SIZE)


@pytest.mark.parametrize("descriptors_left", [True, False])
def test_a_hole_in_a_file_that_is_in_memory_otherwise(
    cold: PosixFile, monkeypatch: pytest.MonkeyPatch, descriptors_left: bool
) -> None:
    """The kernel's readahead fills it; where there is no descriptor for that, pieces do."""
    cold.read(0, SIZE)
    evict(cold.fileno(), PIECE_BYTES, 3 * PIECE_BYTES)
    before = open_descriptors()
    with monkeypatch.context() as patch:
        if not descriptors_left:
            patch.setattr(os, "open", refuse)
        cold.read_ahead(PIECE_BYTES, 3 * PIECE_BYTES)
    assert in_memory(cold.fileno(), 0, SIZE)
    assert (cold._ahead >= 0) is descriptors_left
    cold.close()
    assert len(before - open_descriptors()) == 1, "the file's own"
    assert len(open_descriptors() - before) <= 1, "the one to nowhere stays"


def open_descriptors() -> set[str]:
    return {f"{number} {os.readlink(f'/proc/self/fd/{number}')}" for number in os.listdir("/proc/self/fd") if
            os.path.exists(f"/proc/self/fd/{number}")}  # fmt: skip


def refuse(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_several_threads_fill_holes_of_one_file(cold: PosixFile) -> None:
    cold.read(0, SIZE)
    evict(cold.fileno(), 0, 8 * PIECE_BYTES)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda at: cold.read_ahead(at * PIECE_BYTES, PIECE_BYTES), range(8)))
    assert in_memory(cold.fileno(), 0, SIZE)


def test_the_end_of_the_file_ends_it(cold: PosixFile) -> None:
    cold.read_ahead(SIZE - PAGE, 1024 * 1024)
    assert in_memory(cold.fileno(), SIZE - PAGE, PAGE)


def test_a_look_waits_for_no_disk(cold: PosixFile) -> None:
    """It says no, or a quick disk has brought the page meanwhile."""
    assert not in_memory(cold.fileno(), PAGE, 1) or all(resident(cold.fileno(), PAGE, 1))


@pytest.mark.parametrize(
    "hole",
    [
        (0, 1),
        (PIECE_BYTES, 1),
        (4 * PIECE_BYTES - 1, 1),
        (PIECE_BYTES + PAGE, PIECE_BYTES),
        (PIECE_BYTES // 2, PIECE_BYTES),
    ],
)
def test_a_hole_is_noticed(monkeypatch: pytest.MonkeyPatch, hole: tuple[int, int]) -> None:
    """At either end, at the start of a piece, and wherever it is as large as a piece."""
    start = 5 * PAGE + 7
    monkeypatch.setattr(os, "preadv", SlowDisk((start + hole[0], hole[1])).preadv)
    assert not in_memory(-1, start, 4 * PIECE_BYTES)
    assert in_memory(-1, start - 1 - PIECE_BYTES, PIECE_BYTES)


def test_a_hole_of_one_page_is_noticed_where_the_system_counts_pages(cold: PosixFile) -> None:
    """A system that wants memory takes pages here and there, and a loop that sends over one waits for the disk."""
    cold.read(0, SIZE)
    counted = pages_counted_by(CACHESTAT)(cold.fileno(), PAGE + 1, 3 * PAGE)
    assert counted in (4, -1)
    evict(cold.fileno(), 41 * PAGE, PAGE)
    assert in_memory(cold.fileno(), 0, 2 * PIECE_BYTES) is (counted < 0)
    assert in_memory(cold.fileno(), 42 * PAGE, 2 * PIECE_BYTES)


def test_a_system_that_counts_no_pages_is_asked_once(cold: PosixFile) -> None:
    asked = pages_counted_by(NO_SUCH_CALL)
    assert [asked(cold.fileno(), 0, PAGE) for _ in range(3)] == [-1, -1, -1]


def test_a_file_that_cannot_be_counted_ends_nothing(cold: PosixFile) -> None:
    cold.read(0, SIZE)
    asked = pages_counted_by(CACHESTAT)
    assert asked(-1, 0, PAGE) == -1
    assert asked(cold.fileno(), 0, PAGE) == pages_counted_by(CACHESTAT)(cold.fileno(), 0, PAGE)


def test_threads_count_for_themselves(cold: PosixFile) -> None:
    cold.read(0, SIZE)
    asked = pages_counted_by(CACHESTAT)
    wanted = {pages: asked(cold.fileno(), 0, pages * PAGE) for pages in range(1, 9)}
    with ThreadPoolExecutor(8) as pool:
        for pages, held in pool.map(lambda n: (n % 8 + 1, asked(cold.fileno(), 0, (n % 8 + 1) * PAGE)), range(5000)):
            assert held == wanted[pages]


def test_what_is_forgotten_comes_from_the_disk_again(tmp_path: Path) -> None:
    file = PosixDisk().open(str(tmp_path / "f"), create=True)
    file.append([os.urandom(SIZE)])
    file.sync()
    if not in_memory(file.fileno(), 0, SIZE):
        pytest.skip("this system does not tell what is in memory")
    deadline = time.monotonic() + PATIENCE_S
    while any(resident(file.fileno(), SIZE - PAGE, PAGE)):
        assert time.monotonic() < deadline
        file.forget(SIZE - 1)  # from the page on that holds it, however large that is
