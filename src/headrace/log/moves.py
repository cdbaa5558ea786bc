"""Moves a partition's log to another directory of the same broker (KIP-113): a copy replaces it.

The copy is in a `-future` folder and is filled by its owner, step by step; the log itself stays in use. A copy that a
stop or a crash left unfinished is opened again at the next start, truncated to the part that it shares with its log,
and continued.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from headrace.log.checkpoints import TopicPartition, encode_partition_metadata
from headrace.log.directory import LogDirectory
from headrace.log.filenames import PARTITION_METADATA, delete_directory_name, directory_name, future_directory_name
from headrace.log.log import Log
from headrace.log.read_results import Local
from headrace.log.recovery import open_log
from headrace.wire.batch import BATCH_OVERHEAD, CorruptBatch, iter_headers, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice

if TYPE_CHECKING:
    from headrace.log.manager import LogManager


def begin_move(manager: LogManager, key: TopicPartition, directory: str) -> Log:
    """Starts an empty copy of an open log in another directory. Raises OSError."""
    current = manager.logs[key]
    assert key not in manager.future_logs, "one move of a partition at a time"
    env = manager.env
    path = f"{directory}/{future_directory_name(*key, env.entropy.uuid())}"
    env.disk.make_dirs(path)
    manager.directories[directory].found_future[key] = path
    env.disk.write_file(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(current.topic_id))
    future = open_log(
        manager.resources,
        path,
        key,
        current.config,
        topic_id=current.topic_id,
        clean=True,
        log_start_offset=_first_offset(current),
        now_ms=env.clock.now_ms(),
        producers=manager.new_producers(),
    )
    future.becomes_copy()
    manager.future_logs[key] = future
    return future


def home_of_copy(manager: LogManager, key: TopicPartition) -> LogDirectory | None:
    """Returns the directory that a partition is being moved to, or was when the broker stopped; None if it is not
    moved."""
    return next((home for home in manager.online() if key in home.found_future), None)


def open_copy(manager: LogManager, current: Log, path: str) -> Log:
    """Opens the copy of an earlier run. For worker threads: after a crash all of it is read.

    Raises OSError, and LogDamaged if it cannot be trusted.
    """
    future = open_log(
        manager.resources,
        path,
        current.topic_partition,
        current.config,
        clean=manager.directories[path.rpartition("/")[0]].clean,
        now_ms=manager.env.clock.now_ms(),
        producers=manager.new_producers(),
    )
    future.becomes_copy()
    return future


def common_end(current: Log, future: Log) -> int:
    """Returns the offset up to which a copy equals its log, by the leader epochs, as for a follower (KIP-279).

    A crash may have taken the end of the log, which has grown again since, and left the copy of that end. It may have
    taken records out of the copy too, from `gap_offset` on.
    """
    epoch = future.epochs.latest
    while epoch >= 0:
        known, end_offset = current.end_offset_for_epoch(min(epoch, current.epochs.latest))
        if known < 0:
            break
        epoch, copied_end = future.end_offset_for_epoch(known)
        if epoch == known:
            end = min(end_offset, copied_end)
            return end if future.gap_offset < 0 else min(end, future.gap_offset)
    return 0


class SourceFailed(Exception):
    """Raised if the log cannot be read or renamed, rather than its copy."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def _from_source() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceFailed(error) from error


def _first_offset(log: Log) -> int:
    """Returns the base offset of the batch that holds the log start offset: batches are copied whole."""
    piece = _local(log, log.log_start_offset, BATCH_OVERHEAD)
    if piece is None:
        return log.log_start_offset
    return read_header(piece.file.read(piece.position, BATCH_OVERHEAD)).base_offset


def _local(log: Log, offset: int, max_bytes: int) -> FileSlice | None:
    found = log.reader.read(offset, max_bytes=max_bytes, max_offset=log.end_offset)
    return found.slice if isinstance(found, Local) else None


def next_piece(current: Log, future: Log, max_bytes: int) -> FileSlice | None:
    """Returns the next piece to copy, or None. On the thread that appends to the log. Raises OSError for the copy,
    SourceFailed for the log."""
    if future.end_offset < current.log_start_offset:
        # The next piece has been deleted meanwhile.
        with _from_source():
            first_offset = _first_offset(current)
        future.truncate_fully_and_start_at(first_offset)
    with _from_source():
        return _local(current, future.end_offset, max_bytes)


def copy_piece(piece: FileSlice, future: Log, now_ms: int) -> None:
    """Appends a piece to the copy. For worker threads. Raises OSError for the copy, SourceFailed for the log."""
    with _from_source():
        data = piece.file.read(piece.position, piece.size)
    end = 0
    with suppress(CorruptBatch):  # a read may end in the middle of a batch; the append checks the whole ones
        for at, header in iter_headers(data):
            end = at + header.size
    if not end:
        raise SourceFailed(OSError(errno.EIO, f"no readable batch at byte {piece.position} of a log on its move"))
    result = future.writer.append(memoryview(data)[:end], leader_epoch=-1, now_ms=now_ms, origin="replica")
    if result.error is ErrorCode.KAFKA_STORAGE_ERROR:
        raise OSError(errno.ENOSPC, result.error_message)
    assert not result.error, f"a copy refused what its log took: {result.error_message}"


class Moved(NamedTuple):
    """The new log of a partition, and why the old directory could not be synced, if so."""

    log: Log
    error: OSError | None


def finish_move(manager: LogManager, key: TopicPartition) -> Moved | None:
    """Replaces the log with its complete copy; the old folder is deleted. Returns None if a worker is flushing one of
    them, or renaming its files. On the event loop; waits for no worker.

    First the copy gets its final name, then the log loses it: a crash in between leaves two whole logs, never none.
    Raises OSError for the copy, SourceFailed for the log: the move is to be abandoned then.
    """
    current, future = manager.logs[key], manager.future_logs[key]
    with current.flushing.held_still() as is_still, future.flushing.held_still() as is_copy_still:
        if not (is_still and is_copy_still):
            return None
        assert future.end_offset == current.end_offset, "the copy is complete"
        old_home, new_home = manager.directory_of(current), manager.directory_of(future)
        for epoch, offset in current.epochs.entries()[-1:]:
            future.epochs.assign(epoch, offset)  # no record may have it yet; who appends need not wait for it again
        future.flush()
        future.delete_records_before(current.log_start_offset)
        future.rename_folder(f"{new_home.path}/{directory_name(*key)}")
        new_home.found_future[key] = future.directory
        manager.env.disk.sync_directory(new_home.path)
        with _from_source():
            _doom(manager, current, old_home)
        del new_home.found_future[key]
        del manager.future_logs[key]
        future.becomes_current()
        manager.adopt(future, old_home, new_home)
    try:
        old_home.sync_renames_of(key)
    except OSError as error:
        return Moved(future, error)
    return Moved(future, None)


def _doom(manager: LogManager, log: Log, home: LogDirectory) -> None:
    """Renames the old folder for deletion; workers that still use the log find its files under the new name."""
    log.release()
    log.rename_folder(f"{home.path}/{delete_directory_name(*log.topic_partition, manager.env.entropy.uuid())}")
    manager.removal.add_tree(log.directory, log.config.file_delete_delay_ms)


def abandon_move(manager: LogManager, key: TopicPartition) -> None:
    """Abandons a copy, so that no start continues it. Raises OSError."""
    future = manager.future_logs.pop(key, None)
    if future is not None:
        future.release()
    for home in manager.online():
        if key in home.found_future:
            _remove_copy(manager, home, key, future)


def remove_strange_copies(manager: LogManager, is_ours: Callable[[TopicPartition], bool]) -> None:
    """At start: removes copies of partitions that this broker does not have, and all but one of the same partition.

    Raises OSError.
    """
    known: set[TopicPartition] = set()
    for home in manager.online():
        for key in list(home.found_future):
            if key in known or not is_ours(key):
                _remove_copy(manager, home, key, None)
            known.add(key)


def _remove_copy(manager: LogManager, home: LogDirectory, key: TopicPartition, future: Log | None) -> None:
    path = home.found_future.pop(key)
    doomed = f"{home.path}/{delete_directory_name(*key, manager.env.entropy.uuid())}"
    with suppress(FileNotFoundError):  # somebody took it away already
        if future is not None and future.directory == path:
            with future.lock:
                future.rename_folder(doomed)
        else:
            manager.env.disk.rename(path, doomed)
        manager.removal.add_tree(doomed, 0)
