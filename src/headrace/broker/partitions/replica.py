"""One partition replica that this broker leads: its log, how far it is committed, and who waits for it to move."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headrace.metadata.image import INTERNAL_TOPICS
from headrace.replicas.progress import LeaderProgress, OffsetWaiters
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.requests.produce_run import ResponseTemplate
    from headrace.env import Timer
    from headrace.log.log import Log
    from headrace.metadata.image import Partition


class FetchWaiter(Protocol):
    """A fetch that waits for this partition to have more to read."""

    def moved(self, replica: Replica, byte_count: int) -> None:
        """`byte_count` bytes became readable, or (0) something else about the replica changed."""
        ...


CommitCallback = Callable[[ErrorCode], None]


class Replica:
    """The leader's side of one partition. `error` is what every request for it is answered, NONE while it is online."""

    __slots__ = (
        "error",
        "fetch_waiters",
        "flush_gated",
        "flushing",
        "index",
        "internal",
        "log",
        "offset_waiters",
        "progress",
        "templates",
        "timer",
        "topic",
        "topic_id",
    )

    def __init__(
        self, topic: str, index: int, topic_id: bytes, log: Log, progress: LeaderProgress, flush_gated: bool
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.progress = progress
        self.error = ErrorCode.NONE
        self.flush_gated = flush_gated
        self.flushing = False
        self.internal = topic in INTERNAL_TOPICS
        self.templates: dict[int, ResponseTemplate] = {}
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self.offset_waiters: OffsetWaiters[CommitCallback] = OffsetWaiters()
        self.timer: Timer | None = None
        """Runs to the deadline of whoever waits for the shortest time; one for all of them."""

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed."""
        return self.progress.high_watermark

    @property
    def leader_epoch(self) -> int:
        """The epoch that this broker leads under."""
        return self.progress.leader_epoch

    def reached(self, offset: int, byte_count: int) -> None:
        """This broker has everything below `offset`: moves the high watermark and tells those who wait for it."""
        progress = self.progress
        if not progress.advance(progress.node_id, offset):
            return
        if self.fetch_waiters:
            for waiter in list(self.fetch_waiters):
                waiter.moved(self, byte_count)
        if self.offset_waiters:
            for callback in self.offset_waiters.reached(progress.high_watermark):
                callback(ErrorCode.NONE)

    def touch(self) -> None:
        """Has the waiting fetches look again: a log start, a stable offset or a leader changed."""
        for waiter in list(self.fetch_waiters):
            waiter.moved(self, 0)

    def give_up(self, error: ErrorCode) -> None:
        """Takes the replica offline: whoever waits is answered `error`, and so is every later request."""
        self.error = error
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for callback in self.offset_waiters.take_all():
            callback(error)
        self.touch()

    @property
    def under_min_isr(self) -> bool:
        """Whether too few replicas are in sync for acks=all."""
        return len(self.progress.reached) < self.log.config.min_insync_replicas

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compares the leader epoch that a client knows (-1: it does not) with ours (KIP-320)."""
        if current_leader_epoch < 0 or current_leader_epoch == self.progress.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.progress.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """`Log.end_offset_for_epoch`, for epochs too that have no record yet: Kafka writes one down when a leader takes
        over, at the end of its log; earlier ones that stayed without a record are forgotten then."""
        found, end_offset = self.log.end_offset_for_epoch(epoch)
        if found >= 0 or not 0 <= epoch <= self.progress.leader_epoch:
            return found, end_offset
        latest = self.log.epochs.latest
        is_known = epoch < self.progress.leader_epoch and latest >= 0
        return (latest if is_known else epoch), self.log.end_offset

    def leads_as(self, partition: Partition) -> None:
        """Takes over the leader epoch and the in-sync set of the newest metadata."""
        old = self.progress
        if old.leader_epoch != partition.leader_epoch or set(old.reached) != set(partition.isr):
            self.progress = LeaderProgress(old.node_id, partition.leader_epoch, partition.isr, old.high_watermark)
            self.progress.reached[old.node_id] = old.reached[old.node_id]
            self.touch()
