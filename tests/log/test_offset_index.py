"""The offset index in memory: what is kept of it decoded, and for whom."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Never

import pytest

from headrace.env.posix import PosixDisk, PosixFile
from headrace.log.offset_index import IndexCache, OffsetIndex, TimeIndex


class Interrupted(PosixDisk):
    """A disk on which something else happens right after a file was read."""

    def __init__(self) -> None:
        self.then: Callable[[], None] | None = None

    def read_file(self, path: str) -> bytes:
        data = super().read_file(path)
        then, self.then = self.then, None
        if then is not None:
            then()
        return data


def filled(disk: PosixDisk, path: str, cache: IndexCache, step: int) -> OffsetIndex:
    index = OffsetIndex(disk, path, cache)
    for number in range(1, 5):
        index.append(10 * number, step * number)
    index.write_out()
    return index


def test_a_late_reader_of_a_replaced_index_leaves_nothing_for_its_successor(tmp_path: Path) -> None:
    disk, cache = Interrupted(), IndexCache(RLock())
    path = str(tmp_path / "0.index")
    old = filled(disk, path, cache, 1000)
    new = filled(disk, path + ".swap", cache, 100)

    def swap() -> None:  # as compaction does
        os.replace(path, path + ".deleted")
        old.path = path + ".deleted"
        old.forget()
        os.replace(path + ".swap", path)
        new.path = path

    disk.then = swap
    assert old.lookup(25) == 2000
    assert new.lookup(25) == 200
    assert old.lookup(35) == 3000


def test_a_reader_that_comes_upon_the_successor_of_its_index_reads_its_own(tmp_path: Path) -> None:
    class Renaming(PosixDisk):
        renamed = False

        def read_file(self, name: str) -> bytes:
            if not self.renamed:
                self.renamed = True
                os.replace(path, path + ".deleted")
                old.path = path + ".deleted"
                os.replace(path + ".swap", path)
            return super().read_file(name)

    disk, cache = Renaming(), IndexCache(RLock())
    path = str(tmp_path / "0.index")
    old = filled(disk, path, cache, 1000)
    filled(disk, path + ".swap", cache, 100)
    assert old.lookup(25) == 2000


def test_a_late_reader_does_not_bring_back_what_was_cut(tmp_path: Path) -> None:
    disk, cache = Interrupted(), IndexCache(RLock())
    index = filled(disk, str(tmp_path / "0.index"), cache, 1000)

    def cut_and_go_on() -> None:
        index.truncate(20)
        for number in range(2, 5):
            index.append(10 * number, 2000 * number)
        index.write_out()

    disk.then = cut_and_go_on
    index.lookup(25)
    assert index.lookup(35) == 6000


class FullFile(PosixFile):
    __slots__ = ()

    def write_at(self, _position: int, _data: object) -> Never:
        raise OSError(errno.ENOSPC, "no space left")


class Full(PosixDisk):
    """A disk without room: files are opened and cut, and nothing is written."""

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        if create and not os.path.exists(path):
            raise OSError(errno.ENOSPC, "no space left")
        return FullFile(path, create=False)


@pytest.mark.parametrize("kept", range(7))
@pytest.mark.parametrize("written", range(7))
def test_a_full_disk_does_not_end_a_cut_half_way(tmp_path: Path, written: int, kept: int) -> None:
    """What is in memory alone is not written first."""
    disk, offsets_at, times_at = PosixDisk(), str(tmp_path / "0.index"), str(tmp_path / "0.timeindex")
    offsets, times = OffsetIndex(disk, offsets_at, IndexCache(RLock())), TimeIndex(disk, times_at)
    for number in range(1, 7):
        offsets.append(10 * number, 1000 * number)
        times.maybe_append(100 * number, 10 * number)
        if number == written:
            offsets.write_out()
            times.write_out()
    offsets._disk = times._disk = Full()
    offsets.truncate(10 * kept + 1)
    times.truncate(10 * kept + 1)
    assert list(offsets.entries()) == [10 * number << 32 | 1000 * number for number in range(1, kept + 1)]
    assert times.entries() == [(100 * number, 10 * number) for number in range(1, kept + 1)]
    offsets.append(10 * kept + 1, 1000 * kept + 1)
    times.maybe_append(100 * kept + 1, 10 * kept + 1)
    assert len(offsets) == len(times) == kept + 1


def test_the_cache_keeps_within_its_bound() -> None:
    cache = IndexCache(RLock(), bytes_max=8 * 100)
    keys = [object() for _ in range(5)]
    for key in keys:
        cache.put(key, array("Q", range(30)))
    assert [cache.get(key) is not None for key in keys] == [False, False, True, True, True]
    cache.drop(keys[3])
    cache.put(keys[0], array("Q", range(60)))
    assert [cache.get(key) is not None for key in keys] == [True, False, False, False, True]
