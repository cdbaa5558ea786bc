"""A move, or a deletion, in the middle of which workers flush, checkpoint, look for what is old, index and read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from log.clocks import HandClock
from log.conftest import read_at
from log.managers import NOW_MS, TOPIC_ID, fill, make, settings_of

from headrace.env import Lock
from headrace.env.posix import PosixDisk, PosixEnvironment
from headrace.log import retention
from headrace.log.log import Log
from headrace.log.manager import LogManager
from headrace.log.moves import abandon_move, begin_move, copy_piece, finish_move, next_piece
from headrace.wire.batch import iter_headers

BLOCKED_S = 0.03
"""A worker that has not ended by then waits for a lock that the event loop has."""
KEY = ("t", 0)


class SteppedDisk(PosixDisk):
    """Has somebody do something before and after each change of a name, and each sync of a folder."""

    def __init__(self) -> None:
        self.between: Callable[[], None] = lambda: None

    def rename(self, old: str, new: str) -> None:
        self.between()
        super().rename(old, new)
        self.between()

    def sync_directory(self, path: str) -> None:
        self.between()
        super().sync_directory(path)
        self.between()


def _read_all(_: LogManager, log: Log) -> None:
    offset = log.log_start_offset
    while offset < log.end_offset:
        found = read_at(log, offset, max_bytes=1)
        assert found.slice is not None
        for _at, header in iter_headers(found.slice.read()):
            offset = header.next_offset
    log.reader.offset_for_timestamp(NOW_MS)
    log.reader.max_timestamp_offset()


def _index(_: LogManager, log: Log) -> None:
    for segment in log.segments:
        segment.rebuild_indexes()
        segment.complete_files()


def _flush(manager: LogManager, log: Log) -> None:
    log.flushing.cut(0)  # as after an append
    log.flushing.new_name()
    log.epochs.dirty = True
    manager.guarded([log], Log.flush)
    manager.guarded([log], lambda log: log.flushing.sync_names())
    manager.guarded([log], lambda log: log.flushing.write_epochs())


def _checkpoint(manager: LogManager, log: Log) -> None:
    for segment in log.segments:
        segment.index_dirty = True
    manager.directory_of(log).recovery_points.clear()
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_log_starts()
    manager.checkpoints.write_high_watermarks()


def _look_for_old(manager: LogManager, log: Log) -> None:
    for segment in log.segments:
        segment.newest_timestamp = -1  # of a log whose records have no times: the file's counts
    manager.guarded([log], lambda log: retention.expired(log.state, NOW_MS))


WORK = (_flush, _checkpoint, _look_for_old, _index, _read_all)


class Workers:
    """Threads that do one thing each time that they are asked; what they raise is kept."""

    def __init__(self, work: Callable[[LogManager, Log], None], manager: LogManager, log: Log) -> None:
        self.raised: list[BaseException] = []
        self.times = 0
        self._work = work
        self._manager = manager
        self._log = log
        self._threads: list[threading.Thread] = []

    def step(self) -> None:
        if threading.current_thread() in self._threads:
            return  # it changes names itself

        def run() -> None:
            try:
                self._work(self._manager, self._log)
            except BaseException as error:
                self.raised.append(error)

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        self.times += 1
        thread.start()
        thread.join(BLOCKED_S)

    def end(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@contextmanager
def beside(work: Callable[[LogManager, Log], None], manager: LogManager, log: Log) -> Iterator[Workers]:
    disk = manager.env.disk
    assert isinstance(disk, SteppedDisk)
    workers = Workers(work, manager, log)
    disk.between = workers.step
    try:
        yield workers
    finally:
        disk.between = lambda: None
        workers.end()


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    env = PosixEnvironment(SteppedDisk())
    env.clock = HandClock(NOW_MS)
    manager = make(tmp_path / "a", tmp_path / "b", env=env)
    config = replace(settings_of(manager), segment_bytes=1024)
    log = manager.get_or_create(*KEY, TOPIC_ID, config, directory=str(tmp_path / "a"))
    fill(manager, log, 30)
    log.flush()
    return manager


def copied(manager: LogManager) -> Log:
    """A complete copy of the log."""
    current = manager.logs[KEY]
    target = next(path for path in manager.directories if path != manager.directory_of(current).path)
    future = begin_move(manager, KEY, target)
    while (piece := next_piece(current, future, 1 << 20)) is not None:
        copy_piece(piece, future, NOW_MS)
    return future


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__[1:])
def test_a_move_beside_a_worker(manager: LogManager, work: Callable[[LogManager, Log], None]) -> None:
    for _ in range(3):  # there and back, under a name that was that of the old log
        future = copied(manager)
        current = manager.logs[KEY]
        with beside(work, manager, current) as workers:
            assert finish_move(manager, KEY) is not None
        assert workers.times >= 6
        assert not workers.raised
        assert manager.logs[KEY] is future
        assert all(home.failure is None for home in manager.directories.values())
        names = {path.name for path in Path(future.directory).iterdir()}
        assert not {name for name in names if name.endswith((".rebuilt", ".tmp"))}
        _read_all(manager, future)
        fill(manager, future, 3)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__[1:])
def test_a_deletion_beside_a_worker(manager: LogManager, work: Callable[[LogManager, Log], None]) -> None:
    log = manager.logs[KEY]
    with beside(work, manager, log) as workers:
        manager.delete(*KEY)
    assert workers.times
    assert not workers.raised
    assert all(home.failure is None for home in manager.directories.values())
    assert not list(Path(log.directory).parent.glob("t-0"))


def test_a_move_waits_for_who_flushes(manager: LogManager) -> None:
    copied(manager)
    current = manager.logs[KEY]
    for lock in (current.flushing.guard, current.lock):
        holds, may_end = threading.Event(), threading.Event()

        def hold(lock: Lock = lock, holds: threading.Event = holds, ends: threading.Event = may_end) -> None:
            with lock:
                holds.set()
                ends.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        assert holds.wait(30)
        assert finish_move(manager, KEY) is None
        assert manager.logs[KEY] is current and Path(current.directory).name == "t-0"
        may_end.set()
        thread.join(30)
    assert finish_move(manager, KEY) is not None


def test_the_flush_queue_forgets_a_log_that_has_moved(manager: LogManager) -> None:
    current = manager.logs[KEY]
    manager.flushes.note(current.state)
    manager.flushes._flushed_s[current] = 0.0
    future = copied(manager)
    done = finish_move(manager, KEY)
    assert done is not None and done.log is future
    assert current.state not in manager.flushes._noted and current not in manager.flushes._flushed_s


def test_a_copy_whose_folder_was_taken_away_is_abandoned(manager: LogManager) -> None:
    future = copied(manager)
    Path(future.directory).rename(Path(future.directory).with_name("aside"))
    abandon_move(manager, KEY)
    assert not manager.future_logs
    assert all(not home.found_future for home in manager.directories.values())
