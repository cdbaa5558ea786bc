"""The simulated disk: what a loss of power may leave of names."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headrace.sim import disk as disks
from headrace.sim.disk import SimDisk

OLD = ["/data/t-0/first", "/data/t-0/second"]


def made(seed: int) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_dirs("/data/t-0")
    for path in OLD:
        disk.write_file(path, b"x")
    disk.sync_directory("/data")
    return disk


def files(disk: SimDisk) -> list[str]:
    return [f"/data/{folder}/{name}" for folder in disk.list("/data") for name in disk.list(f"/data/{folder}")]


def test_a_folder_has_its_old_name_or_its_new_one_with_all_that_it_holds() -> None:
    left = set()
    for seed in range(50):
        disk = made(seed)
        disk.rename("/data/t-0", "/data/gone")
        assert files(disk) == ["/data/gone/first", "/data/gone/second"]
        disk.crash()
        left.add(tuple(files(disk)))
    assert left == {tuple(OLD), ("/data/gone/first", "/data/gone/second")}


def test_what_is_safe_under_its_new_name_is_nowhere_else() -> None:
    for seed in range(50):
        disk = made(seed)
        disk.write_file("/data/t-0/third", b"x")
        disk.rename("/data/t-0", "/data/u-0")
        disk.sync_directory("/data/u-0")
        disk.crash()
        assert files(disk) == ["/data/u-0/first", "/data/u-0/second", "/data/u-0/third"]


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are of 512 bytes."""
    monkeypatch.setattr(disks, "PAGE_BYTES", (512,))


def contents(write: Callable[[SimDisk], None]) -> set[bytes]:
    """What a loss of power may leave of a file of two pages of which `write` changes something."""
    left = set()
    for seed in range(300):
        disk = SimDisk(random.Random(seed))
        disk.writes_pages = True
        disk.write_file("/file", b"a" * 512 + b"b" * 512)
        disk.open("/file").sync()
        disk.sync_directory("/")
        write(disk)
        disk.crash()
        left.add(disk.read_file("/file"))
    return left


@pytest.mark.usefixtures("halves")
def test_any_page_survives_without_those_before_it() -> None:
    def append(disk: SimDisk) -> None:
        for letter in (b"c", b"d"):
            disk.open("/file").append([letter * 512])

    pages = [{page[at : at + 512] for page in contents(append)} for at in (0, 512, 1024, 1536)]
    assert pages == [
        {b"a" * 512},
        {b"b" * 512},
        {b"", b"c" * 512, bytes(512)},
        {b"", b"d" * 512, bytes(512)},
    ]
    assert b"a" * 512 + b"b" * 512 + bytes(512) + b"d" * 512 in contents(append)


@pytest.mark.usefixtures("halves")
def test_what_was_truncated_away_does_not_come_back_behind_what_follows() -> None:
    def write_again(disk: SimDisk) -> None:
        file = disk.open("/file")
        file.truncate(100)
        file.append([b"c" * 412])
        file.append([b"d" * 512])

    for left in contents(write_again):
        if b"b" in left:
            assert left == b"a" * 512 + b"b" * 512
        else:
            assert left[:100] == b"a" * 100 and len(left) in (100, 512, 1024)


@pytest.mark.usefixtures("halves")
def test_a_page_is_as_it_was_at_one_moment() -> None:
    def write_twice(disk: SimDisk) -> None:
        for letter in (b"c", b"d"):
            disk.open("/file").write_at(0, letter * 1024)

    left = contents(write_twice)
    assert left == {first * 512 + second * 512 for first in (b"a", b"c", b"d") for second in (b"b", b"c", b"d")}
