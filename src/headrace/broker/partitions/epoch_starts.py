"""Writes the starts of leader epochs: entries of `leader-epoch-checkpoint`, synced before the first append.

A worker writes the entries of newly led partitions, a slice at a time; an entry that an append waits for is written at
once. Sources: KIP-101, KAFKA-7415.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.env.workers import Raised

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.env.workers import Workers
    from headrace.log.log import Log

AT_ONCE: Final = 32
"""Partitions in one slice of a worker's writing."""

Outcome = tuple["Replica", "Log", int, Exception | None]
"""Replica, its log, its epoch, and the error if the entry was not written."""


class EpochStarts:
    """The replicas that take no appends yet, with the callbacks of waiting appends."""

    def __init__(self, workers: Workers, failed: Callable[[Replica, Exception], None]) -> None:
        """`failed` is called with a replica whose epoch cannot be written; it takes the replica offline if needed."""
        self._workers = workers
        self._failed = failed
        self._waiting: dict[Replica, deque[Callable[[], None]]] = {}
        """Replicas without a written epoch start, with the callbacks of waiting appends."""
        self._queue: dict[Replica, None] = {}
        """Replicas for the next slices, in order."""
        self._at_work: dict[Replica, int] = {}
        """Epoch that a worker is writing for each replica."""
        self._has_slice = False

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, replica: Replica) -> bool:
        return replica in self._waiting

    def add(self, replica: Replica) -> None:
        """Queues the start of the replica's epoch for writing; the replica may be queued already with an earlier epoch.

        The entry of a new, empty log is written only when an append waits for it, so that creating thousands of topics
        needs no sync for each.
        """
        self._waiting.setdefault(replica, deque())
        if self._waiting[replica] or not replica.log.flushing.fresh or replica.log.end_offset:
            self._queue[replica] = None
            self._go_on()

    def add_new(self, replica: Replica) -> None:
        """Queues the entry of one of a few new logs, because their first appends are likely to follow."""
        if replica in self._waiting and self._at_work.get(replica) != replica.leader_epoch:
            self._queue[replica] = None
            self._go_on()

    def when_written(self, replica: Replica, callback: Callable[[], None]) -> None:
        """Calls back, in the order of calls, when appends may come or never will. The replica must have been added."""
        self._waiting[replica].append(callback)
        self.hurry(replica)

    def hurry(self, replica: Replica) -> None:
        """Writes the entry now, ahead of the queue, also if an earlier write failed."""
        if self._at_work.get(replica) != replica.leader_epoch:
            self._queue.pop(replica, None)
            self._submit([replica], is_slice=False)

    def forget(self, replica: Replica) -> None:
        """Ends all waits for a replica that this broker no longer leads."""
        self._queue.pop(replica, None)
        self._release(replica)

    def _go_on(self) -> None:
        if self._has_slice or not self._queue:
            return
        some = list(self._queue)[:AT_ONCE]
        for replica in some:
            del self._queue[replica]
        self._has_slice = True
        self._submit(some, is_slice=True)

    def _submit(self, replicas: list[Replica], *, is_slice: bool) -> None:
        todo = [(replica, replica.leader_epoch, replica.log) for replica in replicas]
        self._at_work.update((replica, epoch) for replica, epoch, _ in todo)

        def work() -> list[Outcome]:
            return [(replica, log, epoch, _try_to_write(log)) for replica, epoch, log in todo]

        def done(outcomes: list[Outcome] | Raised) -> None:
            assert not isinstance(outcomes, Raised), "a write that fails is an outcome"
            for outcome in outcomes:
                self._written(*outcome)
            if is_slice:
                self._has_slice = False
                self._go_on()

        self._workers.submit(work).deliver_to(done)

    def _written(self, replica: Replica, log: Log, epoch: int, error: Exception | None) -> None:
        if self._at_work.get(replica) == epoch:
            del self._at_work[replica]
        if replica not in self._waiting or replica.leader_epoch != epoch or replica.log is not log:
            return  # no longer led, a newer epoch is to be written, or the log was moved
        if error is None:
            replica.epoch_is_written()
            self._release(replica)
            return
        self._failed(replica, error)
        if replica in self._waiting:
            refused, self._waiting[replica] = self._waiting[replica], deque()
            for callback in refused:
                callback()

    def _release(self, replica: Replica) -> None:
        """Calls back everything that waits, including callbacks added meanwhile: appends keep their order."""
        waiting = self._waiting.get(replica)
        while waiting:
            waiting.popleft()()
        self._waiting.pop(replica, None)


def _try_to_write(log: Log) -> Exception | None:
    try:
        log.flushing.write_epochs()
    except Exception as error:
        return error
    return None
