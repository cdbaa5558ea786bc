"""One partition as the broker that holds a replica of it sees it: leader, follower or offline. A pure machine.

It owns the epochs (of leader and partition), the in-sync set and a change of it that is under way, the high watermark,
the last stable offset, and what each follower has fetched. Times are milliseconds of a steady clock, offsets are those
of the partition's log. The shell around it owns the log and the waiting requests: it reports appends, transactions,
fetches and metadata, and carries out the results.

The rules are Kafka's: the high watermark is the lowest end of the maximal in-sync set (what is committed, and what may
be by the time it counts: KIP-497), it waits for a replica that has caught up and may join, and it does not advance
while fewer than min.insync.replicas are in sync. One change of the in-sync set is under way at a time (KIP-497); a
replica joins only with the broker epoch that its broker has now (KIP-841, KIP-903). The last stable offset is the high
watermark, or the first offset below it of a transaction that is open, or whose marker is not committed.
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
"""Transactions that may keep readers of committed records back, as (first offset, offset of the marker); the latter is
beyond every offset while the transaction is open."""
NEVER_MS: Final = -(1 << 62)
"""When a replica caught up that is not known to have done so."""

_REVERTED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller refused the change: the committed in-sync set counts again."""
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
"""Newer metadata are on their way: whether the change was written is not known before they are here."""


class Role(Enum):
    """What a broker is to a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    """Of another broker, or of nobody while there is no leader."""
    OFFLINE = "offline"
    """The replica cannot be used: its disk failed, or a defect made it untrustworthy."""


class AlterIsr(NamedTuple):
    """A change of the in-sync set that the controller is to be asked for: (node id, broker epoch) of each member."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]


class EpochStart(NamedTuple):
    """A leader's first act: its epoch and the end of its log, to be on disk before anything is appended under it."""

    epoch: int
    offset: int


class Fetched(NamedTuple):
    """What a follower's fetch did."""

    error: ErrorCode
    moved: bool = False
    """Whether the high watermark moved."""
    alter: AlterIsr | None = None


class AlterOutcome(NamedTuple):
    """What the controller's answer to a change did."""

    retry: AlterIsr | None = None
    moved: bool = False


class Rest:
    """When a follower last asked for all that is at rest, which it asks for together: one note for thousands."""

    __slots__ = ("fetched_at_ms",)

    def __init__(self) -> None:
        self.fetched_at_ms = NEVER_MS


class Follower:
    """What the leader knows of one other replica."""

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
        """While it is at rest: what it asked for last it asks for again, each time that is noted here."""

    def wake(self) -> None:
        """Takes the follower out of the parked ones: the time of its last fetch is tracked for it alone again."""
        rest, self.rest = self.rest, None
        if rest is not None:
            self.last_caught_up_ms = self.fetched_at_ms = rest.fetched_at_ms

    def lead_again(self, log_end: int, is_in_sync: bool, now_ms: int) -> None:
        """The same leader leads under a new epoch: what was fetched is known, and the patience begins again."""
        self.wake()
        self.leader_end_then = log_end
        self.fetched_at_ms = self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def fetched(self, offset: int, log_start: int, leader_end: int, broker_epoch: int, now_ms: int) -> None:
        """It asked for what comes at `offset`, and so has everything from its log's start to there."""
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
        """Whether it is at the leader's end, or was so within `lag_max_ms`."""
        last_ms = self.last_caught_up_ms if self.rest is None else self.rest.fetched_at_ms
        return self.log_end == leader_end or now_ms - last_ms <= lag_max_ms


class PartitionState:
    """See the module. It begins as a follower of nobody; `high_watermark` is what the checkpoint says, 0 without one.

    `unstable` are the transactions of its log, `lag_max_ms` is replica.lag.time.max.ms.
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
        """The committed in-sync set, in the metadata's order."""
        self.pending: AlterIsr | None = None
        """What the controller was asked for, until what became of it is known."""
        self.high_watermark = high_watermark
        self.unstable = unstable
        self.log_start = log_start
        """Where this broker's log begins: the deleted part of a transaction does not hold back the last stable offset.
        """
        self.last_stable_offset = self._stable()
        """Up to where committed records may be read."""
        self.log_end = high_watermark
        """Everything below it counts as this broker's: what it has written, or synced where that is the rule."""
        self.epoch_start = UNKNOWN
        """The log's end when this broker began to lead under `leader_epoch`."""
        self.followers: dict[int, Follower] = {}
        self.is_alone = False
        """Whether this broker leads and holds the only replica: its own end is the high watermark."""
        self._brokers = NO_BROKERS
        self._lag_max_ms = lag_max_ms

    # --- roles

    def become_leader(self, partition: Partition, log_end: int, now_ms: int, counts_to: int) -> EpochStart | None:
        """Leads, or goes on leading, as the metadata say; what has to be on disk before the first append.

        `log_end` is the log's end, `counts_to` as far as it counts for the high watermark. An older partition epoch
        is no news, and changes nothing. The high watermark stays where it is: `advance` moves it on.
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
            # One that was in sync has the whole patience to come by; one that was not has none.
            return Follower(now_ms if is_in_sync else NEVER_MS)
        if has_new_epoch:
            known.lead_again(log_end, is_in_sync, now_ms)
        return known

    def become_follower(self, partition: Partition) -> bool:
        """Follows the leader that the metadata name, or waits for one; whether it led, or followed another, before."""
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
        """Nothing is known to be here any more, and nothing is counted. Once more is harmless."""
        self.role = Role.OFFLINE
        self.pending = None
        self._end_leadership()

    def _is_old(self, partition: Partition) -> bool:
        """Whether newer metadata were taken already: replayed and late ones are no news (KAFKA-13790)."""
        return (partition.leader_epoch, partition.partition_epoch) < (self.leader_epoch, self.partition_epoch)

    def _take(self, partition: Partition) -> None:
        assert set(partition.isr) <= set(partition.replicas), "only replicas are in sync"
        assert partition.leader_epoch >= self.leader_epoch, "leader epochs never fall"
        if partition.partition_epoch > self.partition_epoch or partition.leader_epoch > self.leader_epoch:
            self.pending = None  # written or not, this is what came of it
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
        """Every replica that is in sync, or may be by now: nothing counts as committed that one of them lacks."""
        if self.pending is None:
            return self.isr
        return self.isr + tuple(each for each, _ in self.pending.members if each not in self.isr)

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        """Whether fewer are in sync than acks=all wants. More than there are replicas cannot be wanted (KIP-966)."""
        return len(self.isr) < min(min_insync_replicas, len(self.replicas))

    def append_counts(self, log_end: int) -> bool:
        """The only replica has everything below `log_end`; whether the high watermark moved. See `is_alone`."""
        self.log_end = log_end
        if log_end <= self.high_watermark:
            return False
        self._commit(log_end)
        return True

    def advance(self, log_end: int, now_ms: int, min_insync_replicas: int) -> bool:
        """This leader has everything below `log_end`; whether the high watermark moved."""
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
        """The high watermark rises, and the last stable offset with it, as far as transactions let it."""
        self.high_watermark = high_watermark
        self.last_stable_offset = self._stable() if self.unstable else high_watermark

    def _stable(self) -> int:
        mark = stable = self.high_watermark
        for first, marker in self.unstable:
            if marker >= mark and first < stable:
                stable = first
        return max(stable, min(mark, self.log_start))

    def begins_at(self, log_start: int) -> None:
        """Records were deleted: the log begins there now."""
        assert log_start >= 0
        self.log_start = log_start
        if self.unstable:
            self.last_stable_offset = self._stable()

    def transactions_are(self, unstable: Unstable) -> None:
        """Takes the transactions of the log after an append changed them; call it before `log_end` moves over it.

        What was stable stays so: a transaction begins at the end of the log, and ends with a marker there. Those that
        are left out have ended, and their markers are committed.
        """
        assert all(first < marker for first, marker in unstable), "a transaction ends behind its first record"
        self.unstable = unstable
        before, self.last_stable_offset = self.last_stable_offset, self._stable()
        assert before <= self.last_stable_offset <= self.high_watermark, "what was read as committed stays so"

    def _is_about_to_join(self, node_id: int, follower: Follower, now_ms: int) -> bool:
        """Whether the high watermark waits for it though it is not in sync yet: else it could never catch up."""
        return follower.is_caught_up(self.log_end, now_ms, self._lag_max_ms) and self._is_eligible(node_id, follower)

    def _is_eligible(self, node_id: int, follower: Follower) -> bool:
        epoch = self._brokers.get(node_id)
        return epoch is not None and follower.broker_epoch in (UNKNOWN, epoch)

    # --- followers, as their leader sees them

    def brokers_are(self, brokers: Mapping[int, int]) -> None:
        """The brokers that may join an in-sync set (unfenced, not shutting down), each with its broker epoch."""
        self._brokers = brokers

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compares the leader epoch that a client or a follower knows (-1: it does not) with ours (KIP-320)."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_follower(self, node_id: int, broker_epoch: int) -> ErrorCode:
        """Whether a broker may fetch as a follower (`broker_epoch` -1: it does not tell which life it lives)."""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if node_id not in self.followers:
            return ErrorCode.UNKNOWN_LEADER_EPOCH  # assigned in metadata that are not here yet, perhaps
        if UNKNOWN < broker_epoch < self._brokers.get(node_id, UNKNOWN):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the fetch of an earlier life
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
        """A follower has fetched at `offset`, and its log begins at `log_start` (-1: it does not tell); not to be
        called for a fetch that was answered with a divergence."""
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
        """Has a follower rest where `fetched` does no more than to take note of the time: it is in sync and asks for
        the same as before, and everything there is is committed. It counts as fetched whenever `rest` is noted, until
        it wakes. False, and nothing is done, where there may be more to do.

        The caller wakes it earlier if any of this changes: an append, the leader's epoch or the in-sync set, the
        request, the life of the follower.
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
        """A follower that rested is looked at again; no news where it has fetched in another way since."""
        follower = self.followers.get(node_id)
        if follower is not None and follower.rest is rest:
            follower.wake()

    def low_watermark(self, log_start: int) -> int:
        """Where the partition begins for sure, while this leader's log begins at `log_start`: the lowest start of the
        replicas whose brokers serve; -1 if one of them has not sent its own yet."""
        assert self.role is Role.LEADER
        starts = [each.log_start for node_id, each in self.followers.items() if node_id in self._brokers]
        return min([log_start, *starts])

    def _may_join(self, node_id: int, follower: Follower) -> bool:
        """Whether it has all that is committed, and nothing that was deleted: its log start may have gone back in a
        kill, and as the next leader it would make deleted records readable again."""
        reached = follower.log_end >= self.high_watermark and follower.log_end >= self.epoch_start
        begins_there = follower.log_start == UNKNOWN or follower.log_start >= self.log_start
        return reached and begins_there and self._is_eligible(node_id, follower)

    def shrink(self, now_ms: int) -> AlterIsr | None:
        """Looks for members that have fallen behind, each half of replica.lag.time.max.ms; what to ask for, if any."""
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
        """The controller answered a change: with the partition as it is now, or with an error.

        An answer to a change that is not pending any more says nothing: metadata were faster.
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
            self.pending = None  # of the same partition epoch: nothing was written, it was so already
            assert self.node_id in partition.isr and set(partition.isr) <= set(self.replicas)
            self.isr = partition.isr
            self.partition_epoch = partition.partition_epoch
        return AlterOutcome(moved=self._move(now_ms, min_insync_replicas))

    # --- as a follower

    def followed(self, log_end: int, leader_high_watermark: int) -> bool:
        """A follower's log reaches to `log_end` now, and its leader's high watermark is known; whether ours moved."""
        assert self.role is Role.FOLLOWER
        self.log_end = log_end
        known = min(log_end, leader_high_watermark)
        if known <= self.high_watermark:
            return False
        self._commit(known)
        return True

    def truncated(self, log_end: int, unstable: Unstable = ()) -> None:
        """A follower's log was cut to its leader's, and these are its transactions: the only way in which a high
        watermark falls, or a last stable offset."""
        assert self.role is Role.FOLLOWER
        self.log_end = log_end
        self.unstable = unstable
        self._commit(min(self.high_watermark, log_end))
