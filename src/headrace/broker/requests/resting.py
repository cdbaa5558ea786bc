"""The partitions of a session that rest: they cost nothing until they move.

A follower has one session with each leader, of thousands of partitions, and fetches twice a second; a consumer may have
as many. A partition rests while the reader has all there is, and has been sent that: its fetch would only note the time
of a follower's, which is noted once for all of them. A partition that rests is watched like one that a fetch
waits for, from one fetch to the next. It wakes with an append, another epoch or in-sync set, another start of its log,
when the request names it, and when the follower begins another life. The next fetch looks at it, and has it rest again.
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
"""Partitions of a consumer's session from which on they may rest; of fewer it costs less to look at each."""


class WaitingFetch(Protocol):
    """A fetch of the session that waits for more."""

    def woke(self, replica: Replica, byte_count: int) -> None:
        """A partition that rested moved: see `FetchWaiter.moved`."""
        ...


class Resting(ABC):
    """See the module. The state of a session, for consumers and followers."""

    def __init__(self, resources: Resources, partitions: Iterable[SessionPartition]) -> None:
        """`partitions` are those of the session, `resources` those of its logs."""
        self.awake = dict.fromkeys(partitions)
        """Those that do not rest, in the order in which they take their turn."""
        self.waiting: dict[WaitingFetch, None] = {}
        self._resources = resources
        self._starts = resources.starts
        self._at_rest: dict[Replica, SessionPartition] = {}
        self._lies_at: dict[SessionPartition, Replica] = {}

    def __len__(self) -> int:
        """How many rest."""
        return len(self._at_rest)

    @abstractmethod
    def _waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        """Returns where fetches are registered that wait for a replica to change."""

    @abstractmethod
    def _may_rest(self, replica: Replica, partition: SessionPartition) -> bool:
        """Whether a partition may rest."""

    @abstractmethod
    def _woke(self, replica: Replica) -> None:
        """Takes note that a replica rests no longer."""

    # --- a fetch

    def look_at_log_starts(self) -> None:
        """Wakes those whose log start differs from what the reader was sent; checks all if any log start has moved."""
        if self._starts is self._resources.starts:
            return
        self._starts = self._resources.starts
        for replica, partition in list(self._at_rest.items()):
            if partition.sent_log_start_offset != replica.log.bounds.log_start_offset:
                self._wake(replica)

    def lay_down(self, led: Mapping[Key, Replica], partitions: Iterable[SessionPartition]) -> None:
        """Has those of these rest that may, if they are awake; they count as fetched. `led` are those that this broker
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
        """See `FetchWaiter`."""
        self._wake(replica)
        for fetch in list(self.waiting):
            fetch.woke(replica, byte_count)

    def wake_all(self) -> None:
        """None rests."""
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
        """See `Kept`."""
        replica = self._lies_at.get(partition)
        if replica is not None:
            self._wake(replica)
        self.awake[partition] = None

    def forgotten(self, partition: SessionPartition) -> None:
        """See `Kept`."""
        self.named(partition)
        del self.awake[partition]

    def served(self, partition: SessionPartition) -> None:
        """See `Kept`."""
        if partition in self.awake:
            del self.awake[partition]
            self.awake[partition] = None

    def end(self) -> None:
        """See `Kept`."""
        for replica in self._at_rest:
            del self._waiters(replica)[self]
            self._woke(replica)
        self._at_rest.clear()
        self._lies_at.clear()
        self.awake.clear()


class RestingPartitions(Resting):
    """Of a session of `follower`, under the broker epoch of its registration."""

    def __init__(
        self, resources: Resources, partitions: Iterable[SessionPartition], follower: int, broker_epoch: int
    ) -> None:
        super().__init__(resources, partitions)
        self.follower = follower
        self.broker_epoch = broker_epoch
        self._rest = Rest()

    def fetched(self, now_ms: int, *, has_restarted: bool) -> None:
        """The follower asks again for what rests, which counts; not if it `has_restarted`: the request is that of
        an earlier registration then, and each partition refuses it."""
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
    """How a consumer reads its session: partitions rest for as long as it reads alike."""

    committed_only: bool
    generation: int
    """That of the authorizer when it allowed reading the topics."""
    host: str


class RestingForConsumer(Resting):
    """Of a session of a consumer."""

    def __init__(
        self,
        resources: Resources,
        partitions: Iterable[SessionPartition],
        reads: ConsumerReads,
        refuse: Callable[[str], ErrorCode],
    ) -> None:
        """`refuse` returns why a topic may not be read."""
        super().__init__(resources, partitions)
        self.reads = reads
        self._refuse = refuse

    def _waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        return replica.fetch_waiters

    def _woke(self, replica: Replica) -> None:
        """Does nothing: a replica counts nothing of consumers that rest."""

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
