"""Files that are not in memory: what the probes see, and what is read ahead."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import pytest

from headrace.env.posix import PIECE_BYTES, READ_ON_BYTES, PosixDisk, PosixFile
from headrace.env.posix_network import in_memory

PAGE = 4096
SIZE = 3 * 1024 * 1024
PATIENCE_S = 30
TRIES = 10


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


def noticed(descriptor: int, hole: tuple[int, int], at: int, size: int) -> bool:
    """Whether a range is told from one that is in memory, where this part of it (begin, size) is missing.

    The probe that misses a page makes the kernel fetch it, and a quick disk may have brought it by the time that the
    probe looks again: then yes is true. Where nobody looks, it stays missing however often it is tried.
    """
    for _ in range(TRIES):
        evict(descriptor, *hole)
        if not in_memory(descriptor, at, size) or all(resident(descriptor, at, size)):
            return True
    return False


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


def test_a_range_that_was_read_ahead_is_in_memory(cold: PosixFile) -> None:
    at, size = 5 * PAGE + 7, 1024 * 1024
    assert noticed(cold.fileno(), (0, SIZE), at, size)
    evict(cold.fileno(), 0, SIZE)
    cold.read_ahead(at, size)
    assert in_memory(cold.fileno(), at, size)
    assert not any(resident(cold.fileno(), at + size + READ_ON_BYTES + PIECE_BYTES, PAGE))


def test_the_end_of_the_file_ends_it(cold: PosixFile) -> None:
    cold.read_ahead(SIZE - PAGE, 1024 * 1024)
    assert in_memory(cold.fileno(), SIZE - PAGE, PAGE)


@pytest.mark.parametrize("hole", [0, PIECE_BYTES, 2 * PIECE_BYTES - 1])
def test_a_page_that_is_missing_is_noticed(cold: PosixFile, hole: int) -> None:
    cold.read_ahead(0, SIZE)
    first = hole // PAGE * PAGE
    assert noticed(cold.fileno(), (first, PAGE), 0, 2 * PIECE_BYTES)


def test_a_piece_that_is_missing_between_two_others_is_noticed(cold: PosixFile) -> None:
    cold.read_ahead(0, SIZE)
    assert noticed(cold.fileno(), (PIECE_BYTES + PAGE, PIECE_BYTES), 0, 3 * PIECE_BYTES)
