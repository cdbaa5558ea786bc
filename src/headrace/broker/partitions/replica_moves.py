"""Moves replicas between this broker's log directories, in the background, one piece at a time.

A move that is interrupted by a stop or a crash continues at the next start.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.partitions.replica import Replica
from headrace.env.disk import is_passing
from headrace.log.filenames import directory_name
from headrace.log.moves import (
    SourceFailed,
    abandon_move,
    begin_move,
    common_end,
    copy_piece,
    finish_move,
    home_of_copy,
    next_piece,
    open_copy,
)
from headrace.log.recovery import LogDamaged
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.partitions.failing import Failures
    from headrace.broker.partitions.flusher import Flusher
    from headrace.broker.partitions.throttles import RateLimit
    from headrace.env import Node
    from headrace.log.directory import LogDirectory
    from headrace.log.log import Log
    from headrace.log.manager import LogManager

PIECE_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a worker copies at a time."""
INLINE_BYTES: Final = 64 * 1024
"""Largest missing part at which the copy takes over: the rest is copied on the loop, so that nothing is appended
meanwhile."""
CLEANER_PATIENCE_S: Final = 0.2
RATE_PATIENCE_S: Final = 0.5
"""Longest pause of a throttled move before it checks its rate again, which may have changed."""
FLUSH_PATIENCE_S: Final = 0.005
"""Pause of a complete move while its log is synced: the next sync is of the copy."""
CUT_PATIENCE_S: Final = 0.05
"""Pause of a move while a worker uses a follower's log."""

Key = tuple[str, int]


class ReplicaMoves:
    """The moves in progress, by partition."""

    def __init__(
        self,
        node: Node,
        logs: LogManager,
        find: Callable[[str, int], Replica | ErrorCode],
        failures: Failures,
        flusher: Flusher,
        moved: Callable[[Replica, Log], None],
        limit: RateLimit,
    ) -> None:
        """`find` returns a held replica or an error; `moved` is called with a replica and its new log; `limit` bounds
        the rate."""
        self._node = node
        self._logs = logs
        self._find = find
        self._failures = failures
        self._flusher = flusher
        self._moved = moved
        self._limit = limit
        self._log = node.logger("partitions")
        self._owner = node.owner("replica moves")
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        """Tasks of the moves in progress."""
        self._stopping = False

    def start(self, topic: str, index: int, directory: str) -> ErrorCode:
        """Begins to move a replica; returns at once. A move to the current directory cancels one in progress."""
        logs, key = self._logs, (topic, index)
        home = logs.directories.get(directory)
        if home is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if home.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        replica = self._find(topic, index)
        if not isinstance(replica, Replica):
            known = replica in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR)
            return replica if known else ErrorCode.REPLICA_NOT_AVAILABLE
        under_way = home_of_copy(logs, key)
        if under_way is home:
            self.resume(replica)
            return ErrorCode.NONE
        if under_way is not None and not self._call_off(key, under_way):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if logs.directory_of(replica.log) is home:
            return ErrorCode.NONE
        try:
            begin_move(logs, key, directory)
        except OSError as error:
            if is_passing(error):
                self._log.error("move cannot begin", partition=directory_name(*key), directory=directory, why=error)
                self._abandon(key, home)
            else:
                self._failures.directory_failed(directory, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._go_on(key, replica, home)
        return ErrorCode.NONE

    def resume(self, replica: Replica) -> None:
        """Continues a move that an earlier run of the broker left unfinished, if there is one."""
        key = (replica.topic, replica.index)
        home = home_of_copy(self._logs, key)
        if home is not None and key not in self._tasks and not self._stopping:
            self._go_on(key, replica, home)

    def _go_on(self, key: Key, replica: Replica, home: LogDirectory) -> None:
        move = self._move(key, replica, home, home.found_future[key])
        self._tasks[key] = self._owner.spawn(move)

    def _call_off(self, key: Key, home: LogDirectory) -> bool:
        """Cancels a move; returns False if the disk under its copy fails."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
        return self._abandon(key, home)

    def _abandon(self, key: Key, home: LogDirectory) -> bool:
        try:
            abandon_move(self._logs, key)
        except OSError as error:
            if not is_passing(error):
                self._failures.directory_failed(home.path, error)
            return False
        return True

    async def stop(self) -> None:
        """Ends every move after its current piece; the next start continues it."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _move(self, key: Key, replica: Replica, home: LogDirectory, path: str) -> None:
        logs, node = self._logs, self._node
        cuts, current = replica.cuts, replica.log
        try:
            future = logs.future_logs.get(key) or await self._open_copy(key, replica, path)
            while (
                future is not None and logs.future_logs.get(key) is future and replica.is_online and not self._stopping
            ):
                if replica.is_held:
                    await asyncio.sleep(CUT_PATIENCE_S)
                    continue
                if replica.cuts != cuts:
                    cuts = replica.cuts
                    await node.workers.run(partial(future.truncate_to, common_end(replica.log, future)))
                    continue
                piece = next_piece(replica.log, future, PIECE_BYTES)
                if piece is not None and piece.size > INLINE_BYTES:
                    if wait_s := self._limit.wait_s:
                        await asyncio.sleep(min(wait_s, RATE_PATIENCE_S))
                        continue
                    self._limit.passed(piece.size)
                    await node.workers.run(partial(copy_piece, piece, future, node.clock.now_ms()))
                    continue
                await node.workers.run(future.flush)
                if logs.is_cleaning:
                    await asyncio.sleep(CLEANER_PATIENCE_S)
                elif replica.flushing:
                    self._flusher.hold_back(replica)
                    await asyncio.sleep(FLUSH_PATIENCE_S)
                elif replica.cuts == cuts and self._take_over(key, replica, future):
                    return
                else:
                    await asyncio.sleep(FLUSH_PATIENCE_S)
        except SourceFailed as failed:
            if logs.get(*key) is current and replica.log is current:
                self._say_failed(key, current.directory, failed.cause)
                self._failures.storage_failed(replica, failed.cause)
                self._abandon(key, home)
        except OSError as error:
            if home.found_future.get(key) != path and key not in logs.future_logs:
                return  # its topic was deleted meanwhile, with the files
            self._say_failed(key, home.path, error)
            if is_passing(error) or isinstance(error, FileNotFoundError):
                self._abandon(key, home)
            else:
                self._failures.directory_failed(home.path, error)
            if isinstance(error, FileNotFoundError):
                self._failures.suspect(home.path)
        finally:
            self._flusher.go_on(replica)
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]

    def _say_failed(self, key: Key, where: str, error: OSError) -> None:
        self._log.error("move failed", partition=directory_name(*key), directory=where, why=error)

    async def _open_copy(self, key: Key, replica: Replica, path: str) -> Log | None:
        """Opens the copy made before the start, and cuts it to the part it shares with the log; returns None if it is
        useless."""
        logs, current = self._logs, replica.log
        future: Log | None = None
        with suppress(LogDamaged):
            future = await self._node.workers.run(partial(open_copy, logs, current, path))
        home = home_of_copy(logs, key)
        if home is None or home.found_future[key] != path or logs.get(*key) is not current:
            return None
        if future is None or future.topic_id != current.topic_id or logs.directory_of(current) is home:
            event = "folder is no copy of the log, and is removed"
            self._log.warning(event, partition=directory_name(*key), folder=path)
            abandon_move(logs, key)
            return None
        offset = future.end_offset
        self._log.info("move goes on", partition=directory_name(*key), directory=home.path, offset=offset)
        logs.future_logs[key] = future
        await self._node.workers.run(partial(future.truncate_to, common_end(current, future)))
        return future

    def _take_over(self, key: Key, replica: Replica, future: Log) -> bool:
        """Copies the missing rest, if it is small, and replaces the log by the copy; returns whether it did."""
        logs, current = self._logs, replica.log
        if logs.future_logs.get(key) is not future or not replica.is_online or replica.is_held:
            return False
        piece = next_piece(current, future, PIECE_BYTES)
        if piece is not None:
            if piece.size > INLINE_BYTES:
                return False
            copy_piece(piece, future, self._node.clock.now_ms())
        if future.end_offset != current.end_offset:
            return False
        done = finish_move(logs, key)
        if done is None:
            return False
        left = logs.directory_of(current)
        self._moved(replica, done.log)
        if done.error is not None and not is_passing(done.error):
            self._failures.directory_failed(left.path, done.error)
        return True
