"""A partition on a broker that holds a replica of it: leader, follower or offline. A pure machine.

It owns the leader and partition epochs, the ISR and a pending change of it, the high watermark, the last stable offset,
and the fetch state of each follower. Times are milliseconds of a monotonic clock, offsets are those of the partition's
log. The shell owns the log and the waiting requests: it reports appends, transactions, fetches and metadata, and
carries out the results.

The rules are Kafka's. The high watermark is the lowest log end of the maximal ISR (the committed ISR and the members of
a pending change: KIP-497). It waits for a replica that has caught up and may join, and does not advance while the ISR
is smaller than min.insync.replicas. At most one ISR change is pending (KIP-497). A replica joins only with the current
epoch of its broker (KIP-841, KIP-903). The last stable offset is the high watermark, or the first offset below it of a
transaction that is open or whose marker is not committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from headrace.metadata.image import NO_LEADER, Partition
from headrace.wire.errors import ErrorCode

UNKNOWN: Final = -1
"""An offset or an epoch that is not known yet."""
NO_BROKERS: Final[Mapping[int, int]] = {}
Unstable = tuple[tuple[int, int], ...]
"""Transactions that may limit the last stable offset, as (first offset, marker offset). The marker offset of an open
transaction is beyond every offset."""
NEVER_MS: Final = -(1 << 62)
"""The catch-up time of a replica that is not known to have caught up."""

_REVERTED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""Errors by which the controller refused the change: the committed ISR applies again."""
_SETTLED_BY_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Errors after which only newer metadata tell whether the change was written."""


class Role(Enum):
    """The role of a broker for a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    """Follows another broker, or waits while there is no leader."""
    OFFLINE = "offline"
    """The replica cannot be used: its disk failed, or a defect was found in it."""


class AlterIsr(NamedTuple):
    """An ISR change to request from the controller: (node id, broker epoch) of each member."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]


class EpochStart(NamedTuple):
    """The start of a leader's epoch, to be on disk before the first append: the epoch and the end of the log."""

    epoch: int
    offset: int


class Fetched(NamedTuple):
    """The result of a follower's fetch."""

    error: ErrorCode
    moved: bool = False
    """Whether the high watermark moved."""
    alter: AlterIsr | None = None


class AlterOutcome(NamedTuple):
    """The result of the controller's answer to an ISR change."""

    retry: AlterIsr | None = None
    moved: bool = False


class Rest:
    """The time of the last fetch of a follower's parked partitions: one shared object for thousands of them."""

    __slots__ = ("fetched_at_ms",)

    def __init__(self) -> None:
        self.fetched_at_ms = NEVER_MS


class Follower:
    """The leader's view of one other replica."""

    __slots__ = (
        "broker_epoch",
        "fetched_at_ms",
        "last_caught_up_ms",
        "leader_end_then",
        "log_end",
        "log_start",
        "rest",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_end = UNKNOWN
        self.log_start = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.fetched_at_ms = NEVER_MS
        self.leader_end_then = UNKNOWN
        """The leader's log end at this follower's last fetch."""
        self.last_caught_up_ms = last_caught_up_ms
        self.rest: Rest | None = None
        """Set while the follower is parked: its last fetch counts as repeated at the time noted there."""

    def wake(self) -> None:
        """Unparks the follower: the time of its last fetch is tracked for it alone again."""
        rest, self.rest = self.rest, None
        if rest is not None:
            self.last_caught_up_ms = self.fetched_at_ms = rest.fetched_at_ms

    def lead_again(self, log_end: int, is_in_sync: bool, now_ms: int) -> None:
        """Starts a new epoch of the same leader: the follower's log end is kept, and its lag timeout starts again."""
        self.wake()
        self.leader_end_then = log_end
        self.fetched_at_ms = self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def fetched(self, offset: int, log_start: int, leader_end: int, broker_epoch: int, now_ms: int) -> None:
        """Notes a fetch at `offset`: the follower has everything from its log start up to there."""
        self.wake()
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leader_end_then:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.fetched_at_ms)
        self.log_end = offset
        self.log_start = log_start
        self.broker_epoch = broker_epoch
        self.fetched_at_ms = now_ms
        self.leader_end_then = max(leader_end, self.leader_end_then)

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Returns whether the follower is at the leader's log end, or was there within `lag_max_ms`."""
        last_ms = self.last_caught_up_ms if self.rest is None else self.rest.fetched_at_ms
        return self.log_end == leader_end or now_ms - last_ms <= lag_max_ms


class PartitionState:
    """The replication state of one partition. It starts as a follower without a leader.

    `high_watermark` is that of the checkpoint (0 without one), `unstable` are the transactions of the log, and
    `lag_max_ms` is replica.lag.time.max.ms.
    """

    __slots__ = (
        "_brokers",
        "_lag_max_ms",
        "epoch_start",
        "followers",
        "high_watermark",
        "is_alone",
        "isr",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "log_end",
        "log_start",
        "node_id",
        "partition_epoch",
        "pending",
        "replicas",
        "role",
        "unstable",
    )

    def __init__(
        self,
        node_id: int,
        high_watermark: int = 0,
        *,
        unstable: Unstable = (),
        log_start: int = 0,
        lag_max_ms: int = 30_000,
    ) -> None:
        assert high_watermark >= 0
        self.node_id = node_id
        self.role = Role.FOLLOWER
        self.leader = NO_LEADER
        self.leader_epoch = UNKNOWN
        self.partition_epoch = UNKNOWN
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """The committed ISR, in the metadata's order."""
        self.pending: AlterIsr | None = None
        """The ISR change requested from the controller whose outcome is not known yet."""
        self.high_watermark = high_watermark
        self.unstable = unstable
        self.log_start = log_start
        """This broker's log start offset. The deleted part of a transaction does not limit the last stable offset."""
        self.last_stable_offset = self._stable()
        """The offset below which `read_committed` consumers may read."""
        self.log_end = high_watermark
        """The end of this broker's log as it counts for the high watermark: what is written, or synced if the flush
        policy demands it."""
        self.epoch_start = UNKNOWN
        """The log end at the start of this broker's leadership under `leader_epoch`."""
        self.followers: dict[int, Follower] = {}
        self.is_alone = False
        """Whether this broker leads and holds the only replica: the high watermark is its own log end."""
        self._brokers = NO_BROKERS
        self._lag_max_ms = lag_max_ms

    # --- roles

    def become_leader(self, partition: Partition, log_end: int, now_ms: int, counts_to: int) -> EpochStart | None:
        """Becomes or remains leader as the metadata say. Returns the epoch start to store before the first append, if
        any.

        `log_end` is the end of the log, `counts_to` the part of it that counts for the high watermark. An older
        partition epoch changes nothing. The high watermark does not move: `advance` moves it.
        """
        assert self.role is not Role.OFFLINE, "a replica that is offline stays so until the next start"
        assert partition.leader == self.node_id, "the metadata name another leader"
        assert self.node_id in partition.isr, "a leader is in sync with itself"
        assert counts_to <= log_end and self.high_watermark <= log_end, "only entries in the log count"
        if self._is_old(partition):
            return None
        is_new = self.role is not Role.LEADER
        has_new_epoch = is_new or partition.leader_epoch > self.leader_epoch
        self.role = Role.LEADER
        self._take(partition)
        self.followers = {
            each: self._follower(each, is_new, has_new_epoch, log_end, now_ms)
            for each in partition.replicas
            if each != self.node_id
        }
        self.is_alone = not self.followers
        assert all(each == self.node_id or each in self.followers for each in self.isr), "in sync is who fetches here"
        if is_new:
            self.log_end = max(counts_to, self.high_watermark)
        if not has_new_epoch:
            return None
        self.epoch_start = log_end
        return EpochStart(self.leader_epoch, log_end)

    def _follower(self, node_id: int, is_new: bool, has_new_epoch: bool, log_end: int, now_ms: int) -> Follower:
        known = self.followers.get(node_id)
        is_in_sync = node_id in self.isr
        if is_new or known is None:
            # An in-sync replica has the whole lag timeout to fetch; any other has none.
            return Follower(now_ms if is_in_sync else NEVER_MS)
        if has_new_epoch:
            known.lead_again(log_end, is_in_sync, now_ms)
        return known

    def become_follower(self, partition: Partition) -> bool:
        """Follows the leader of the metadata, or waits for one. Returns whether it led or followed another leader
        before."""
        assert self.role is not Role.OFFLINE, "a replica that is offline stays so until the next start"
        assert partition.leader != self.node_id
        if self._is_old(partition):
            return False
        changed = self.role is Role.LEADER or partition.leader_epoch > self.leader_epoch
        self.role = Role.FOLLOWER
        self._take(partition)
        self._end_leadership()
        return changed

    def become_offline(self) -> None:
        """Goes offline: drops the pending ISR change and the followers. Idempotent."""
        self.role = Role.OFFLINE
        self.pending = None
        self._end_leadership()

    def _is_old(self, partition: Partition) -> bool:
        """Returns whether newer metadata were applied already (KAFKA-13790)."""
        return (partition.leader_epoch, partition.partition_epoch) < (self.leader_epoch, self.partition_epoch)

    def _take(self, partition: Partition) -> None:
        assert set(partition.isr) <= set(partition.replicas), "only replicas are in sync"
        assert partition.leader_epoch >= self.leader_epoch, "leader epochs never fall"
        if partition.partition_epoch > self.partition_epoch or partition.leader_epoch > self.leader_epoch:
            self.pending = None  # settled by the new epoch, written or not
        self.leader = partition.leader
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.replicas = partition.replicas
        self.isr = partition.isr

    def _end_leadership(self) -> None:
        self.followers = {}
        self.is_alone = False
        self.epoch_start = UNKNOWN

    # --- the in-sync set and the high watermark

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The committed ISR and the members of a pending change: an offset is committed only if all of them have it."""
        if self.pending is None:
            return self.isr
        return self.isr + tuple(each for each, _ in self.pending.members if each not in self.isr)

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        """Returns whether the ISR is smaller than acks=all requires: at most the number of replicas (KIP-966)."""
        return len(self.isr) < min(min_insync_replicas, len(self.replicas))

    def append_counts(self, log_end: int) -> bool:
        """Sets the log end of the only replica (see `is_alone`); returns whether the high watermark moved."""
        self.log_end = log_end
        if log_end <= self.high_watermark:
            return False
        self._commit(log_end)
        return True

    def advance(self, log_end: int, now_ms: int, min_insync_replicas: int) -> bool:
        """Sets this leader's log end; returns whether the high watermark moved."""
        assert self.role is Role.LEADER
        assert log_end >= self.log_end, "a leader's log only grows"
        self.log_end = log_end
        return self._move(now_ms, min_insync_replicas)

    def _move(self, now_ms: int, min_insync_replicas: int) -> bool:
        if self.high_watermark >= self.log_end:  # as on every fetch of an idle partition
            return False
        if self.is_under_min_isr(min_insync_replicas):
            return False
        maximal = self.maximal_isr
        lowest = self.log_end
        for node_id, follower in self.followers.items():
            if follower.log_end < lowest and (node_id in maximal or self._is_about_to_join(node_id, follower, now_ms)):
                lowest = follower.log_end
        if lowest <= self.high_watermark:
            return False
        self._commit(lowest)
        return True

    def _commit(self, high_watermark: int) -> None:
        """Raises the high watermark, and the last stable offset as far as transactions allow."""
        self.high_watermark = high_watermark
        self.last_stable_offset = self._stable() if self.unstable else high_watermark

    def _stable(self) -> int:
        mark = stable = self.high_watermark
        for first, marker in self.unstable:
            if marker >= mark and first < stable:
                stable = first
        return max(stable, min(mark, self.log_start))

    def begins_at(self, log_start: int) -> None:
        """Sets the log start offset after records were deleted."""
        assert log_start >= 0
        self.log_start = log_start
        if self.unstable:
            self.last_stable_offset = self._stable()

    def transactions_are(self, unstable: Unstable) -> None:
        """Sets the transactions of the log after an append changed them. Call it before `log_end` passes the append.

        The last stable offset never falls here: a transaction begins and ends at the end of the log. Omitted
        transactions have ended, and their markers are committed.
        """
        assert all(first < marker for first, marker in unstable), "a transaction ends behind its first record"
        self.unstable = unstable
        before, self.last_stable_offset = self.last_stable_offset, self._stable()
        assert before <= self.last_stable_offset <= self.high_watermark, "what was read as committed stays so"

    def _is_about_to_join(self, node_id: int, follower: Follower, now_ms: int) -> bool:
        """Returns whether the high watermark waits for this follower before it is in sync; otherwise it could never
        catch up."""
        return follower.is_caught_up(self.log_end, now_ms, self._lag_max_ms) and self._is_eligible(node_id, follower)

    def _is_eligible(self, node_id: int, follower: Follower) -> bool:
        epoch = self._brokers.get(node_id)
        return epoch is not None and follower.broker_epoch in (UNKNOWN, epoch)

    # --- followers, as their leader sees them

    def brokers_are(self, brokers: Mapping[int, int]) -> None:
        """Sets the brokers that may join an ISR (unfenced, not shutting down), each with its broker epoch."""
        self._brokers = brokers

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compares the leader epoch of a client or follower (-1: unknown) with the partition's (KIP-320)."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_follower(self, node_id: int, broker_epoch: int) -> ErrorCode:
        """Returns whether a broker may fetch as a follower. `broker_epoch` is -1 if the request does not carry it."""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if node_id not in self.followers:
            return ErrorCode.UNKNOWN_LEADER_EPOCH  # perhaps assigned in newer metadata
        if UNKNOWN < broker_epoch < self._brokers.get(node_id, UNKNOWN):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the fetch of an earlier broker epoch
        return ErrorCode.NONE

    def fetched(
        self,
        node_id: int,
        broker_epoch: int,
        offset: int,
        now_ms: int,
        min_insync_replicas: int,
        log_start: int = UNKNOWN,
    ) -> Fetched:
        """Records a follower's fetch at `offset`; `log_start` is -1 if unknown. Not to be called for a fetch that was
        answered with a divergence."""
        refused = self.check_follower(node_id, broker_epoch)
        if refused:
            return Fetched(refused)
        follower = self.followers[node_id]
        follower.fetched(offset, log_start, self.log_end, broker_epoch, now_ms)
        alter = None
        if self.pending is None and node_id not in self.isr and self._may_join(node_id, follower):
            alter = self._ask_for((*self.isr, node_id))
        return Fetched(ErrorCode.NONE, self._move(now_ms, min_insync_replicas), alter)

    def rests(self, node_id: int, broker_epoch: int, offset: int, log_start: int, rest: Rest) -> bool:
        """Parks a follower if `fetched` would only update the time of its last fetch: it is in sync, repeats its last
        fetch, and everything in the log is committed. It then counts as fetched at the time noted in `rest`, until it
        is unparked. Returns False, and changes nothing, otherwise.

        The caller unparks it with `wakes` if any of this changes: an append, the leader epoch, the ISR, the request or
        the follower's broker epoch.
        """
        follower = self.followers.get(node_id)
        if (
            follower is None
            or not offset == self.log_end == self.high_watermark == follower.log_end
            or log_start != follower.log_start
            or broker_epoch != follower.broker_epoch
            or node_id not in self.isr
            or UNKNOWN < broker_epoch < self._brokers.get(node_id, UNKNOWN)
        ):
            return False
        follower.rest = rest
        return True

    def wakes(self, node_id: int, rest: Rest) -> None:
        """Unparks a follower; does nothing if it has fetched outside of `rest` since."""
        follower = self.followers.get(node_id)
        if follower is not None and follower.rest is rest:
            follower.wake()

    def low_watermark(self, log_start: int) -> int:
        """Returns the lowest log start offset of the leader (`log_start`) and of the followers on active brokers; -1 if
        one of these has not sent its own yet."""
        assert self.role is Role.LEADER
        starts = [each.log_start for node_id, each in self.followers.items() if node_id in self._brokers]
        return min([log_start, *starts])

    def _may_join(self, node_id: int, follower: Follower) -> bool:
        """Returns whether a follower may join the ISR: it has all committed records and no deleted ones. Its log start
        may have gone back in a crash, and as leader it would make deleted records readable again."""
        reached = follower.log_end >= self.high_watermark and follower.log_end >= self.epoch_start
        begins_there = follower.log_start == UNKNOWN or follower.log_start >= self.log_start
        return reached and begins_there and self._is_eligible(node_id, follower)

    def shrink(self, now_ms: int) -> AlterIsr | None:
        """Returns an ISR change without the members that fell behind, if any. To be called every half of
        replica.lag.time.max.ms."""
        if self.role is not Role.LEADER or self.pending is not None:
            return None
        kept = tuple(
            each
            for each in self.isr
            if each == self.node_id or self.followers[each].is_caught_up(self.log_end, now_ms, self._lag_max_ms)
        )
        assert self.node_id in kept, "a leader is in sync with itself"
        return self._ask_for(kept) if kept != self.isr else None

    def _ask_for(self, isr: tuple[int, ...]) -> AlterIsr:
        assert self.role is Role.LEADER, "a leader alone asks"
        assert self.node_id in isr and self.pending is None, "one change at a time, and never without its leader"
        members = tuple((each, self._broker_epoch(each)) for each in isr)
        self.pending = AlterIsr(self.leader_epoch, self.partition_epoch, members)
        return self.pending

    def _broker_epoch(self, node_id: int) -> int:
        follower = self.followers.get(node_id)
        return follower.broker_epoch if follower is not None else self._brokers.get(node_id, UNKNOWN)

    def altered(
        self, request: AlterIsr, error: ErrorCode, partition: Partition | None, now_ms: int, min_insync_replicas: int
    ) -> AlterOutcome:
        """Takes the controller's answer to an ISR change: the current partition, or an error.

        An answer to a change that is no longer pending is ignored: newer metadata have settled it.
        """
        if request is not self.pending:
            return AlterOutcome()
        if error in _REVERTED:
            self.pending = None
        elif error in _SETTLED_BY_METADATA:
            return AlterOutcome()
        elif error is not ErrorCode.NONE:
            return AlterOutcome(retry=request)
        else:
            assert partition is not None, "a success tells the written partition"
            if partition.leader_epoch != self.leader_epoch or partition.partition_epoch < self.partition_epoch:
                return AlterOutcome()
            self.pending = None  # an equal partition epoch means that nothing had to be written
            assert self.node_id in partition.isr and set(partition.isr) <= set(self.replicas)
            self.isr = partition.isr
            self.partition_epoch = partition.partition_epoch
        return AlterOutcome(moved=self._move(now_ms, min_insync_replicas))

    # --- as a follower

    def followed(self, log_end: int, leader_high_watermark: int) -> bool:
        """Sets a follower's log end, and raises its high watermark to the leader's; returns whether it moved."""
        assert self.role is Role.FOLLOWER
        self.log_end = log_end
        known = min(log_end, leader_high_watermark)
        if known <= self.high_watermark:
            return False
        self._commit(known)
        return True

    def truncated(self, log_end: int, unstable: Unstable = ()) -> None:
        """Sets the log end and the transactions after a follower's log was truncated. Only here the high watermark and
        the last stable offset may fall."""
        assert self.role is Role.FOLLOWER
        self.log_end = log_end
        self.unstable = unstable
        self._commit(min(self.high_watermark, log_end))
