"""Idle partitions of a fetch session: they rest, and cost nothing until they change.

A follower has one session with each leader, with thousands of partitions, and fetches twice a second; a consumer may
have as many. A partition rests while the reader has all of its data and has been sent its current offsets. A follower's
fetch would only update the fetch time, which is kept once for all resting partitions. A resting partition is watched,
from one fetch to the next, like one that a fetch waits for. It wakes with an append, another leader epoch or in-sync
set, another log start offset, when the request names it, and when the follower restarts. The next fetch checks it, and
lets it rest again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headrace.replicas.partition import Rest
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import FetchWaiter, Key, Replica
    from headrace.log.resources import Resources
    from headrace.replicas.sessions import SessionPartition

CONSUMERS_REST_FROM: Final = 64
"""Least partitions of a consumer's session with resting partitions; with fewer it is cheaper to check each."""


class WaitingFetch(Protocol):
    """A fetch of the session that waits for more data."""

    def woke(self, replica: Replica, byte_count: int) -> None:
        """Handles a change of a partition that rested (`FetchWaiter.moved`)."""
        ...


class Resting(ABC):
    """The resting partitions of one session, of a consumer or a follower."""

    def __init__(self, resources: Resources, partitions: Iterable[SessionPartition]) -> None:
        """`partitions` are those of the session, `resources` those of its logs."""
        self.awake = dict.fromkeys(partitions)
        """Partitions that do not rest, in the order in which they are read."""
        self.waiting: dict[WaitingFetch, None] = {}
        """Fetches of the session that wait for more data."""
        self._resources = resources
        self._starts = resources.starts
        """The `Resources.starts` at the last check; another object means that a log start offset has moved."""
        self._at_rest: dict[Replica, SessionPartition] = {}
        """Resting partitions, by replica."""
        self._lies_at: dict[SessionPartition, Replica] = {}
        """Replicas of resting partitions."""

    def __len__(self) -> int:
        """Returns the number of resting partitions."""
        return len(self._at_rest)

    @abstractmethod
    def _waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        """Returns the registry of the fetches that wait for a replica to change."""

    @abstractmethod
    def _may_rest(self, replica: Replica, partition: SessionPartition) -> bool:
        """Returns whether a partition may rest."""

    @abstractmethod
    def _woke(self, replica: Replica) -> None:
        """Handles the end of a replica's rest."""

    # --- a fetch

    def look_at_log_starts(self) -> None:
        """Wakes partitions whose log start offset differs from what the reader was sent. Checks all if any log start
        has moved."""
        if self._starts is self._resources.starts:
            return
        self._starts = self._resources.starts
        for replica, partition in list(self._at_rest.items()):
            if partition.sent_log_start_offset != replica.log.bounds.log_start_offset:
                self._wake(replica)

    def lay_down(self, led: Mapping[Key, Replica], partitions: Iterable[SessionPartition]) -> None:
        """Lets those awake partitions rest that may; they count as fetched. `led` has the replicas that this broker
        leads."""
        awake = self.awake
        for partition in partitions:
            replica = led.get((partition.topic, partition.index))
            if replica is None or replica in self._at_rest or partition not in awake:
                continue
            if self._may_rest(replica, partition):
                del awake[partition]
                self._at_rest[replica] = partition
                self._lies_at[partition] = replica
                self._waiters(replica)[self] = None

    # --- waking

    def moved(self, replica: Replica, byte_count: int) -> None:
        """Wakes a partition whose replica changed, and notifies the waiting fetches."""
        self._wake(replica)
        for fetch in list(self.waiting):
            fetch.woke(replica, byte_count)

    def wake_all(self) -> None:
        """Wakes all partitions."""
        for replica in list(self._at_rest):
            self._wake(replica)

    def _wake(self, replica: Replica) -> None:
        partition = self._at_rest.pop(replica)
        del self._lies_at[partition]
        del self._waiters(replica)[self]
        self._woke(replica)
        self.awake[partition] = None

    # --- the session

    def named(self, partition: SessionPartition) -> None:
        """Wakes a partition that a request adds or changes."""
        replica = self._lies_at.get(partition)
        if replica is not None:
            self._wake(replica)
        self.awake[partition] = None

    def forgotten(self, partition: SessionPartition) -> None:
        """Removes a partition that left the session."""
        self.named(partition)
        del self.awake[partition]

    def served(self, partition: SessionPartition) -> None:
        """Moves a partition to the end of the order, as it has been served."""
        if partition in self.awake:
            del self.awake[partition]
            self.awake[partition] = None

    def end(self) -> None:
        """Stops watching, as the session is over."""
        for replica in self._at_rest:
            del self._waiters(replica)[self]
            self._woke(replica)
        self._at_rest.clear()
        self._lies_at.clear()
        self.awake.clear()


class RestingPartitions(Resting):
    """The resting partitions of a session of `follower`, under the broker epoch of its registration."""

    def __init__(
        self, resources: Resources, partitions: Iterable[SessionPartition], follower: int, broker_epoch: int
    ) -> None:
        super().__init__(resources, partitions)
        self.follower = follower
        self.broker_epoch = broker_epoch
        self._rest = Rest()
        """The time of the follower's last fetch, shared by all resting partitions."""

    def fetched(self, now_ms: int, *, has_restarted: bool) -> None:
        """Counts the resting partitions as fetched at `now_ms`. If the follower `has_restarted`, wakes them instead:
        the request is from before its restart, and each partition refuses it."""
        if has_restarted:
            self.wake_all()
        self._rest.fetched_at_ms = now_ms
        self.look_at_log_starts()

    def _waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        return replica.follower_waiters

    def _may_rest(self, replica: Replica, partition: SessionPartition) -> bool:
        state, log, offset = replica.state, replica.log, partition.fetch_offset
        if (
            replica.error
            or offset != log.bounds.end_offset
            or partition.current_leader_epoch != state.leader_epoch
            or partition.sent_high_watermark != state.high_watermark
            or partition.sent_log_start_offset != log.bounds.log_start_offset
        ):
            return False
        epoch = partition.last_fetched_epoch
        if epoch not in (-1, log.state.epochs.latest) and log.end_offset_for_epoch(epoch) != (epoch, offset):
            return False
        return state.rests(self.follower, self.broker_epoch, offset, partition.follower_log_start, self._rest)

    def _woke(self, replica: Replica) -> None:
        replica.state.wakes(self.follower, self._rest)


class ConsumerReads(NamedTuple):
    """The terms under which a consumer reads its session. Partitions rest only as long as they stay the same."""

    committed_only: bool
    generation: int
    """The authorizer's generation in which reading the topics was allowed."""
    host: str


class RestingForConsumer(Resting):
    """The resting partitions of a consumer's session."""

    def __init__(
        self,
        resources: Resources,
        partitions: Iterable[SessionPartition],
        reads: ConsumerReads,
        refuse: Callable[[str], ErrorCode],
    ) -> None:
        """`refuse` returns the error if a topic may not be read."""
        super().__init__(resources, partitions)
        self.reads = reads
        self._refuse = refuse

    def _waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        return replica.fetch_waiters

    def _woke(self, replica: Replica) -> None:
        """Does nothing: replicas keep no state of consumers."""

    def _may_rest(self, replica: Replica, partition: SessionPartition) -> bool:
        state, log, offset = replica.state, replica.log, partition.fetch_offset
        if (
            replica.error
            or offset != (state.last_stable_offset if self.reads.committed_only else state.high_watermark)
            or partition.current_leader_epoch not in (-1, state.leader_epoch)
            or partition.sent_high_watermark != state.high_watermark
            or partition.sent_log_start_offset != log.bounds.log_start_offset
        ):
            return False
        epoch = partition.last_fetched_epoch
        if epoch not in (-1, log.state.epochs.latest):
            found, end_offset = log.end_offset_for_epoch(epoch)
            if found != epoch or end_offset < offset:
                return False
        return self._refuse(partition.topic) is ErrorCode.NONE
