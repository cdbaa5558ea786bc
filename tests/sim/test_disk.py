"""The simulated disk: what a loss of power may leave of names."""

from __future__ import annotations

import random

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
