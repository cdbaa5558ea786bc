"""One partition replica of this broker: its log, its part in the partition, and what waits for it to move."""

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
    """A fetch that waits for this partition to have more to read, or a session in which it rests."""

    def moved(self, replica: Replica, byte_count: int) -> None:
        """`byte_count` bytes became readable, or (0) something else about the replica changed."""
        ...


class AnswerTemplate(Protocol):
    """A response of the short path of Produce, for one version, in which all but the numbers is fixed."""

    def filled(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """The answer of these numbers."""
        ...


class Replica:
    """See the module. `error` is what every request for it is answered: NONE while this broker leads and it works.

    What the hot paths ask is an attribute, set where the role changes and nowhere else.
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
        """`flush_gated`: nothing is acknowledged, and nothing counts as committed, before it is synced."""
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.state = state
        self.flush_gated = flush_gated
        self.internal = topic in INTERNAL_TOPICS
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.takes_appends = False
        """Whether this broker leads, and the start of its epoch is written down."""
        self.shared = False
        """Whether other brokers have replicas of it, so that fewer may be in sync than acks=all wants."""
        self.answers_wait = True
        """Whether an append may have to wait for its acknowledgement: for a sync, or for others."""
        self.is_being_cut = False
        """Whether a worker cuts its log to its leader's."""
        self.is_written_aside = False
        """Whether a worker appends to its log."""
        self.cuts = 0
        """How often that was done: who copies the log looks at it."""
        self.flushing = False
        self.bytes_in = self.bytes_out = 0
        """Bytes that clients have appended and fetched since the page of metrics took these numbers."""
        self.templates: dict[int, AnswerTemplate] = {}
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self.follower_waiters: dict[FetchWaiter, None] = {}
        """Fetches of followers: they wait for the end of the log, not for the high watermark."""
        self.offset_waiters: OffsetWaiters[Completion[ErrorCode]] = OffsetWaiters()
        """Those who asked for every in-sync replica (acks=all)."""
        self.sync_waiters: OffsetWaiters[Completion[ErrorCode]] = OffsetWaiters()
        """Those who asked for this broker alone (acks=1), and wait for its disk."""
        self.timer: Timer | None = None
        """Runs to the earliest deadline; one for all that wait."""
        self._clock = clock

    @property
    def key(self) -> Key:
        """Topic and index."""
        return self.topic, self.index

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed."""
        return self.state.high_watermark

    @property
    def low_watermark(self) -> int:
        """The log start offset of all serving replicas; only for a leader."""
        return self.state.low_watermark(self.log.log_start_offset)

    @property
    def missing_from(self) -> int:
        """Where a power loss may have taken records out of its log that its leader has; -1: nowhere. While it counts as
        in sync nothing is cut: it may be asked to lead."""
        log, state = self.log, self.state
        return log.gap_offset if log.gap_offset >= log.log_start_offset and state.node_id not in state.isr else -1

    @property
    def leader_epoch(self) -> int:
        """The epoch that its leader leads under."""
        return self.state.leader_epoch

    @property
    def is_online(self) -> bool:
        """Whether it can be used at all, led or not."""
        return self.state.role is not Role.OFFLINE

    @property
    def is_held(self) -> bool:
        """Whether a worker changes its log: its role does not change meanwhile."""
        return self.is_being_cut or self.is_written_aside

    @property
    def serves_as_follower(self) -> bool:
        """Whether consumers may read here what another broker leads: as far as is known to be committed."""
        return self.state.role is Role.FOLLOWER and not self.is_being_cut

    @property
    def under_min_isr(self) -> bool:
        """Whether too few replicas are in sync for acks=all."""
        return self.state.is_under_min_isr(self.log.state.config.min_insync_replicas)

    # --- roles: each begins here and nowhere else

    def become_leader(self, partition: Partition) -> bool:
        """Leads, or goes on leading, as the metadata say; whether the start of its epoch has to be written to disk.

        Until `epoch_is_written` it takes no appends then; it is read in the meantime.
        """
        state, log = self.state, self.log
        before = (self.error, state.leader_epoch, state.partition_epoch)
        counts_to = min(log.flushing.flushed_offset, log.end_offset) if self.flush_gated else log.end_offset
        start = state.become_leader(partition, log.end_offset, self._now_ms(), counts_to)
        if start is not None:
            log.epochs.assign(start.epoch, start.offset)
            self.takes_appends = not log.epochs.dirty
        self.error = ErrorCode.NONE
        log.has_no_gap()  # what it has is what there is
        self.shared = not state.is_alone
        self.answers_wait = self.flush_gated or self.shared
        if before != (self.error, state.leader_epoch, state.partition_epoch):
            self.reached(state.log_end, 0)
            self.touch()
        return not self.takes_appends

    def epoch_is_written(self) -> None:
        """The start of the leader's epoch is on disk: appends may come."""
        assert self.error is ErrorCode.NONE, "only a leader's epoch is waited for"
        self.takes_appends = True

    def become_follower(self, partition: Partition) -> None:
        """Another broker leads, or none: requests that wait are refused, and clients look for the leader."""
        if self.state.become_follower(partition):
            self._end_leadership(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def become_offline(self, error: ErrorCode) -> None:
        """It cannot be used, or is gone: every request is answered `error`, those that wait too."""
        self.state.become_offline()
        self._end_leadership(error)

    def _end_leadership(self, error: ErrorCode) -> None:
        self.error = error
        self.takes_appends = False
        self.refuse_waiting(error)
        self.touch()

    def lies_in(self, log: Log) -> bool:
        """`log`, a copy, takes the place of its log; whether the start of the epoch has to be written to disk there.

        A copy knows of an epoch by its records: the newest one may have none yet.
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
        """Passes on the open transactions of its log after an append, before it counts, if `unstable` has changed."""
        producers = self.log.state.producers
        producers.committed(self.state.high_watermark)
        self.state.transactions_are(producers.unstable)

    def begins_later(self) -> None:
        """The start of its log moved, perhaps past an open transaction: more may be stable than before."""
        state = self.state
        stable = state.last_stable_offset
        state.begins_at(self.log.bounds.log_start_offset)
        if state.last_stable_offset > stable and self.fetch_waiters:
            self._committed(0)

    def reached(self, offset: int, byte_count: int) -> None:
        """Counts all below `offset` as this broker's: moves the high watermark, and completes what waits for it."""
        state = self.state
        if state.is_alone:
            moved = state.append_counts(offset)
        else:
            moved = state.advance(offset, self._now_ms(), self.log.state.config.min_insync_replicas)
        if moved and (self.fetch_waiters or self.offset_waiters):
            self._committed(byte_count)

    def _committed(self, byte_count: int) -> None:
        """Completes what waits for the high watermark."""
        if self.fetch_waiters:
            for waiter in list(self.fetch_waiters):
                waiter.moved(self, byte_count)
        if self.offset_waiters:
            error = self._enough()
            for completion in self.offset_waiters.reached(self.state.high_watermark):
                completion.complete(error)

    def _enough(self) -> ErrorCode:
        """What an append with acks=all is answered that every in-sync replica has: whether these are enough, as far as
        they may be by now."""
        state = self.state
        min_insync = self.log.state.config.min_insync_replicas
        if not self.shared or len(state.maximal_isr) >= min(min_insync, len(state.replicas)):
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def synced(self, offset: int) -> None:
        """Everything below `offset` is on disk, which is what counts where acknowledgements wait for it."""
        assert self.flush_gated
        for completion in self.sync_waiters.reached(offset):
            completion.complete(ErrorCode.NONE)
        if self.error is ErrorCode.NONE and offset > self.state.log_end:
            self.reached(offset, self.log.state.active.size)

    def appended(self, byte_count: int) -> None:
        """The log has more: followers may have it."""
        for waiter in list(self.follower_waiters):
            waiter.moved(self, byte_count)

    def fetched(self, node_id: int, broker_epoch: int, offset: int, log_start: int) -> Fetched:
        """A follower has everything from `log_start` to `offset`: see `PartitionState.fetched`."""
        min_insync = self.log.state.config.min_insync_replicas
        fetched = self.state.fetched(node_id, broker_epoch, offset, self._now_ms(), min_insync, log_start)
        if fetched.moved:
            self._committed(0)
        return fetched

    def shrink(self) -> AlterIsr | None:
        """Looks for followers that have fallen behind; what the controller is to be asked for, if any."""
        self.reached(self.state.log_end, 0)  # it may have waited for one that will no longer join
        return self.state.shrink(self._now_ms())

    def altered(self, asked: AlterIsr, error: ErrorCode, partition: Partition | None) -> AlterIsr | None:
        """The controller answered a change of the in-sync set; what to ask for again, if anything."""
        min_insync = self.log.state.config.min_insync_replicas
        before = self.state.isr
        outcome = self.state.altered(asked, error, partition, self._now_ms(), min_insync)
        if outcome.moved:
            self._committed(0)
        if self.state.isr != before:
            # A follower that left the set does not rest: the metadata, which come later, bring nothing new.
            for waiter in list(self.follower_waiters):
                waiter.moved(self, 0)
        return outcome.retry

    def followed(self, high_watermark: int, log_start_offset: int) -> None:
        """Its log, as far as it reaches now, is its leader's, whose watermarks are these."""
        log = self.log
        if log.state.producers.unstable is not self.state.unstable:
            self.transactions_changed()
        moved = self.state.followed(log.bounds.end_offset, high_watermark)
        if log.bounds.log_start_offset < log_start_offset <= self.state.high_watermark:
            self.delete_before(log_start_offset)
        if moved and self.fetch_waiters:
            self._committed(0)

    def delete_before(self, offset: int) -> None:
        """Its log begins there from now on, unless it begins behind that already."""
        self.log.delete_records_before(offset)
        self.begins_later()

    def was_cut(self) -> None:
        """Its log was cut to its leader's, or begins elsewhere."""
        log = self.log
        self.state.begins_at(log.log_start_offset)
        self.cuts += 1
        self.state.truncated(log.end_offset, log.state.producers.unstable)
        # What a leader's log begins with is committed.
        self.state.followed(log.bounds.end_offset, log.log_start_offset)
        self.touch()

    def is_synced(self, offset: int) -> bool:
        """Whether everything below `offset` is on disk."""
        assert self.flush_gated
        return self.log.flushing.flushed_offset >= offset

    def wait_for_sync(self, offset: int, completion: Completion[ErrorCode]) -> None:
        """Completes with NONE once everything below `offset` is on disk, or with an error."""
        assert self.flush_gated
        self.sync_waiters.add(offset, completion)

    def touch(self) -> None:
        """Has the waiting fetches look again: a log start, a stable offset or a leader changed."""
        for waiter in [*self.fetch_waiters, *self.follower_waiters]:
            waiter.moved(self, 0)

    # --- waiting

    def acknowledged(self, offset: int, needs_all: bool) -> ErrorCode | None:
        """Returns NONE if everything below `offset` may be acknowledged, an error if it will not be, and None if that
        is not known yet.

        Three conditions, each its own: what the producer asked for (`needs_all`: acks=all), how far the in-sync
        replicas are, and how far this broker's disk is, if acknowledgements wait for it.
        """
        if self.error:
            return self.error
        if needs_all:
            return self._enough() if self.state.high_watermark >= offset else None
        return None if self.flush_gated and self.log.flushing.flushed_offset < offset else ErrorCode.NONE

    def wait(self, offset: int, needs_all: bool, completion: Completion[ErrorCode], deadline: float) -> bool:
        """Completes when `acknowledged` is known, or with REQUEST_TIMED_OUT at the `deadline`. Returns whether
        `wake_at` is earlier by it."""
        waiters = self.offset_waiters if needs_all else self.sync_waiters
        return waiters.add(offset, completion, deadline)

    @property
    def wake_at(self) -> float:
        """Nobody who waits for an acknowledgement has a deadline before this; infinity while nobody has one."""
        return min(self.offset_waiters.wake_at, self.sync_waiters.wake_at)

    def expire(self, now: float) -> None:
        """Answers those whose deadline has come."""
        for completion in [*self.offset_waiters.expire(now), *self.sync_waiters.expire(now)]:
            completion.complete(ErrorCode.REQUEST_TIMED_OUT)

    def refuse_waiting(self, error: ErrorCode) -> None:
        """Answers everyone who waits for an acknowledgement."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for completion in [*self.offset_waiters.take_all(), *self.sync_waiters.take_all()]:
            completion.complete(error)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
