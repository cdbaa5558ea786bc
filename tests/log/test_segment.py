"""One segment: its indexes under several threads, and what it does not do on the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log.conftest import read_at

from headrace.config.topic import TopicConfig
from headrace.env.posix import PosixDisk, PosixFile
from headrace.log import segment as segment_module
from headrace.log.log import Log
from headrace.log.offset_index import TimeIndex
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.log.scan import Scan

NOW_MS = 1_700_000_000_000
SMALL = {"segment_bytes": 2000, "index_interval_bytes": 100}


class Watched(PosixDisk):
    """A disk that tells of each call before it is made."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] | None = None

    def _note(self, what: str, path: str) -> None:
        self.calls.append((what, path))
        if self.before is not None:
            self.before(what, path)

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        self._note("open", path)
        return super().open(path, create=create)

    def size(self, path: str) -> int:
        self._note("size", path)
        return super().size(path)

    def read_file(self, path: str) -> bytes:
        self._note("read_file", path)
        return super().read_file(path)


@pytest.fixture
def reopened(
    open_at: Callable[..., Log], append: Any, tmp_path: Path, defaults: TopicConfig
) -> Callable[[], tuple[Log, Watched]]:
    """A log of several segments after a clean stop, on a disk that is watched."""

    def reopen() -> tuple[Log, Watched]:
        log = open_at(SMALL)
        for number in range(100):
            append(log, b"x" * 50, timestamp=NOW_MS + number)
        log.close()
        disk = Watched()
        resources = Resources(disk, threading.RLock)
        again = open_log(resources, str(tmp_path / "t-0"), ("t", 0), log.config, clean=True, now_ms=NOW_MS)
        assert len(again.segments) > 4
        return again, disk

    return reopen


def read(log: Log, offset: int, *, wait: bool) -> int:
    return read_at(log, offset, max_bytes=1, wait=wait).size


def test_who_does_not_wait_opens_no_file_and_reads_no_index(reopened: Callable[[], tuple[Log, Watched]]) -> None:
    log, disk = reopened()
    cold = log.segments[1]
    offset = cold.base_offset + 7
    disk.calls.clear()
    with pytest.raises(BlockingIOError):
        read(log, offset, wait=False)
    with pytest.raises(BlockingIOError):
        read(log, cold.base_offset, wait=False)
    assert disk.calls == []
    size = read(log, offset, wait=True)
    disk.calls.clear()
    assert read(log, offset, wait=False) == size
    assert disk.calls == []
    cold.index.forget()  # as when the cache is full
    with pytest.raises(BlockingIOError):
        read(log, offset - 3, wait=False)
    assert disk.calls == []


def test_a_reader_in_sequence_needs_no_index(reopened: Callable[[], tuple[Log, Watched]]) -> None:
    log, disk = reopened()
    cold = log.segments[1]
    assert read(log, cold.base_offset, wait=True)
    disk.calls.clear()
    for offset in range(cold.base_offset + 1, cold.base_offset + 5):
        assert read(log, offset, wait=False)
    assert disk.calls == []


@pytest.mark.parametrize("kind", ["index", "time_index", "max_timestamp"])
def test_two_threads_that_make_an_index_have_the_same(reopened: Callable[[], tuple[Log, Watched]], kind: str) -> None:
    log, disk = reopened()
    segment = log.segments[1]
    others: list[object] = []

    def another_comes_first(what: str, path: str) -> None:
        disk.before = None
        others.append(getattr(segment, kind))
        if kind == "max_timestamp":
            segment.note_batch(segment.size, segment.base_offset + 30, 100, NOW_MS + 5000, 100)

    disk.before = another_comes_first
    made = getattr(segment, kind)
    assert len(others) == 1
    if kind == "max_timestamp":
        assert made == NOW_MS + 5000
    else:
        assert made is others[0] and made is getattr(segment, kind)


def test_an_index_made_while_its_segment_is_renamed_knows_the_new_name(
    reopened: Callable[[], tuple[Log, Watched]],
) -> None:
    log, disk = reopened()
    segment = log.segments[1]

    def rename(what: str, path: str) -> None:
        if path.endswith("timeindex"):
            disk.before = None
            segment.rename(".deleted")

    disk.before = rename
    assert segment.index.path.endswith(".index") and segment.time_index.path.endswith(".timeindex.deleted")
    assert segment.index.path.endswith(".index.deleted")


def test_damaged_indexes_are_in_use_as_they_were_until_they_are_built_anew(
    reopened: Callable[[], tuple[Log, Watched]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = reopened()
    segment = log.segments[1]
    newest = segment.max_timestamp
    seen: list[int] = []
    Path(segment.paths()[1]).write_bytes(b"\x7f" * 16)
    segment._index = None  # as where it was not read yet

    def scan(*arguments: Any, **keywords: Any) -> Scan:
        seen.append(segment.max_timestamp)
        return Scan(*arguments, **keywords)

    monkeypatch.setattr(segment_module, "Scan", scan)
    assert segment.index.last < 1 << 62
    assert seen == [newest] and segment.max_timestamp == newest
    times: TimeIndex = segment.time_index
    assert times.last_timestamp == newest


def test_nobody_who_appends_waits_for_the_sync_of_an_index(
    open_at: Callable[..., Log], append: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_at(SMALL)
    for number in range(100):
        append(log, b"x" * 50, timestamp=NOW_MS + number)
    cold, active = log.segments[0], log.active
    sync = PosixFile.sync
    waiting: list[bool] = []

    def slow(file: PosixFile) -> None:
        if file.path.endswith("index"):
            thread = threading.Thread(target=active.write_out_indexes, daemon=True)
            thread.start()
            thread.join(5)
            waiting.append(thread.is_alive())
        sync(file)

    monkeypatch.setattr(PosixFile, "sync", slow)
    cold.sync_indexes()
    assert waiting == [False, False]


def test_a_cut_segment_knows_its_largest_timestamp(open_at: Callable[..., Log], append: Any) -> None:
    log = open_at({})
    for number in range(20):
        append(log, b"x" * 50, timestamp=NOW_MS + number)
    log.truncate_to(13)
    assert (log.active.max_timestamp, log.active.max_timestamp_offset) == (NOW_MS + 12, 12)
    found = log.reader.offset_for_timestamp(NOW_MS + 11)
    assert found is not None and found.offset == 11


def test_a_place_that_a_reader_found_before_a_cut_is_not_used_after_it(
    open_at: Callable[..., Log], make_batch: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker looks a batch up while its partition gets another leader: the log is cut, and has other batches then."""
    log = open_at({})
    sent = [make_batch(b"x" * size) for size in (50, 60, 90, 70)]
    for batch in sent[:2]:
        assert not log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS).error
    read = PosixFile.read

    def overtaken(file: PosixFile, at: int, size: int) -> bytes:
        data = read(file, at, size)
        monkeypatch.undo()
        log.truncate_to(1)
        for batch in sent[2:]:
            assert not log.writer.append(batch, leader_epoch=1, now_ms=NOW_MS).error
        return data

    monkeypatch.setattr(PosixFile, "read", overtaken)
    assert log.active.find(1) is not None
    assert log.active.find(2) == (len(sent[0]) + len(sent[2]), len(sent[3]))
