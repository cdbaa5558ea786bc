"""Syncs logs on worker threads, one sync at a time for each log: appends made meanwhile share the next one.

This is the group commit of `acks.flush=before-reply`, and serves `flush.messages` and `flush.ms`.

It also limits unwritten data: an operating system with too much of it makes the next writer wait, and that would be the
event loop. So the logs with most of it are synced before that point, and replicas far behind their leader are held back
meanwhile (`pressed`). If producers still outpace the disk, they are not read from (`behind`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.env.disk import is_passing
from headrace.env.workers import Raised
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.broker.partitions.replica import Replica
    from headrace.broker.telemetry.metrics import Counter
    from headrace.env.workers import Workers
    from headrace.log.log import Log

LOOK_BYTES: Final = 16 << 20
"""Bytes appended between two checks of the system's write pressure."""
EARLY: Final = 0.8
LATE: Final = 0.95
"""Shares of the write pressure at which the system blocks writers. Above EARLY, logs are synced without a request and
replicas far behind wait; above LATE, producers wait."""


class Flusher:
    """The logs that are being synced, or are to be synced."""

    def __init__(
        self,
        workers: Workers,
        count: Counter,
        failed: Callable[[Replica, Exception], None],
        write_pressure: Callable[[], float],
    ) -> None:
        """`failed` is called with a replica whose log cannot be synced; `write_pressure` is `Disk.write_pressure`."""
        self.behind = False
        """Whether producers have to wait for the disk."""
        self._write_pressure = write_pressure
        self._unsynced: dict[Replica, int] = {}
        """Bytes appended to each log since its last sync began."""
        self._unlooked = 0
        self._syncing = 0
        """Number of syncs in progress."""
        self._pressure = 0.0
        """Write pressure at the last check."""
        self._caught_up: list[Callable[[], None]] = []
        self._relieved: list[Callable[[], None]] = []
        self._workers = workers
        self._count = count
        self._failed = failed
        self._again: set[Replica] = set()
        """Replicas to be synced again after the sync in progress, or after `go_on`."""
        self._held_back: set[Replica] = set()
        """Replicas whose logs are not synced before `go_on`."""

    def appended(self, replica: Replica, byte_count: int) -> None:
        """Counts bytes written to a log."""
        self._unsynced[replica] = self._unsynced.get(replica, 0) + byte_count
        self._unlooked += byte_count
        if self._unlooked >= LOOK_BYTES:
            self._look()

    def _look(self) -> None:
        """Checks the write pressure: syncs the log with most unsynced bytes if it is high, and has producers wait while
        it is very high."""
        self._unlooked = 0
        self._pressure = pressure = self._write_pressure()
        if pressure > EARLY and not self._syncing and self._unsynced:
            self.request(max(self._unsynced, key=self._unsynced.__getitem__))
        # Without a sync in progress a wait would not end.
        self.behind = pressure > LATE and self._syncing > 0
        waiting: list[Callable[[], None]] = []
        if not self.behind and self._caught_up:
            waiting, self._caught_up = self._caught_up, []
        if not self.pressed and self._relieved:
            waiting += self._relieved
            self._relieved = []
        for callback in waiting:
            callback()

    @property
    def pressed(self) -> bool:
        """Whether appends that no client waits for have to wait for the disk."""
        return self._pressure > EARLY and self._syncing > 0

    def forget(self, replica: Replica) -> None:
        """Forgets a log that is gone, whose data need not reach the disk."""
        self._unsynced.pop(replica, None)

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Calls back when producers no longer have to wait. Called only while `behind`."""
        assert self.behind
        self._caught_up.append(callback)

    def when_relieved(self, callback: Callable[[], None]) -> None:
        """Calls back when no append has to wait for the disk. Called only while `pressed`."""
        assert self.pressed
        self._relieved.append(callback)

    def hold_back(self, replica: Replica) -> None:
        """Begins no sync of a replica's log before `go_on`, because another log is about to replace it."""
        self._held_back.add(replica)

    def go_on(self, replica: Replica) -> None:
        """Ends `hold_back`, and syncs if that was requested meanwhile."""
        self._held_back.discard(replica)
        if replica in self._again and not replica.flushing:
            self._again.discard(replica)
            self.request(replica)

    def request(self, replica: Replica) -> None:
        """Queues a sync of everything now in the replica's log."""
        if replica.flushing or replica in self._held_back:
            self._again.add(replica)
            return
        replica.flushing = True
        self._syncing += 1
        self._unsynced.pop(replica, None)
        self._count.value += 1
        log = replica.log
        end_offset = log.bounds.end_offset
        self._workers.submit(lambda: log.flush(end_offset)).deliver_to(partial(self._done, replica, log))

    def _done(self, replica: Replica, log: Log, reached: int | Raised) -> None:
        self._syncing -= 1
        replica.flushing = False
        try:
            self._synced(replica, log, reached)
        finally:
            if self.behind or self._relieved:
                self._look()

    def _synced(self, replica: Replica, log: Log, reached: int | Raised) -> None:
        if isinstance(reached, Raised):
            error = reached.error
            self._again.discard(replica)
            assert isinstance(error, Exception)
            if not isinstance(error, OSError):
                replica.refuse_waiting(ErrorCode.UNKNOWN_SERVER_ERROR)
                self._failed(replica, error)
            elif log is not replica.log:
                self.request(replica)  # a move has taken its files: the copy has everything
            else:
                if (is_passing(error) or isinstance(error, FileNotFoundError)) and not replica.error:
                    # No append is acknowledged; the next one tries again.
                    replica.refuse_waiting(ErrorCode.KAFKA_STORAGE_ERROR)
                self._failed(replica, error)
            return
        if replica.flush_gated:
            replica.synced(min(reached, replica.log.bounds.end_offset))
        if replica in self._again:
            self._again.discard(replica)
            self.request(replica)
