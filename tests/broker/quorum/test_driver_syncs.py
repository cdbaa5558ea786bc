"""Syncs of the metadata log that cannot be made for now: what waits for them is answered once they have been."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from broker.controllers import started
from broker.quorum.test_driver import config_of, topic, write

from headrace.env.posix_node import PosixNode


async def test_a_sync_without_a_descriptor_is_tried_again(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it is answered when it has worked; what comes meanwhile shares it."""
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    failures: list[str] = []
    quorum.on_failure = failures.append
    real, tries = quorum.log.sync, [0]

    def sync() -> None:
        tries[0] += 1
        if tries[0] <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        real()

    monkeypatch.setattr(quorum.log, "sync", sync)
    await asyncio.gather(write(quorum, topic("a", 1)), write(quorum, topic("b", 2)))
    assert tries[0] >= 3
    assert not failures
    await quorum.close()
    again, _ = await started(node, config)
    assert [each.name for each in again.image.topics] == ["a", "b"]
    await again.close()


async def test_a_folder_that_cannot_be_synced_for_now_is_synced_later(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    disk, log = quorum.log.disk, quorum.log.log
    real, asked = type(disk).sync_directory, list[str]()

    def sync_directory(its: Any, path: str) -> None:
        asked.append(path)
        if len(asked) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        real(its, path)

    await write(quorum, topic("a", 1))
    log.writer.roll()
    monkeypatch.setattr(type(disk), "sync_directory", sync_directory)
    await write(quorum, topic("b", 2))
    assert asked.count(log.directory) == 2
    await quorum.close()


async def test_a_disk_that_fails_at_the_close_leaves_nothing_held(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's stop goes on after it, and the next start has what was committed."""
    config = config_of(tmp_path / "data")
    quorum, _ = await started(node, config)
    await write(quorum, topic("a", 1))
    disk = quorum.log.disk
    real, refused = type(disk).write_file, list[str]()

    def write_file(its: Any, path: str, data: bytes) -> None:
        if path.endswith(".snapshot"):
            refused.append(path)
            raise OSError(errno.EIO, "Input/output error", path)
        real(its, path, data)

    monkeypatch.setattr(type(disk), "write_file", write_file)
    await quorum.close()
    assert refused
    again, _ = await started(node, config)
    assert [each.name for each in again.image.topics] == ["a"]
    await again.close()
