"""Changes the logs of followers: appends batches of the leader, truncates what the leader does not have, and syncs.

Appends are done on the event loop, like a leader's, in pieces that take a millisecond or two each, and others have
their turn between them: whether the piece may still be appended is looked at without a lock then. What waits for the
disk (a truncation, a sync) is done by a worker, and so is work that no client waits for: a file system makes a thread
that writes much to a file wait until the disk has taken what came before. The role of a replica does not change while a
worker has its log.
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
"""Bytes that are appended without a pause."""


class Appended(Enum):
    """The outcome of one piece."""

    DONE = "done"
    BEGINS_EARLIER = "begins earlier"
    """The log is empty and begins in the middle of a batch: it has to begin with the batch."""
    REFUSED = "refused"
    """Not now: the disk is full, or the leader sent what cannot be appended."""


def _begins_earlier(log: Log, piece: Piece) -> bool:
    return piece.first_offset < log.end_offset == log.log_start_offset < piece.next_offset


class Following:
    """See the module."""

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
        """Appends a piece to a follower's log. A disk that fails takes the replica offline."""
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
        """Appends on a worker: the loop goes on while the disk is slow."""
        log = replica.log
        if _begins_earlier(log, piece):
            return Appended.BEGINS_EARLIER
        result: AppendResult | Exception

        def write() -> AppendResult:
            with log.lock:  # the log rolls for nobody else meanwhile
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
        """Takes the result of an append."""
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
        """The leader sent what cannot be appended: it is asked again."""
        self._log.error("what the leader sent cannot be appended", partition=replica.log.name, why=why)

    async def disk_keeps_up(self, *, is_waited_for: bool) -> None:
        """Returns when the disk is not too far behind to append now: at once, nearly always. What somebody waits for
        (`is_waited_for`) goes on where the rest is held back."""
        flusher = self._flusher
        while flusher.behind if is_waited_for else flusher.pressed:
            done = self._node.future()
            when = flusher.when_caught_up if is_waited_for else flusher.when_relieved
            when(partial(settle, done))
            await done

    async def cut(self, replica: Replica, offset: int) -> bool:
        """Cuts a log at an offset, and drops the epochs that begin behind it; False where the disk does not take it."""
        log = replica.log
        if offset < log.end_offset:
            self._cuts.value += 1
            committed = replica.high_watermark
            say = self._log.warning if offset < committed else self._log.info
            say("log is cut to its leader's", partition=log.name, at=offset, end=log.end_offset, committed=committed)
        return await self._work(replica, lambda: self._logs.truncate(log, offset))

    async def start_at(self, replica: Replica, offset: int) -> bool:
        """Drops a whole log, which goes on at another offset; False where the disk does not take it."""
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
        """Returns when the logs are on disk, all that is in them now; whether each is."""
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
