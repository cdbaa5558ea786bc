"""Syncs logs on worker threads, one sync at a time for each log: later appends share the next one.

This is the group commit of `acks.flush=before-reply`, and what `flush.messages` and `flush.ms` ask for.

It also keeps what was written from running away from the disk: a system that has too much to write out makes the next
writer wait for it, and that would be the event loop. So the logs with most of it are synced before that, and what is
far behind its leader is held back meanwhile (`pressed`). When the disk is slower than the producers still, these are
not read from (`behind`).
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
"""Bytes appended between two looks at how far the system is behind with writing out."""
EARLY: Final = 0.8
LATE: Final = 0.95
"""Shares of what the system lets lie before it makes writers wait: from the first on logs are synced though nobody
asked for it, and replicas far behind their leader wait; from the second on producers wait."""


class Flusher:
    """Everything that is to be synced, and is being synced."""

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
        self._unlooked = 0
        self._syncing = 0
        self._pressure = 0.0
        """At the last look."""
        self._caught_up: list[Callable[[], None]] = []
        self._relieved: list[Callable[[], None]] = []
        self._workers = workers
        self._count = count
        self._failed = failed
        self._again: set[Replica] = set()
        self._held_back: set[Replica] = set()

    def appended(self, replica: Replica, byte_count: int) -> None:
        """Takes note of what was written to a log."""
        self._unsynced[replica] = self._unsynced.get(replica, 0) + byte_count
        self._unlooked += byte_count
        if self._unlooked >= LOOK_BYTES:
            self._look()

    def _look(self) -> None:
        """Syncs the log with most of it where the system is behind, and has producers wait until that has helped."""
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
        """Whether what nobody waits for has to wait for the disk."""
        return self._pressure > EARLY and self._syncing > 0

    def forget(self, replica: Replica) -> None:
        """A log is gone, and what was written to it need not reach the disk."""
        self._unsynced.pop(replica, None)

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Calls back when producers need no longer wait. Only while `behind`."""
        assert self.behind
        self._caught_up.append(callback)

    def when_relieved(self, callback: Callable[[], None]) -> None:
        """Calls back when nothing need wait for the disk. Only while `pressed`."""
        assert self.pressed
        self._relieved.append(callback)

    def hold_back(self, replica: Replica) -> None:
        """Begins no sync of a replica's log before `go_on`: another is about to take its place."""
        self._held_back.add(replica)

    def go_on(self, replica: Replica) -> None:
        """Syncs again; what was asked for meanwhile too."""
        self._held_back.discard(replica)
        if replica in self._again and not replica.flushing:
            self._again.discard(replica)
            self.request(replica)

    def request(self, replica: Replica) -> None:
        """Has everything that is in the replica's log now synced soon."""
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
                self.request(replica)  # its files were taken away by a move: the copy has all of it
            else:
                if (is_passing(error) or isinstance(error, FileNotFoundError)) and not replica.error:
                    # No client gets an acknowledgement; the next append tries again.
                    replica.refuse_waiting(ErrorCode.KAFKA_STORAGE_ERROR)
                self._failed(replica, error)
            return
        if replica.flush_gated:
            replica.synced(min(reached, replica.log.bounds.end_offset))
        if replica in self._again:
            self._again.discard(replica)
            self.request(replica)
