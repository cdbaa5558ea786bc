"""Requests of DeleteRecords, which wait until every serving replica has deleted the records before an offset.

A leader's log starts at the offset at once; its followers learn it from the answers to their fetches, and report it
with the next fetch. Fenced brokers are not waited for: they learn it when they follow again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.env.completion import Completion
from headrace.replicas.waiters import OffsetWaiters
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Replica
    from headrace.env.node import Node
    from headrace.env.owner import Timer


class _Waiting:
    """The requests that wait for one partition, and a timer for the earliest deadline."""

    __slots__ = ("timer", "waiters")

    def __init__(self) -> None:
        self.waiters: OffsetWaiters[Completion[ErrorCode]] = OffsetWaiters()
        self.timer: Timer | None = None


class RecordDeletions:
    """The waiting requests of all partitions. A partition without any costs nothing."""

    def __init__(self, node: Node) -> None:
        self._clock = node.clock
        self._completions = node.completions
        self._owner = node.owner("deletions of records")
        self._waiting: dict[Replica, _Waiting] = {}

    def when_deleted(self, replica: Replica, offset: int, timeout_ms: float) -> Completion[ErrorCode]:
        """Completes with NONE once no serving replica has a record before `offset`, or with an error:
        REQUEST_TIMED_OUT, or why this broker no longer leads."""
        completion: Completion[ErrorCode] = Completion(self._completions)
        if replica.error or replica.low_watermark >= offset:
            completion.complete(replica.error)
            return completion
        waiting = self._waiting.setdefault(replica, _Waiting())
        if waiting.waiters.add(offset, completion, self._clock.monotonic() + timeout_ms / 1000):
            self._wake_in_time(replica, waiting)
        return completion

    def look(self, replica: Replica) -> None:
        """Answers requests for a replica after a follower's fetch, or a possible change of its role or of the serving
        brokers."""
        waiting = self._waiting.get(replica)
        if waiting is None:
            return
        if replica.error:
            self._answer(replica, waiting, waiting.waiters.take_all(), replica.error)
        else:
            self._answer(replica, waiting, waiting.waiters.reached(replica.low_watermark), ErrorCode.NONE)

    def look_at_all(self) -> None:
        """Answers requests after a change of the serving brokers."""
        for replica in list(self._waiting):
            self.look(replica)

    def _answer(
        self, replica: Replica, waiting: _Waiting, answered: list[Completion[ErrorCode]], error: ErrorCode
    ) -> None:
        if not len(waiting.waiters):
            self._waiting.pop(replica, None)
            if waiting.timer is not None:
                waiting.timer.cancel()
        for completion in answered:
            completion.complete(error)

    def _wake_in_time(self, replica: Replica, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        delay_s = waiting.waiters.wake_at - self._clock.monotonic()
        waiting.timer = self._owner.later(max(0.0, delay_s), self._waited_too_long, replica, waiting)

    def _waited_too_long(self, replica: Replica, waiting: _Waiting) -> None:
        late = waiting.waiters.expire(self._clock.monotonic())
        if len(waiting.waiters):
            self._wake_in_time(replica, waiting)
        self._answer(replica, waiting, late, ErrorCode.REQUEST_TIMED_OUT)
