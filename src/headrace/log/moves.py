"""Moving a partition's log to another directory of the same broker (KIP-113): a copy, which then takes its place.

The copy lies in a `-future` folder and is filled by its owner, step by step; the log itself goes on meanwhile. A copy
that a crash left behind is removed at the next start: the log that it was made from is whole.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.log.checkpoints import TopicPartition, encode_partition_metadata
from headrace.log.filenames import PARTITION_METADATA, delete_directory_name, directory_name, future_directory_name
from headrace.log.log import Log
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
    future.is_future = True
    manager.future_logs[key] = future
    return future


def _first_offset(log: Log) -> int:
    """Where the batch begins that holds the log start offset: batches are copied whole."""
    result = log.read(log.log_start_offset, max_bytes=BATCH_OVERHEAD, max_offset=log.end_offset)
    if result.slice is None:
        return log.log_start_offset
    return read_header(result.slice.file.read(result.slice.position, BATCH_OVERHEAD)).base_offset


def next_piece(current: Log, future: Log, max_bytes: int) -> FileSlice | None:
    """What the copy lacks next; None where it has everything. On the thread that appends to the log."""
    if future.end_offset < current.log_start_offset:
        # What was to be copied next has been deleted meanwhile.
        future.truncate_fully_and_start_at(_first_offset(current))
    return current.read(future.end_offset, max_bytes=max_bytes, max_offset=current.end_offset).slice


def copy_piece(piece: FileSlice, future: Log, now_ms: int) -> None:
    """Appends a piece to the copy. For worker threads. Raises OSError."""
    data = piece.file.read(piece.position, piece.size)
    end = 0
    with suppress(CorruptBatch):  # a read may end in the middle of a batch; the append checks the whole ones
        for at, header in iter_headers(data):
            end = at + header.size
    if not end:
        raise OSError(errno.EIO, f"no batch can be read at byte {piece.position} of a log that is moved")
    result = future.append(memoryview(data)[:end], leader_epoch=-1, now_ms=now_ms, origin="replica")
    if result.error is ErrorCode.KAFKA_STORAGE_ERROR:
        raise OSError(result.error_message)
    assert not result.error, f"a copy refused what its log took: {result.error_message}"


def finish_move(manager: LogManager, key: TopicPartition) -> Log:
    """Puts a complete copy in the place of its log, and returns it; the old folder goes. Raises OSError.

    First the copy gets its final name, then the log loses it: a crash in between leaves two whole logs, never none.
    """
    current, future = manager.logs[key], manager.future_logs[key]
    assert future.end_offset == current.end_offset, "the copy is complete"
    old_home, new_home = manager.directory_of(current), manager.directory_of(future)
    disk = manager.env.disk
    future.flush()
    future.delete_records_before(current.log_start_offset)
    final = f"{new_home.path}/{directory_name(*key)}"
    disk.rename(future.directory, final)
    future.moved(final)
    disk.sync_directory(new_home.path)
    doomed = f"{old_home.path}/{delete_directory_name(*key, manager.env.entropy.uuid())}"
    for segment in current.segments:
        segment.release()
    disk.rename(current.directory, doomed)
    disk.sync_directory(old_home.path)
    del manager.future_logs[key]
    future.is_future = False
    manager.adopt(future, old_home, new_home)
    manager.doom_tree(doomed, manager.env.clock.now_ms() + current.config.file_delete_delay_ms)
    return future


def abandon_move(manager: LogManager, key: TopicPartition) -> None:
    """Gives a copy up. Raises OSError."""
    future = manager.future_logs.pop(key, None)
    if future is None:
        return
    for segment in future.segments:
        segment.release()
    manager.doom_tree(future.directory, 0)
