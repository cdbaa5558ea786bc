"""One partition replica of this broker: its log, its role, and the requests that wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.env.completion import Completion
from headrace.metadata.image import INTERNAL_TOPICS
from headrace.replicas.partition import PartitionState, Role
from headrace.replicas.waiters import OffsetWaiters
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.env import Timer
    from headrace.env.clock import Clock
    from headrace.log.log import Log
    from headrace.metadata.image import Partition
    from headrace.replicas.partition import AlterIsr, Fetched

Key = tuple[str, int]
"""A partition by its topic's name and its index."""


class FetchWaiter(Protocol):
    """A fetch or fetch session that waits for the partition to have more to read."""

    def moved(self, replica: Replica, byte_count: int) -> None:
        """Notes that `byte_count` bytes became readable, or (0) that the replica changed otherwise."""
        ...


class AnswerTemplate(Protocol):
    """A response of the short path of Produce for one version, fixed except for its numbers."""

    def filled(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """Returns the response with these numbers."""
        ...


class Replica:
    """A replica's state. `error` is the answer to every request for it: NONE while this broker leads it and it works.

    Values that the hot paths read are attributes, set only when the role changes.
    """

    __slots__ = (
        "_clock",
        "answers_wait",
        "bytes_in",
        "bytes_out",
        "cuts",
        "error",
        "fetch_waiters",
        "flush_gated",
        "flushing",
        "follower_waiters",
        "index",
        "internal",
        "is_being_cut",
        "is_written_aside",
        "log",
        "offset_waiters",
        "shared",
        "state",
        "sync_waiters",
        "takes_appends",
        "templates",
        "timer",
        "topic",
        "topic_id",
    )

    def __init__(
        self, topic: str, index: int, topic_id: bytes, log: Log, state: PartitionState, clock: Clock, flush_gated: bool
    ) -> None:
        """`flush_gated`: nothing is acknowledged or counts as committed before it is synced."""
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.state = state
        self.flush_gated = flush_gated
        self.internal = topic in INTERNAL_TOPICS
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.takes_appends = False
        """Whether this broker leads, and the start of its epoch is on disk."""
        self.shared = False
        """Whether other brokers have replicas, so that too few may be in sync for acks=all."""
        self.answers_wait = True
        """Whether an acknowledgement may have to wait, for a sync or for other replicas."""
        self.is_being_cut = False
        """Whether a worker is cutting the log to the leader's."""
        self.is_written_aside = False
        """Whether a worker is appending to the log."""
        self.cuts = 0
        """Number of cuts; a move that copies the log checks it."""
        self.flushing = False
        """Whether a worker is syncing the log."""
        self.bytes_in = self.bytes_out = 0
        """Bytes appended and fetched by clients since the metrics page last took these numbers."""
        self.templates: dict[int, AnswerTemplate] = {}
        """Response templates of the short path of Produce, by API version."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self.follower_waiters: dict[FetchWaiter, None] = {}
        """Fetches of followers, which wait for the end of the log, not for the high watermark."""
        self.offset_waiters: OffsetWaiters[Completion[ErrorCode]] = OffsetWaiters()
        """Requests that wait for every in-sync replica (acks=all)."""
        self.sync_waiters: OffsetWaiters[Completion[ErrorCode]] = OffsetWaiters()
        """Requests that wait only for this broker's disk (acks=1)."""
        self.timer: Timer | None = None
        """Timer for the earliest deadline of all waiting requests."""
        self._clock = clock

    @property
    def key(self) -> Key:
        """Topic and index."""
        return self.topic, self.index

    @property
    def high_watermark(self) -> int:
        """Offset below which everything is committed."""
        return self.state.high_watermark

    @property
    def low_watermark(self) -> int:
        """Lowest start of the log among the serving replicas; only for a leader."""
        return self.state.low_watermark(self.log.log_start_offset)

    @property
    def missing_from(self) -> int:
        """Start of a possible gap in the log after a power loss, to be fetched from the leader; -1 if there is none. An
        in-sync replica is not cut, because it may be elected leader."""
        log, state = self.log, self.state
        return log.gap_offset if log.gap_offset >= log.log_start_offset and state.node_id not in state.isr else -1

    @property
    def leader_epoch(self) -> int:
        """Epoch of the current leader."""
        return self.state.leader_epoch

    @property
    def is_online(self) -> bool:
        """Whether the replica can be used, led or not."""
        return self.state.role is not Role.OFFLINE

    @property
    def is_held(self) -> bool:
        """Whether a worker changes the log, so that the role must not change."""
        return self.is_being_cut or self.is_written_aside

    @property
    def serves_as_follower(self) -> bool:
        """Whether consumers may read the committed records here while another broker leads."""
        return self.state.role is Role.FOLLOWER and not self.is_being_cut

    @property
    def under_min_isr(self) -> bool:
        """Whether too few replicas are in sync for acks=all."""
        return self.state.is_under_min_isr(self.log.state.config.min_insync_replicas)

    # --- roles: each begins here and nowhere else

    def become_leader(self, partition: Partition) -> bool:
        """Leads, or continues to lead, as the metadata say; returns whether the start of its epoch has to be written to
        disk.

        If so, the replica takes no appends until `epoch_is_written`, but can be read.
        """
        state, log = self.state, self.log
        before = (self.error, state.leader_epoch, state.partition_epoch)
        counts_to = min(log.flushing.flushed_offset, log.end_offset) if self.flush_gated else log.end_offset
        start = state.become_leader(partition, log.end_offset, self._now_ms(), counts_to)
        if start is not None:
            log.epochs.assign(start.epoch, start.offset)
            self.takes_appends = not log.epochs.dirty
        self.error = ErrorCode.NONE
        log.has_no_gap()  # a leader's log is complete by definition
        self.shared = not state.is_alone
        self.answers_wait = self.flush_gated or self.shared
        if before != (self.error, state.leader_epoch, state.partition_epoch):
            self.reached(state.log_end, 0)
            self.touch()
        return not self.takes_appends

    def epoch_is_written(self) -> None:
        """Takes appends from now on: the start of the leader's epoch is on disk."""
        assert self.error is ErrorCode.NONE, "only a leader's epoch is waited for"
        self.takes_appends = True

    def become_follower(self, partition: Partition) -> None:
        """Becomes a follower: waiting requests are refused, so that clients look for the leader."""
        if self.state.become_follower(partition):
            self._end_leadership(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def become_offline(self, error: ErrorCode) -> None:
        """Goes offline: every request, waiting ones included, is answered with `error`."""
        self.state.become_offline()
        self._end_leadership(error)

    def _end_leadership(self, error: ErrorCode) -> None:
        self.error = error
        self.takes_appends = False
        self.refuse_waiting(error)
        self.touch()

    def lies_in(self, log: Log) -> bool:
        """Replaces the log by `log`, a complete copy; returns whether the start of the epoch has to be written to disk
        there.

        A copy has the epochs of its records; the newest epoch may have no record yet.
        """
        assert log.end_offset == self.log.end_offset, "a copy has all of it"
        for epoch, offset in self.log.epochs.entries()[-1:]:
            log.epochs.assign(epoch, offset)
        self.log = log
        self.transactions_changed()
        self.takes_appends = self.error is ErrorCode.NONE and not log.epochs.dirty
        self.touch()
        return not self.error and not self.takes_appends

    # --- moving

    def transactions_changed(self) -> None:
        """Updates the state's open transactions from the log, after an append and before it counts."""
        producers = self.log.state.producers
        producers.committed(self.state.high_watermark)
        self.state.transactions_are(producers.unstable)

    def begins_later(self) -> None:
        """Updates the state after the log start has moved, perhaps past an open transaction: the last stable offset may
        rise."""
        state = self.state
        stable = state.last_stable_offset
        state.begins_at(self.log.bounds.log_start_offset)
        if state.last_stable_offset > stable and self.fetch_waiters:
            self._committed(0)

    def reached(self, offset: int, byte_count: int) -> None:
        """Counts everything below `offset` as stored by this broker: moves the high watermark, and completes waits for
        it."""
        state = self.state
        if state.is_alone:
            moved = state.append_counts(offset)
        else:
            moved = state.advance(offset, self._now_ms(), self.log.state.config.min_insync_replicas)
        if moved and (self.fetch_waiters or self.offset_waiters):
            self._committed(byte_count)

    def _committed(self, byte_count: int) -> None:
        """Completes waits for the high watermark."""
        if self.fetch_waiters:
            for waiter in list(self.fetch_waiters):
                waiter.moved(self, byte_count)
        if self.offset_waiters:
            error = self._enough()
            for completion in self.offset_waiters.reached(self.state.high_watermark):
                completion.complete(error)

    def _enough(self) -> ErrorCode:
        """Returns the answer to an append with acks=all that every in-sync replica has: an error if too few replicas
        are in sync."""
        state = self.state
        min_insync = self.log.state.config.min_insync_replicas
        if not self.shared or len(state.maximal_isr) >= min(min_insync, len(state.replicas)):
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def synced(self, offset: int) -> None:
        """Counts everything below `offset` as being on disk, which matters if acknowledgements wait for the disk."""
        assert self.flush_gated
        for completion in self.sync_waiters.reached(offset):
            completion.complete(ErrorCode.NONE)
        if self.error is ErrorCode.NONE and offset > self.state.log_end:
            self.reached(offset, self.log.state.active.size)

    def appended(self, byte_count: int) -> None:
        """Wakes followers' fetches after an append."""
        for waiter in list(self.follower_waiters):
            waiter.moved(self, byte_count)

    def fetched(self, node_id: int, broker_epoch: int, offset: int, log_start: int) -> Fetched:
        """Counts that a follower has everything from `log_start` to `offset` (see `PartitionState.fetched`)."""
        min_insync = self.log.state.config.min_insync_replicas
        fetched = self.state.fetched(node_id, broker_epoch, offset, self._now_ms(), min_insync, log_start)
        if fetched.moved:
            self._committed(0)
        return fetched

    def shrink(self) -> AlterIsr | None:
        """Checks for followers that have fallen behind; returns the change to request from the controller, if any."""
        self.reached(self.state.log_end, 0)  # it may have waited for a replica that will no longer join
        return self.state.shrink(self._now_ms())

    def altered(self, asked: AlterIsr, error: ErrorCode, partition: Partition | None) -> AlterIsr | None:
        """Applies the controller's answer to a change of the in-sync set; returns a change to request again, if any."""
        min_insync = self.log.state.config.min_insync_replicas
        before = self.state.isr
        outcome = self.state.altered(asked, error, partition, self._now_ms(), min_insync)
        if outcome.moved:
            self._committed(0)
        if self.state.isr != before:
            # A follower that left the set is woken now: the metadata, which come later, bring no change.
            for waiter in list(self.follower_waiters):
                waiter.moved(self, 0)
        return outcome.retry

    def followed(self, high_watermark: int, log_start_offset: int) -> None:
        """Takes over the leader's watermarks after an append to the follower's log."""
        log = self.log
        if log.state.producers.unstable is not self.state.unstable:
            self.transactions_changed()
        moved = self.state.followed(log.bounds.end_offset, high_watermark)
        if log.bounds.log_start_offset < log_start_offset <= self.state.high_watermark:
            self.delete_before(log_start_offset)
        if moved and self.fetch_waiters:
            self._committed(0)

    def delete_before(self, offset: int) -> None:
        """Moves the start of the log to `offset`, unless it is already beyond it."""
        self.log.delete_records_before(offset)
        self.begins_later()

    def was_cut(self) -> None:
        """Updates the state after the log was cut to its leader's, or begins elsewhere."""
        log = self.log
        self.state.begins_at(log.log_start_offset)
        self.cuts += 1
        self.state.truncated(log.end_offset, log.state.producers.unstable)
        # Everything before a leader's log start is committed.
        self.state.followed(log.bounds.end_offset, log.log_start_offset)
        self.touch()

    def is_synced(self, offset: int) -> bool:
        """Returns whether everything below `offset` is on disk."""
        assert self.flush_gated
        return self.log.flushing.flushed_offset >= offset

    def wait_for_sync(self, offset: int, completion: Completion[ErrorCode]) -> None:
        """Completes with NONE once everything below `offset` is on disk, or with an error."""
        assert self.flush_gated
        self.sync_waiters.add(offset, completion)

    def touch(self) -> None:
        """Has waiting fetches check again after a change of the log start, the stable offset or the leader."""
        for waiter in [*self.fetch_waiters, *self.follower_waiters]:
            waiter.moved(self, 0)

    # --- waiting

    def acknowledged(self, offset: int, needs_all: bool) -> ErrorCode | None:
        """Returns NONE if everything below `offset` may be acknowledged, an error if it will not be, and None if that
        is not known yet.

        The three conditions are: what the producer asked for (`needs_all`: acks=all), the progress of the in-sync
        replicas, and, if acknowledgements wait for it, this broker's disk.
        """
        if self.error:
            return self.error
        if needs_all:
            return self._enough() if self.state.high_watermark >= offset else None
        return None if self.flush_gated and self.log.flushing.flushed_offset < offset else ErrorCode.NONE

    def wait(self, offset: int, needs_all: bool, completion: Completion[ErrorCode], deadline: float) -> bool:
        """Completes when `acknowledged` is known, or with REQUEST_TIMED_OUT at the `deadline`. Returns whether
        `wake_at` became earlier."""
        waiters = self.offset_waiters if needs_all else self.sync_waiters
        return waiters.add(offset, completion, deadline)

    @property
    def wake_at(self) -> float:
        """Earliest deadline of a waiting acknowledgement, or an earlier time; infinity if there is none."""
        return min(self.offset_waiters.wake_at, self.sync_waiters.wake_at)

    def expire(self, now: float) -> None:
        """Answers requests whose deadline has passed."""
        for completion in [*self.offset_waiters.expire(now), *self.sync_waiters.expire(now)]:
            completion.complete(ErrorCode.REQUEST_TIMED_OUT)

    def refuse_waiting(self, error: ErrorCode) -> None:
        """Answers all waiting acknowledgements with an error."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for completion in [*self.offset_waiters.take_all(), *self.sync_waiters.take_all()]:
            completion.complete(error)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
