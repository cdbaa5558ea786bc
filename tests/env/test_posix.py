"""The real disk, clock and entropy keep what `env` promises; the simulated disk keeps the same."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.env.disk import is_passing
from headrace.env.posix import PARTS_MAX, PosixDisk, PosixEntropy, PosixEnvironment
from headrace.sim.disk import SimDisk


@pytest.fixture(params=["posix", "sim"])
def disk_and_root(request: Any, tmp_path: Path) -> tuple[Any, str]:
    if request.param == "posix":
        return PosixDisk(), str(tmp_path)
    disk = SimDisk(random.Random(3))
    disk.make_dirs("/root")
    return disk, "/root"


def test_files(disk_and_root: tuple[Any, str]) -> None:
    disk, root = disk_and_root
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/missing")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/no/folder", create=True)
    file = disk.open(f"{root}/f", create=True)
    assert file.append([b"abc", memoryview(b"def")]) == 0
    assert file.append([b"x"] * (PARTS_MAX + 10)) == 6
    assert file.size() == 6 + PARTS_MAX + 10
    assert file.read(4, 4) == b"efxx"
    assert file.read(file.size() - 1, 100) == b"x"
    buffer = bytearray(6)
    assert file.read_into(0, memoryview(buffer)) == 6 and buffer == b"abcdef"
    file.truncate(5)
    assert file.append([b"!"]) == 5
    file.write_at(1, b"BC")
    assert file.slice(0, 6).read() == b"aBCde!"
    file.sync()
    file.close()
    file.close()
    assert disk.size(f"{root}/f") == 6


def test_folders_and_names(disk_and_root: tuple[Any, str]) -> None:
    disk, root = disk_and_root
    disk.make_dirs(f"{root}/d/e")
    disk.make_dirs(f"{root}/d/e")
    disk.write_file(f"{root}/d/two", b"22")
    disk.write_file_atomically(f"{root}/d/one", b"1")
    disk.write_file(f"{root}/d/two", b"2")
    assert list(disk.list(f"{root}/d")) == ["e", "one", "two"]
    assert list(disk.list_sizes(f"{root}/d")) == [("one", 1), ("two", 1)]
    disk.rename(f"{root}/d/one", f"{root}/d/two")
    assert disk.read_file(f"{root}/d/two") == b"1" and not disk.exists(f"{root}/d/one")
    disk.rename(f"{root}/d", f"{root}/g")
    assert disk.is_dir(f"{root}/g/e") and not disk.exists(f"{root}/d")
    disk.sync_directory(f"{root}/g")
    disk.remove(f"{root}/g/two")
    disk.remove(f"{root}/g/two")
    disk.remove_tree(f"{root}/g")
    disk.remove_tree(f"{root}/g")
    assert list(disk.list(root)) == []
    with pytest.raises(FileNotFoundError):
        disk.read_file(f"{root}/g/two")


def test_locks(disk_and_root: tuple[Any, str]) -> None:
    disk, root = disk_and_root
    held = disk.lock(f"{root}/.lock")
    assert held is not None and disk.lock(f"{root}/.lock") is None
    held.release()
    held.release()
    again = disk.lock(f"{root}/.lock")
    assert again is not None
    again.release()


def test_a_lock_file_that_goes_meanwhile_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever held it removed it just now: the next one must not come in by another file."""
    path, real = tmp_path / ".lock", fcntl.lockf
    gone = [False]

    def lockf(descriptor: int, how: int) -> None:
        real(descriptor, how)
        if not gone[0]:
            gone[0] = True
            path.unlink()

    monkeypatch.setattr(fcntl, "lockf", lockf)
    held = PosixDisk().lock(str(path))
    assert held is not None and path.exists()
    look = f"from headrace.env.posix import PosixDisk; print(PosixDisk().lock({str(path)!r}))"
    assert subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout == "None\n"
    held.release()


def test_a_short_write_is_finished_or_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = PosixDisk().open(str(tmp_path / "f"), create=True)
    file.append([b"start"])
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: os.pwrite(fd, b"".join(parts)[:3], at))
    assert file.append([b"abc", b"def"]) == 5
    assert file.read(0, 100) == b"startabcdef"

    real = os.pwrite

    def full(_fd: int, _data: Any, _at: int) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real(fd, b"".join(parts)[:2], at))
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="no space"):
        file.append([b"abc", b"def"])
    assert (file.size(), os.path.getsize(file.path)) == (11, 11)


def test_a_file_closes_with_its_last_slice(tmp_path: Path) -> None:
    file = PosixDisk().open(str(tmp_path / "f"), create=True)
    file.append([b"data"])
    descriptor = file.fileno()
    held = file.slice(0, 4)
    del file
    assert held.read() == b"data"
    del held
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_ids_are_neither_reserved_nor_options() -> None:
    from headrace.wire import uuids

    drawn = {PosixEntropy().uuid() for _ in range(2000)}
    assert len(drawn) == 2000
    assert not any(uuids.to_text(each).startswith("-") for each in drawn)


def test_a_crash_of_the_simulated_disk_loses_only_what_was_not_synced() -> None:
    lost = torn = 0
    for seed in range(200):
        disk = SimDisk(random.Random(seed))
        disk.make_dirs("/d")
        file = disk.open("/d/f", create=True)
        file.append([b"safe"])
        file.sync()
        disk.sync_directory("/d")
        disk.open("/d/new", create=True)
        file.append([b"MORE"])
        disk.crash()
        content = disk.read_file("/d/f")
        assert content.startswith(b"safe")
        lost += content == b"safe"
        torn += content not in (b"safe", b"safeMORE")
        assert disk.exists("/d/f")
    assert lost > 20 and torn > 5


@pytest.mark.parametrize("size", [0, 100, 5_000_000])
def test_scratch_is_memory_to_write_to(size: int) -> None:
    room = PosixEnvironment().scratch(size)
    assert len(room) == size and bytes(room) == bytes(size)
    room[:] = bytes([7]) * size
    part = room[: size // 2]
    del room
    assert bytes(part) == bytes([7]) * (size // 2)


def test_what_is_written_atomically_goes_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not through a link of somebody else's, and nothing of it stays where it fails: it may hold secrets."""
    disk, path, other = PosixDisk(), tmp_path / "file", tmp_path / "other"
    (tmp_path / "file.tmp").symlink_to(other)
    disk.write_file_atomically(str(path), b"1")
    assert path.read_bytes() == b"1" and not other.exists()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        disk.write_file_atomically(str(path), b"2")
    assert path.read_bytes() == b"1" and [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_is_forgotten_is_read_again_and_what_waits_stays(disk_and_root: tuple[Any, str]) -> None:
    disk, root = disk_and_root
    file = disk.open(f"{root}/f", create=True)
    file.append([b"a" * 10_000])
    file.forget(0)
    assert file.read(0, 20_000) == b"a" * 10_000, "it was not written yet"
    file.sync()
    file.append([b"b" * 10_000])
    for at in (0, 5000, 10_000, 20_000):
        file.forget(at)
        assert file.read(0, 30_000) == b"a" * 10_000 + b"b" * 10_000


def test_what_a_sync_failed_to_write_is_forgotten_and_not_what_lies_before() -> None:
    disk = SimDisk(random.Random(3))
    disk.drops_unsynced = True
    file = disk.open("/f", create=True)
    file.append([b"a" * 128])
    file.sync()
    file.append([b"b" * 128])
    disk.fail = lambda operation, path: OSError(errno.EIO, operation, path) if operation == "sync" else None
    with pytest.raises(OSError, match="sync"):
        file.sync()
    disk.fail = None
    disk.kill()
    file = disk.open("/f")
    assert file.read(0, 300) == b"a" * 128 + b"b" * 128 and disk.has_dropped
    file.append([b"c" * 128])
    file.forget(200)  # whole pages
    assert file.read(0, 400) == b"a" * 128 + b"b" * 64 + bytes(64) + b"c" * 128 and disk.has_dropped
    file.forget(128)
    assert file.read(0, 400) == b"a" * 128 + bytes(128) + b"c" * 128 and not disk.has_dropped


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_sync_that_finds_no_room_is_a_sync_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """What it did not write may be taken for written: that another one succeeds proves nothing."""

    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    file = PosixDisk().open(str(tmp_path / "f"), create=True)
    file.append([b"a"])
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match=os.strerror(code)) as failed:
        file.sync()
    assert failed.value.errno == errno.EIO and not is_passing(failed.value)
