"""Moves of replicas between this broker's log directories, in the background, one piece at a time."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.replica import Replica
from headrace.log.moves import abandon_move, begin_move, copy_piece, finish_move, next_piece
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.log.log import Log

log = logging.getLogger("headrace.broker")

PIECE_BYTES: Final = 4 * 1024 * 1024
"""What is copied at a time, on a worker thread."""
INLINE_BYTES: Final = 64 * 1024
"""What may be missing when the copy takes over: the rest is copied then, while nothing is appended."""
CLEANER_PATIENCE_S: Final = 0.2

Key = tuple[str, int]


class ReplicaMoves:
    """The moves under way, by partition."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def start(self, topic: str, index: int, directory: str) -> ErrorCode:
        """Begins to move a replica; answers at once. A move to where it lies calls off the one under way."""
        broker, key = self._broker, (topic, index)
        home = broker.logs.directories.get(directory)
        if home is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if home.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if broker.image.topics.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        replica = broker.replicas.find(topic, index)
        if not isinstance(replica, Replica):
            return replica if replica is ErrorCode.KAFKA_STORAGE_ERROR else ErrorCode.REPLICA_NOT_AVAILABLE
        under_way = broker.logs.future_logs.get(key)
        if under_way is not None:
            if broker.logs.directory_of(under_way) is home:
                return ErrorCode.NONE
            self._call_off(key)
        if broker.logs.directory_of(replica.log) is home:
            return ErrorCode.NONE
        try:
            begin_move(broker.logs, key, directory)
        except OSError as error:
            broker.replicas.directory_failed(directory, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._tasks[key] = asyncio.get_running_loop().create_task(self._move(key, replica, directory))
        return ErrorCode.NONE

    def _call_off(self, key: Key) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
        abandon_move(self._broker.logs, key)

    async def stop(self) -> None:
        """Calls off every move."""
        tasks = list(self._tasks.values())
        for key in list(self._tasks):
            self._call_off(key)
        if tasks:
            await asyncio.wait(tasks)

    async def _move(self, key: Key, replica: Replica, directory: str) -> None:
        broker = self._broker
        future = broker.logs.future_logs[key]
        try:
            while broker.logs.future_logs.get(key) is future and replica.error is ErrorCode.NONE:
                piece = next_piece(replica.log, future, PIECE_BYTES)
                if piece is not None and piece.size > INLINE_BYTES:
                    await broker.workers.run(partial(copy_piece, piece, future, broker.env.clock.now_ms()))
                    continue
                await broker.workers.run(future.flush)
                if broker.logs.is_cleaning:
                    await asyncio.sleep(CLEANER_PATIENCE_S)
                elif self._take_over(key, replica, future):
                    return
        except OSError as error:
            log.error("the move of %s-%d to %s failed: %s", *key, directory, error)
            abandon_move(broker.logs, key)
            broker.replicas.directory_failed(directory, error)
        finally:
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]

    def _take_over(self, key: Key, replica: Replica, future: Log) -> bool:
        """Copies what is still missing, if it is little, and lets the copy take the place of its log."""
        logs = self._broker.logs
        if logs.future_logs.get(key) is not future or replica.error is not ErrorCode.NONE:
            return False
        piece = next_piece(replica.log, future, PIECE_BYTES)
        if piece is not None:
            if piece.size > INLINE_BYTES:
                return False
            copy_piece(piece, future, self._broker.env.clock.now_ms())
        if future.end_offset != replica.log.end_offset:
            return False
        replica.log = finish_move(logs, key)
        replica.touch()
        self._broker.assignments.note(replica.log)
        return True
