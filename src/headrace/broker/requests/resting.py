"""The partitions of a follower's session that rest: they cost nothing until they move.

A follower has one session with each leader, of thousands of partitions, and fetches twice a second. A partition rests
while the follower has all there is, everything is committed, and it was told so: its fetch would do no more than to
note the time, which is noted once for all of them. A partition that rests is watched like one that a fetch waits for,
from one fetch to the next. It wakes with an append, another epoch or in-sync set, another start of its log, when the
request names it, and when the follower begins another life. The next fetch looks at it, and has it rest again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from headrace.replicas.partition import Rest

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import Key, Replica
    from headrace.log.resources import Resources
    from headrace.replicas.sessions import SessionPartition


class WaitingFetch(Protocol):
    """A fetch of the session that waits for more."""

    def woke(self, replica: Replica, byte_count: int) -> None:
        """A partition that rested moved: see `FetchWaiter.moved`."""
        ...


class RestingPartitions:
    """See the module. What is kept of a session of `follower`, under the broker epoch of its registration."""

    def __init__(
        self, resources: Resources, partitions: Iterable[SessionPartition], follower: int, broker_epoch: int
    ) -> None:
        """`partitions` are those of the session, `resources` those of its logs."""
        self.follower = follower
        self.broker_epoch = broker_epoch
        self.awake = dict.fromkeys(partitions)
        """Those that do not rest, in the order in which they take their turn."""
        self.waiting: dict[WaitingFetch, None] = {}
        self._resources = resources
        self._starts = resources.starts
        self._rest = Rest()
        self._at_rest: dict[Replica, SessionPartition] = {}
        self._lies_at: dict[SessionPartition, Replica] = {}

    def __len__(self) -> int:
        """How many rest."""
        return len(self._at_rest)

    # --- a fetch

    def fetched(self, now_ms: int, *, has_begun_anew: bool) -> None:
        """The follower asks again for what rests, which counts; not where it `has_begun_anew`: it is an earlier life's
        request then, and each partition says so."""
        if has_begun_anew:
            for replica in list(self._at_rest):
                self._wake(replica)
        self._rest.fetched_at_ms = now_ms
        self.look_at_log_starts()

    def look_at_log_starts(self) -> None:
        """Wakes those whose logs begin elsewhere than the follower was told; looks at all where any log does."""
        if self._starts is self._resources.starts:
            return
        self._starts = self._resources.starts
        for replica, partition in list(self._at_rest.items()):
            if partition.told_log_start_offset != replica.log.log_start_offset:
                self._wake(replica)

    def lay_down(self, led: Mapping[Key, Replica]) -> None:
        """Has those rest that may, of what is awake; they count as fetched. `led` are those that this broker leads."""
        for partition in list(self.awake):
            replica = led.get((partition.topic, partition.index))
            if replica is not None and replica not in self._at_rest and self._may_rest(replica, partition):
                del self.awake[partition]
                self._at_rest[replica] = partition
                self._lies_at[partition] = replica
                replica.follower_waiters[self] = None

    def _may_rest(self, replica: Replica, partition: SessionPartition) -> bool:
        state, log, offset = replica.state, replica.log, partition.fetch_offset
        if (
            replica.error
            or offset != log.end_offset
            or partition.current_leader_epoch != state.leader_epoch
            or partition.told_high_watermark != state.high_watermark
            or partition.told_log_start_offset != log.log_start_offset
        ):
            return False
        epoch = partition.last_fetched_epoch
        if epoch not in (-1, log.epochs.latest) and log.end_offset_for_epoch(epoch) != (epoch, offset):
            return False
        return state.rests(self.follower, self.broker_epoch, offset, partition.follower_log_start, self._rest)

    # --- waking

    def moved(self, replica: Replica, byte_count: int) -> None:
        """See `FetchWaiter`."""
        self._wake(replica)
        for fetch in list(self.waiting):
            fetch.woke(replica, byte_count)

    def _wake(self, replica: Replica) -> None:
        partition = self._at_rest.pop(replica)
        del self._lies_at[partition]
        del replica.follower_waiters[self]
        replica.state.wakes(self.follower, self._rest)
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
        for replica in list(self._at_rest):
            self._wake(replica)
        self.awake.clear()
