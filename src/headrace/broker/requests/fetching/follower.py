"""Reads partitions for a follower: up to the end of the log. The request also says how far the follower's logs reach.

A follower that asks for an offset has everything before it. That advances the high watermark, and may add the follower
to the in-sync set. A follower whose log has diverged gets the diverging epoch (KIP-595), and does not count until it
has truncated.

A session has thousands of partitions, of which most never change. If its answer names changes only, partitions that
rest are not even looked at: see `resting`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.requests.fetching.reading import NO_RECORDS, Answer
from headrace.broker.requests.resting import RestingPartitions
from headrace.log.read_results import Local
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import EpochEndOffset, PartitionData

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import FetchWaiter, Replica
    from headrace.broker.requests.resting import Resting
    from headrace.broker.requests.services import Services
    from headrace.replicas.sessions import SessionPartition


class FollowerReader:
    """A `PartitionReader` for one request of a follower."""

    __slots__ = (
        "_broker",
        "_broker_epoch",
        "_follower",
        "_is_first",
        "_throttled_bytes",
        "has_news",
        "refuse",
    )

    def __init__(
        self, broker: Services, refuse: Callable[[str], ErrorCode], *, follower: int, broker_epoch: int
    ) -> None:
        """`follower` is the id of the broker that asks, `broker_epoch` that of its registration, -1 if it does not say.

        The first reading counts as what the follower has; later ones do not, as its request is old by then."""
        self._broker = broker
        self.refuse = refuse
        self._follower = follower
        self._broker_epoch = broker_epoch
        self._is_first: bool | None = None
        self._throttled_bytes = 0
        self.has_news = False

    def begin(self) -> None:
        """See PartitionReader."""
        self._is_first = self._is_first is None
        self._throttled_bytes = 0
        self.has_news = False

    def update_resting(self, resting: Resting, *, is_waiting: bool) -> bool:
        """See PartitionReader. At the first reading the partitions that rest count as fetched."""
        if not self._is_first:
            resting.look_at_log_starts()
            return False
        replicas = self._broker.replicas
        now_ms = int(self._broker.node.clock.monotonic() * 1000)
        assert isinstance(resting, RestingPartitions)
        resting.fetched(now_ms, has_restarted=replicas.has_restarted(self._follower, self._broker_epoch))
        return True

    def unknown_id_error(self) -> ErrorCode:
        """See PartitionReader. A client that may not follow learns nothing about ids, not even that one is unknown."""
        return self.refuse("") or ErrorCode.UNKNOWN_TOPIC_ID

    def follower_here(self, topic: str, index: int) -> Replica | None:
        """See PartitionReader. Followers read from leaders only."""
        return None

    def read(
        self, replica: Replica, partition: SessionPartition, limit: int, *, min_one: bool, wait: bool
    ) -> PartitionData | ErrorCode:
        """See PartitionReader."""
        log, state, offset = replica.log, replica.state, partition.fetch_offset
        refused = state.check_follower(self._follower, self._broker_epoch)
        if refused:
            if refused is ErrorCode.UNKNOWN_LEADER_EPOCH and partition.current_leader_epoch < 0:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER  # it did not say which leader it follows
            return refused
        if offset < log.bounds.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if partition.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(partition.last_fetched_epoch)
            if epoch < 0:
                return ErrorCode.OFFSET_OUT_OF_RANGE
            if epoch < partition.last_fetched_epoch or end_offset < offset:
                self.has_news = True
                data = self._data(replica, partition)
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                return data
        if offset > log.bounds.end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        replicas = self._broker.replicas
        if self._is_first:
            refused = replicas.fetched(
                replica, self._follower, self._broker_epoch, offset, partition.follower_log_start
            )
            assert not refused, "a follower that may fetch counts"
        data = self._data(replica, partition)
        throttles = replicas.throttles
        end_offset = log.bounds.end_offset
        if offset == end_offset or throttles.holds_back_follower(replica, self._follower):
            return data
        result = log.reader.read(offset, max_bytes=limit, max_offset=end_offset, min_one=min_one, wait=wait)
        assert isinstance(result, Local), "the offset is in the log"
        if result.slice is not None:
            data.records = result.slice
            if throttles.counts_as_leader(replica):
                self._throttled_bytes += result.size
        return data

    def cold_read(self, replica: Replica, partition: SessionPartition) -> Callable[[], object]:
        """See PartitionReader."""
        log = replica.log
        return partial(
            log.reader.read, partition.fetch_offset, max_bytes=partition.max_bytes, max_offset=log.bounds.end_offset
        )

    def waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        """See PartitionReader."""
        return replica.follower_waiters

    def count_bytes(self, size: int) -> None:
        """See PartitionReader. Bytes for followers are not bytes that clients fetched."""
        self._broker.fetches.bytes_to_followers.value += size
        if self._throttled_bytes:
            self._broker.replicas.throttles.leader.passed(self._throttled_bytes)

    def count_partitions(self, answers: Sequence[Answer]) -> None:
        """Counts nothing."""

    def _data(self, replica: Replica, partition: SessionPartition) -> PartitionData:
        state = replica.state
        start = replica.log.bounds.log_start_offset
        data = PartitionData(partition.index, 0, state.high_watermark, state.last_stable_offset, start)
        data.records = NO_RECORDS
        data.aborted_transactions = None
        if 0 <= partition.sent_log_start_offset < start:
            self.has_news = True  # DeleteRecords waits for the followers
        return data
