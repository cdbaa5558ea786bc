"""Syncs logs on worker threads, one sync at a time for each log: what is appended meanwhile shares the next one.

This is the group commit of `acks.flush=before-reply`, and what `flush.messages` and `flush.ms` ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.env.disk import is_full
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.metrics import Counter
    from headrace.broker.replica import Replica
    from headrace.env.workers import Workers
    from headrace.log.log import Log


class Flusher:
    """Everything that is to be synced, and is being synced."""

    def __init__(self, workers: Workers, count: Counter, failed: Callable[[Replica, OSError], None]) -> None:
        self._workers = workers
        self._count = count
        self._failed = failed
        self._again: set[Replica] = set()

    def request(self, replica: Replica) -> None:
        """Has everything that is in the replica's log now synced soon."""
        if replica.flushing:
            self._again.add(replica)
            return
        replica.flushing = True
        self._count.value += 1
        log = replica.log
        end_offset = log.end_offset
        self._workers.submit(
            lambda: log.flush(end_offset), lambda reached, error: self._done(replica, log, reached, error)
        )

    def _done(self, replica: Replica, log: Log, reached: int | None, error: BaseException | None) -> None:
        replica.flushing = False
        if error is not None:
            self._again.discard(replica)
            if not isinstance(error, OSError):
                self._refuse_waiting(replica, ErrorCode.UNKNOWN_SERVER_ERROR)
                raise error
            if log is not replica.log:
                self.request(replica)  # its files were taken away by a move: the copy has all of it
            elif is_full(error) and not replica.error:
                # Nobody can be told that it is safe; the next append tries again.
                self._refuse_waiting(replica, ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                self._failed(replica, error)
            return
        assert reached is not None
        if replica.flush_gated:
            replica.reached(min(reached, replica.log.end_offset), replica.log.active.size)
        if replica in self._again:
            self._again.discard(replica)
            self.request(replica)

    @staticmethod
    def _refuse_waiting(replica: Replica, error: ErrorCode) -> None:
        for callback in replica.offset_waiters.take_all():
            callback(error)
