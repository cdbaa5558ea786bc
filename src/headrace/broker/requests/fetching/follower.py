"""Reads partitions for a follower, up to the end of the log, and records how far the follower's logs reach.

A follower that fetches from an offset has everything before it. That advances the high watermark, and may add the
follower to the in-sync set. A follower whose log has diverged gets the diverging epoch (KIP-595), and does not count
until it has truncated.

A session has thousands of partitions, of which most rarely change. If its answers contain changes only, resting
partitions are not even read (see `resting`).
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
        """`refuse` returns the error if the client may not read a topic. `follower` is the id of the broker that
        fetches, `broker_epoch` that of its registration, or -1 if the request has none.

        Only the first reading records the follower's offsets: for later ones the request is too old.
        """
        self._broker = broker
        self.refuse = refuse
        self._follower = follower
        self._broker_epoch = broker_epoch
        self._is_first: bool | None = None
        """Whether the current reading is the first; None before it."""
        self._throttled_bytes = 0
        """Bytes of the last reading that count against the leader's replication throttle."""
        self.has_news = False
        """Whether the last reading found a diverging epoch or a new log start to report."""

    def begin(self) -> None:
        """Starts another reading."""
        self._is_first = self._is_first is None
        self._throttled_bytes = 0
        self.has_news = False

    def update_resting(self, resting: Resting, *, is_waiting: bool) -> bool:
        """Counts resting partitions as fetched in the first reading, and then lets more rest. Later only wakes those
        whose log start moved."""
        if not self._is_first:
            resting.look_at_log_starts()
            return False
        replicas = self._broker.replicas
        now_ms = int(self._broker.node.clock.monotonic() * 1000)
        assert isinstance(resting, RestingPartitions)
        resting.fetched(now_ms, has_restarted=replicas.has_restarted(self._follower, self._broker_epoch))
        return True

    def unknown_id_error(self) -> ErrorCode:
        """Returns UNKNOWN_TOPIC_ID, or the refusal of a client that may not follow: it learns nothing about ids."""
        return self.refuse("") or ErrorCode.UNKNOWN_TOPIC_ID

    def follower_here(self, topic: str, index: int) -> Replica | None:
        """Returns None: followers read from leaders only."""
        return None

    def read(
        self, replica: Replica, partition: SessionPartition, limit: int, *, min_one: bool, wait: bool
    ) -> PartitionData | ErrorCode:
        """Reads up to `limit` bytes. Raises OSError, and BlockingIOError if data is not in memory and `wait` is
        false."""
        log, state, offset = replica.log, replica.state, partition.fetch_offset
        refused = state.check_follower(self._follower, self._broker_epoch)
        if refused:
            if refused is ErrorCode.UNKNOWN_LEADER_EPOCH and partition.current_leader_epoch < 0:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the request has no leader epoch
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
        """Returns the read that loads a partition's data into memory."""
        log = replica.log
        return partial(
            log.reader.read, partition.fetch_offset, max_bytes=partition.max_bytes, max_offset=log.bounds.end_offset
        )

    def waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        """Returns the fetches that wait for the log end of a replica."""
        return replica.follower_waiters

    def count_bytes(self, size: int) -> None:
        """Counts the bytes of an answer as replication, not as bytes that clients fetched."""
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
