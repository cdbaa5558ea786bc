"""Reading for a follower's Fetch request: it reads to the end of the log, and tells with it what it has.

What it asks for at an offset, it has everything before. That moves the high watermark, and may bring it back into the
in-sync set. A follower whose log has gone another way learns where (KIP-595), and counts for nothing meanwhile.

A session has thousands of partitions of which nothing is ever to be said. Where its answer names changes only, those
that rest are not even looked at: see `resting`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.broker.partitions.replica import FetchWaiter, Replica
from headrace.broker.requests.fetching import Answer, Fetch
from headrace.broker.requests.pieces import Steps
from headrace.broker.requests.resting import RestingPartitions
from headrace.log.read_results import Local
from headrace.replicas.sessions import SessionPartition
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import EpochEndOffset, PartitionData

if TYPE_CHECKING:
    from headrace.broker.requests.resting import Resting
    from headrace.broker.requests.services import Services


class FollowerFetch(Fetch):
    """One Fetch request of a follower at work. See `Fetch`."""

    __slots__ = ("_broker_epoch", "_counts_for_rate", "_follower", "_is_counted")

    def __init__(
        self,
        broker: Services,
        partitions: Iterable[SessionPartition],
        *,
        version: int,
        min_bytes: int,
        max_bytes: int,
        refuse: Callable[[str], ErrorCode],
        follower: int,
        broker_epoch: int,
        resting: RestingPartitions | None,
    ) -> None:
        """`follower` is the broker that asks, `broker_epoch` that of its registration, -1 where it does not tell.
        `resting` is what is kept of its session, whose answer need not have what rests; only for who may read every
        topic."""
        super().__init__(
            broker,
            partitions,
            version=version,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=0,
            refuse=refuse,
            resting=resting,
        )
        self._follower = follower
        self._broker_epoch = broker_epoch
        self._is_counted = False
        self._counts_for_rate = 0

    def read(self) -> list[Answer]:
        """Reads as `Fetch.read` does. The first time it counts as what the follower has; what it asked for is old after
        that."""
        self._counts_for_rate = 0
        answers = super().read()
        self._is_counted = True
        return answers

    def reading(self, watch: Callable[[Iterable[SessionPartition]], None] | None) -> Steps[list[Answer]]:
        """See Fetch.reading. It counts the first time, as the first `read` does."""
        self._counts_for_rate = 0
        answers = yield from super().reading(watch)
        self._is_counted = True
        return answers

    def _of_unknown_id(self) -> ErrorCode:
        """See Fetch. Whoever may not follow learns nothing of ids, not even that there is none."""
        return self._refuse("") or ErrorCode.UNKNOWN_TOPIC_ID

    def _looks_at_rest(self, resting: Resting) -> bool:
        """See Fetch. The first time those that rest count as fetched."""
        if self._is_counted:
            resting.look_at_log_starts()
            return False
        replicas = self._broker.replicas
        now_ms = int(self._broker.node.clock.monotonic() * 1000)
        assert isinstance(resting, RestingPartitions)
        resting.fetched(now_ms, has_begun_anew=replicas.has_begun_anew(self._follower, self._broker_epoch))
        return True

    def _read_replica(self, replica: Replica, partition: SessionPartition, left: int, min_one: bool) -> PartitionData:
        log, state, offset = replica.log, replica.state, partition.fetch_offset
        refused = state.check_follower(self._follower, self._broker_epoch)
        if not refused and offset < log.bounds.log_start_offset:
            refused = ErrorCode.OFFSET_OUT_OF_RANGE
        if refused:
            if refused is ErrorCode.UNKNOWN_LEADER_EPOCH and partition.current_leader_epoch < 0:
                refused = ErrorCode.NOT_LEADER_OR_FOLLOWER  # it did not say under which leader it is a follower
            return self._error(partition, refused)
        if partition.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(partition.last_fetched_epoch)
            if epoch < 0:
                return self._error(partition, ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < partition.last_fetched_epoch or end_offset < offset:
                self.has_news = True
                data = self._data(replica, partition)
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                return data
        if offset > log.bounds.end_offset:
            return self._error(partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        if not self._is_counted:
            refused = self._broker.replicas.fetched(
                replica, self._follower, self._broker_epoch, offset, partition.follower_log_start
            )
            assert not refused, "a follower that may fetch counts"
        data = self._data(replica, partition)
        throttles = self._broker.replicas.throttles
        if throttles.holds_back_follower(replica, self._follower):
            return data
        limit = min(left, partition.max_bytes)
        end_offset = log.bounds.end_offset
        if offset == end_offset:
            return data
        result = log.reader.read(offset, max_bytes=limit, max_offset=end_offset, min_one=min_one, wait=self._may_wait)
        assert isinstance(result, Local), "the offset is in the log"
        if result.slice is not None:
            data.records = result.slice
            if throttles.counts_as_leader(replica):
                self._counts_for_rate += result.size
        return data

    def count_bytes(self) -> None:
        """What followers copy no client reads."""
        self._broker.fetches.bytes_to_followers.value += self.bytes_read
        if self._counts_for_rate:
            self._broker.replicas.throttles.leader.passed(self._counts_for_rate)

    def count_partitions(self, answers: Sequence[Answer]) -> None:
        """Counts nothing."""

    def _data(self, replica: Replica, partition: SessionPartition) -> PartitionData:
        state = replica.state
        start = replica.log.bounds.log_start_offset
        data = PartitionData(partition.index, 0, state.high_watermark, state.last_stable_offset, start)
        data.records = b""
        data.aborted_transactions = None
        if 0 <= partition.sent_log_start_offset < start:
            self.has_news = True  # whoever deleted records waits for the followers
        return data

    def _upper(self, replica: Replica) -> int:
        return replica.log.bounds.end_offset

    def waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        return replica.follower_waiters
