"""Files that are not in memory: what the probes see, and what is read ahead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.env.posix import PIECE_BYTES, READ_ON_BYTES, PosixDisk, PosixFile
from headrace.env.posix_network import in_memory

PAGE = 4096
SIZE = 3 * 1024 * 1024


@pytest.fixture
def cold(tmp_path: Path) -> PosixFile:
    """A file of which nothing is in memory."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    file = PosixDisk().open(str(path))
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    return file


def test_a_range_that_was_read_ahead_is_in_memory(cold: PosixFile) -> None:
    at, size = 5 * PAGE + 7, 1024 * 1024
    assert not in_memory(cold.fileno(), at, size)
    cold.read_ahead(at, size)
    assert in_memory(cold.fileno(), at, size)
    assert not in_memory(cold.fileno(), at + size + READ_ON_BYTES + PIECE_BYTES, PAGE)


def test_the_end_of_the_file_ends_it(cold: PosixFile) -> None:
    cold.read_ahead(SIZE - PAGE, 1024 * 1024)
    assert in_memory(cold.fileno(), SIZE - PAGE, PAGE)


@pytest.mark.parametrize("hole", [0, PIECE_BYTES, 2 * PIECE_BYTES - 1])
def test_a_page_that_is_missing_is_noticed(cold: PosixFile, hole: int) -> None:
    cold.read_ahead(0, SIZE)
    first = hole // PAGE * PAGE
    os.posix_fadvise(cold.fileno(), first, PAGE, os.POSIX_FADV_DONTNEED)
    assert not in_memory(cold.fileno(), 0, 2 * PIECE_BYTES)


def test_a_piece_that_is_missing_between_two_others_is_noticed(cold: PosixFile) -> None:
    cold.read_ahead(0, SIZE)
    os.posix_fadvise(cold.fileno(), PIECE_BYTES + PAGE, PIECE_BYTES, os.POSIX_FADV_DONTNEED)
    assert not in_memory(cold.fileno(), 0, 3 * PIECE_BYTES)
