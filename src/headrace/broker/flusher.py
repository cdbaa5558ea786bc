"""Syncs logs on worker threads, one sync at a time for each log: what is appended meanwhile shares the next one.

This is the group commit of `acks.flush=before-reply`, and what `flush.messages` and `flush.ms` ask for.

It also keeps what was written from running away from the disk: a system that has too much to write out makes the next
writer wait for it, and that would be the event loop. So the logs with most of it are synced before that, and when the
disk is slower than the producers still, these are not read from (`behind`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.env.disk import is_full
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.metrics import Counter
    from headrace.broker.replica import Replica
    from headrace.env.workers import Workers
    from headrace.log.log import Log

EARLY_SHARE: Final = 0.75
"""The share of what may be unsynced from which on logs are synced though nobody asked for it."""


class Flusher:
    """Everything that is to be synced, and is being synced."""

    def __init__(
        self, workers: Workers, count: Counter, failed: Callable[[Replica, OSError], None], unsynced_bytes_max: int
    ) -> None:
        """`unsynced_bytes_max` is what may be written and not synced, over all logs, before producers have to wait."""
        self.unsynced_bytes = 0
        self.behind = False
        """Whether producers have to wait for the disk."""
        self._unsynced: dict[Replica, int] = {}
        self._unsynced_max = unsynced_bytes_max
        self._early = int(EARLY_SHARE * unsynced_bytes_max)
        self._syncing: dict[Replica, int] = {}
        self._caught_up: list[Callable[[], None]] = []
        self._workers = workers
        self._count = count
        self._failed = failed
        self._again: set[Replica] = set()

    def appended(self, replica: Replica, byte_count: int) -> None:
        """Takes note of what was written to a log."""
        self._unsynced[replica] = self._unsynced.get(replica, 0) + byte_count
        self.unsynced_bytes += byte_count
        if self.unsynced_bytes > self._early:
            self._hurry()

    def _hurry(self) -> None:
        self.behind = self.unsynced_bytes > self._unsynced_max
        if not self._syncing and self._unsynced:
            self.request(max(self._unsynced, key=self._unsynced.__getitem__))

    def forget(self, replica: Replica) -> None:
        """A log is gone, and what was written to it need not reach the disk."""
        self._settle(self._unsynced.pop(replica, 0))

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Calls back when producers need not wait any more; to be asked while `behind`."""
        assert self.behind
        self._caught_up.append(callback)

    def _settle(self, byte_count: int) -> None:
        self.unsynced_bytes -= byte_count
        if self.behind and self.unsynced_bytes <= self._unsynced_max:
            self.behind = False
            waiting, self._caught_up = self._caught_up, []
            for callback in waiting:
                callback()

    def request(self, replica: Replica) -> None:
        """Has everything that is in the replica's log now synced soon."""
        if replica.flushing:
            self._again.add(replica)
            return
        replica.flushing = True
        self._syncing[replica] = self._unsynced.pop(replica, 0)
        self._count.value += 1
        log = replica.log
        end_offset = log.end_offset
        self._workers.submit(
            lambda: log.flush(end_offset), lambda reached, error: self._done(replica, log, reached, error)
        )

    def _done(self, replica: Replica, log: Log, reached: int | None, error: BaseException | None) -> None:
        replica.flushing = False
        self._settle(self._syncing.pop(replica))
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
        elif self.unsynced_bytes > self._early:
            self._hurry()

    @staticmethod
    def _refuse_waiting(replica: Replica, error: ErrorCode) -> None:
        for callback in replica.offset_waiters.take_all():
            callback(error)
