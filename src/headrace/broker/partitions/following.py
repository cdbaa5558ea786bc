"""Changes of a follower's log: appends of fetched records, cuts, and syncs.

Appends run on the event loop, as a leader's do, in pieces of a millisecond or two with other work between them: whether
a piece may still be appended is checked without a lock. Truncations and syncs, which wait for the disk, run on a
worker, and so do appends that no client waits for, because a file system blocks a thread that writes much until the
disk has caught up. The role of a replica does not change while a worker uses its log.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.env.completion import Completion
from headrace.env.node import settle
from headrace.log.append_results import AppendResult
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.failing import Failures
    from headrace.broker.partitions.flusher import Flusher
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import LogSink, Node
    from headrace.log.log import Log
    from headrace.log.manager import LogManager
    from headrace.replicas.pieces import Piece

PIECE_BYTES: Final = 512 << 10
PIECE_BATCHES: Final = 128
"""Bounds on the bytes and batches appended without a pause."""


class Appended(Enum):
    """Result of appending a piece."""

    DONE = "done"
    BEGINS_EARLIER = "begins earlier"
    """The log is empty and begins within a batch: it has to begin with the batch."""
    REFUSED = "refused"
    """The disk is full, or the leader sent a piece that cannot be appended."""


def _begins_earlier(log: Log, piece: Piece) -> bool:
    return piece.first_offset < log.end_offset == log.log_start_offset < piece.next_offset


class Following:
    """Changes the logs of the replicas that follow."""

    def __init__(
        self,
        node: Node,
        logs: LogManager,
        flusher: Flusher,
        failures: Failures,
        metrics: Registry,
        log: LogSink,
        released: Callable[[Replica], None],
    ) -> None:
        """`released` is called with each replica whose role may change again."""
        self._node = node
        self._logs = logs
        self._flusher = flusher
        self._failures = failures
        self._log = log
        self._released = released
        self._bytes_in = metrics.counter("replicas.fetched_bytes")
        self._cuts = metrics.counter("replicas.truncations")

    def append(self, replica: Replica, piece: Piece) -> Appended:
        """Appends a piece to a follower's log. A disk failure takes the replica offline."""
        if _begins_earlier(replica.log, piece):
            return Appended.BEGINS_EARLIER
        result: AppendResult | Exception
        log = replica.log
        try:
            result = self._write(log, piece)
        except Exception as error:
            result = error
        return self._written(replica, log, piece, result)

    async def append_aside(self, replica: Replica, piece: Piece) -> Appended:
        """Appends a piece on a worker, so that a slow disk does not block the loop."""
        log = replica.log
        if _begins_earlier(log, piece):
            return Appended.BEGINS_EARLIER
        result: AppendResult | Exception

        def write() -> AppendResult:
            with log.lock:  # so that no other thread rolls the log
                return self._write(log, piece)

        assert not replica.is_held, "one worker at a time has the log"
        replica.is_written_aside = True
        try:
            result = await self._node.workers.run(write)
        except Exception as error:
            result = error
        finally:
            replica.is_written_aside = False
        appended = self._written(replica, log, piece, result) if replica.is_online else Appended.REFUSED
        self._released(replica)
        return appended

    def _write(self, log: Log, piece: Piece) -> AppendResult:
        return log.writer.append(piece.data, leader_epoch=-1, now_ms=self._node.clock.now_ms(), origin="replica")

    def _written(self, replica: Replica, log: Log, piece: Piece, result: AppendResult | Exception) -> Appended:
        """Handles the result of an append."""
        if isinstance(result, Exception):
            self._failures.failed(replica, result, "a follower's append", log)
            return Appended.REFUSED
        if result.error:
            self._refused(replica, result)
            return Appended.REFUSED
        self._bytes_in.value += len(piece.data)
        self._flusher.appended(replica, len(piece.data))
        return Appended.DONE

    def _refused(self, replica: Replica, result: AppendResult) -> None:
        if result.error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._log.debug("follower's disk is full", partition=replica.log.name, why=result.error_message)
        else:
            self.unusable(replica, result.error_message or result.error.name)

    def unusable(self, replica: Replica, why: object) -> None:
        """Logs that the leader sent a piece that cannot be appended; it will be fetched again."""
        self._log.error("what the leader sent cannot be appended", partition=replica.log.name, why=why)

    async def disk_keeps_up(self, *, is_waited_for: bool) -> None:
        """Waits until the disk is not too far behind for an append; usually returns at once. Appends that a client
        waits for (`is_waited_for`) wait less than others."""
        flusher = self._flusher
        while flusher.behind if is_waited_for else flusher.pressed:
            done = self._node.future()
            when = flusher.when_caught_up if is_waited_for else flusher.when_relieved
            when(partial(settle, done))
            await done

    async def cut(self, replica: Replica, offset: int) -> bool:
        """Cuts a log at an offset, with the epochs that begin at or after it; returns False if the disk fails."""
        log = replica.log
        if offset < log.end_offset:
            self._cuts.value += 1
            committed = replica.high_watermark
            say = self._log.warning if offset < committed else self._log.info
            say("log is cut to its leader's", partition=log.name, at=offset, end=log.end_offset, committed=committed)
        return await self._work(replica, lambda: self._logs.truncate(log, offset))

    async def start_at(self, replica: Replica, offset: int) -> bool:
        """Drops a whole log, which continues at another offset; returns False if the disk fails."""
        log = replica.log
        self._cuts.value += 1
        self._log.info("log begins elsewhere, as its leader's", partition=log.name, offset=offset, end=log.end_offset)
        return await self._work(replica, lambda: self._logs.start_at(log, offset))

    async def _work(self, replica: Replica, work: Callable[[], None]) -> bool:
        replica.is_being_cut = True
        failure: Exception | None = None
        try:
            await self._node.workers.run(work)
        except Exception as error:
            failure = error
        finally:
            replica.is_being_cut = False
        if replica.is_online:
            replica.was_cut()
        if failure is not None:
            self._failures.failed(replica, failure)
        self._released(replica)
        return failure is None

    async def sync(self, replicas: list[Replica]) -> list[bool]:
        """Waits until the logs are synced to their current ends; returns for each whether it is."""
        waiting = []
        for replica in replicas:
            synced: Completion[ErrorCode] = Completion(self._node.completions)
            end_offset = replica.log.end_offset
            if replica.is_synced(end_offset):
                synced.complete(ErrorCode.NONE)
            else:
                replica.wait_for_sync(end_offset, synced)
                self._flusher.request(replica)
            waiting.append(synced)
        return [await synced is ErrorCode.NONE for synced in waiting]
