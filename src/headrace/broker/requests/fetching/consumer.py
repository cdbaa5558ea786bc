"""Reads partitions for a consumer: up to the high watermark, or with read_committed up to the last stable offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.broker.requests.fetching.reading import FOLLOWERS_SERVE_FROM, NO_RECORDS, READ_COMMITTED, Answer
from headrace.log.read_results import Local, OutOfRange
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import AbortedTransaction, EpochEndOffset, PartitionData

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import FetchWaiter, Replica
    from headrace.broker.requests.nearest_replicas import Nearest
    from headrace.broker.requests.resting import Resting
    from headrace.broker.requests.services import Services
    from headrace.replicas.sessions import SessionPartition


class ConsumerReader:
    """A `PartitionReader` for one request of a consumer."""

    __slots__ = ("_broker", "_committed_only", "_follower_bytes", "_nearest", "_reads_followers", "has_news", "refuse")

    def __init__(
        self,
        broker: Services,
        refuse: Callable[[str], ErrorCode],
        *,
        version: int,
        isolation_level: int,
        nearest: Nearest | None,
    ) -> None:
        """`refuse` returns the error if the client may not read a topic. `nearest` finds the follower that the client
        should read from instead; None if it reads here."""
        self._broker = broker
        self.refuse = refuse
        self._committed_only = isolation_level == READ_COMMITTED
        self._reads_followers = version >= FOLLOWERS_SERVE_FROM
        self._nearest = nearest
        self._follower_bytes = 0
        self.has_news = False
        """Whether the last reading found a nearer replica or a diverging epoch to report."""

    def begin(self) -> None:
        """Starts another reading."""
        self._follower_bytes = 0
        self.has_news = False

    def update_resting(self, resting: Resting, *, is_waiting: bool) -> bool:
        """Wakes resting partitions whose log start moved. While the fetch waits no more are laid down: it is notified
        of changes."""
        resting.look_at_log_starts()
        return not is_waiting

    def unknown_id_error(self) -> ErrorCode:
        """Returns UNKNOWN_TOPIC_ID."""
        return ErrorCode.UNKNOWN_TOPIC_ID

    def follower_here(self, topic: str, index: int) -> Replica | None:
        """Returns this broker's follower replica if the request's version lets followers serve consumers (KIP-392)."""
        if not self._reads_followers:
            return None
        held = self._broker.replicas.held((topic, index))
        return held if held is not None and held.serves_as_follower else None

    def read(
        self, replica: Replica, partition: SessionPartition, limit: int, *, min_one: bool, wait: bool
    ) -> PartitionData | ErrorCode:
        """Reads up to `limit` bytes. Raises OSError, and BlockingIOError if data is not in memory and `wait` is
        false."""
        log, state, offset = replica.log, replica.state, partition.fetch_offset
        stable = state.last_stable_offset
        data = PartitionData(partition.index, 0, state.high_watermark, stable, log.bounds.log_start_offset)
        data.records = NO_RECORDS
        data.aborted_transactions = None
        if self._nearest is not None and not replica.error:
            nearest = self._nearest(replica, offset)
            if nearest >= 0:
                data.preferred_read_replica = nearest
                self.has_news = True
                return data
        committed_only = self._committed_only
        if committed_only:
            data.aborted_transactions = []
        if partition.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(partition.last_fetched_epoch)
            if epoch < 0:
                return ErrorCode.OFFSET_OUT_OF_RANGE
            if epoch < partition.last_fetched_epoch or end_offset < offset:
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                self.has_news = True
                return data
        upper = stable if committed_only else data.high_watermark
        result = log.reader.read(offset, max_bytes=limit, max_offset=upper, min_one=min_one, wait=wait)
        if isinstance(result, OutOfRange):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if result.slice is not None:
            data.records = result.slice
            if replica.error:
                self._follower_bytes += result.size
            if committed_only:
                data.aborted_transactions = [
                    AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                    for aborted in log.reader.aborted_transactions(offset, result, wait=wait)
                ]
        return data

    def cold_read(self, replica: Replica, partition: SessionPartition) -> Callable[[], object]:
        """Returns the read that loads a partition's data, and the list of its aborted transactions, into memory."""
        reader, state = replica.log.reader, replica.state
        offset, max_bytes, committed_only = partition.fetch_offset, partition.max_bytes, self._committed_only
        upper = state.last_stable_offset if committed_only else state.high_watermark

        def read() -> None:
            found = reader.read(offset, max_bytes=max_bytes, max_offset=upper)
            if committed_only and isinstance(found, Local):
                reader.aborted_transactions(offset, found)

        return read

    def waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        """Returns the fetches that wait for the high watermark of a replica."""
        return replica.fetch_waiters

    def count_bytes(self, size: int) -> None:
        """Counts the bytes of an answer, those from followers also separately."""
        fetches = self._broker.fetches
        fetches.bytes.value += size
        fetches.follower_bytes.value += self._follower_bytes

    def count_partitions(self, answers: Sequence[Answer]) -> None:
        """Counts the bytes of an answer's partitions at their replicas."""
        led = self._broker.replicas.by_name
        for partition, data in answers:
            if data.records and (replica := led.get((partition.topic, partition.index))) is not None:
                replica.bytes_out += len(data.records)
