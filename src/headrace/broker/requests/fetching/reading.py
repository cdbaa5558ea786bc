"""Reads the partitions of a Fetch request: all of them once, and again whenever the caller wants.

How a partition is read depends on the client, a consumer or a follower: `PartitionReader` is the port for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from headrace.broker.partitions.replica import Replica
from headrace.broker.requests.pieces import Steps, parts_of
from headrace.replicas.sessions import SessionPartition
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import AbortedTransaction, LeaderIdAndEpoch, PartitionData

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import FetchWaiter
    from headrace.broker.requests.resting import Resting
    from headrace.broker.requests.services import Services
    from headrace.env.completion import Completion
    from headrace.env.workers import Raised

READ_COMMITTED: Final = 1
FOLLOWERS_SERVE_FROM: Final = 11
"""First version of Fetch whose clients know that a follower may serve them."""
READ_AT_ONCE: Final = 20
"""Partitions that a reading in pieces reads without checking whether the piece is full."""
NO_RECORDS: Final = b""
_LEADER_FROM: Final = 12
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_STORAGE_ERROR_FROM: Final = 6
"""First version with KAFKA_STORAGE_ERROR. Earlier clients get an error that makes them refresh metadata, as in
Kafka."""
NOT_THERE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""The errors of a partition that does not exist, or that the client may not see."""

Answer = tuple[SessionPartition, PartitionData]


class PartitionReader(Protocol):
    """The part of reading that differs between consumers and followers."""

    has_news: bool
    """Whether the last reading found something to report beside records and errors."""
    refuse: Callable[[str], ErrorCode]
    """The check of a topic: the error if the client may not read it, else NONE."""

    def begin(self) -> None:
        """Starts another reading."""
        ...

    def update_resting(self, resting: Resting, *, is_waiting: bool) -> bool:
        """Wakes the partitions of a session that rest no longer; returns whether more of them may be laid down."""
        ...

    def unknown_id_error(self) -> ErrorCode:
        """Returns the error for a topic id that no topic has."""
        ...

    def follower_here(self, topic: str, index: int) -> Replica | None:
        """Returns this broker's follower replica if the client may read from it."""
        ...

    def read(
        self, replica: Replica, partition: SessionPartition, limit: int, *, min_one: bool, wait: bool
    ) -> PartitionData | ErrorCode:
        """Reads up to `limit` bytes, or one batch if `min_one`. Raises BlockingIOError if they are not in memory and
        `wait` is false, and OSError."""
        ...

    def cold_read(self, replica: Replica, partition: SessionPartition) -> Callable[[], object]:
        """Returns the read that loads into memory what `read` did not find there. It raises OSError."""
        ...

    def waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        """Returns the registry of the fetches that wait for a replica to change."""
        ...

    def count_bytes(self, size: int) -> None:
        """Counts the bytes of an answer."""
        ...

    def count_partitions(self, answers: Sequence[Answer]) -> None:
        """Counts the bytes of some partitions of an answer."""
        ...


def refresh(replica: Replica, data: PartitionData) -> None:
    """Updates the offsets in a partition's answer that has no new records."""
    state = replica.state
    data.high_watermark = state.high_watermark
    data.last_stable_offset = state.last_stable_offset
    data.log_start_offset = replica.log.bounds.log_start_offset


class Reading:
    """The partitions of one Fetch request, to be read any number of times, and the totals of the last reading."""

    __slots__ = (
        "_broker",
        "_cold",
        "_has_errors",
        "_is_waiting",
        "_max_bytes",
        "_may_wait",
        "_min_bytes",
        "_version",
        "bytes_read",
        "partitions",
        "reader",
        "resting",
    )

    def __init__(
        self,
        broker: Services,
        reader: PartitionReader,
        partitions: Iterable[SessionPartition],
        *,
        version: int,
        min_bytes: int,
        max_bytes: int,
        resting: Resting | None,
    ) -> None:
        """`resting` has the state of a session whose answers may leave out resting partitions, and all of its
        partitions, so `partitions` is not used then. `max_bytes` is bounded by the broker's own limit."""
        self._broker = broker
        self.reader = reader
        self.partitions = list(partitions) if resting is None else []
        """The partitions of the last reading; without `resting` also of the next one."""
        self.resting = resting
        self._version = version
        self._max_bytes = max_bytes = min(max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(min_bytes, max_bytes)
        self._may_wait = False
        """Whether readings may wait for the disk, as the data was loaded before."""
        self._is_waiting = False
        self._cold: list[tuple[Replica, SessionPartition]] = []
        """Partitions of the last reading whose data was not in memory."""
        self.bytes_read = 0
        """Bytes of records in the last reading."""
        self._has_errors = False

    @property
    def bytes_wanted(self) -> int:
        """Bytes that the last reading lacks for an answer."""
        return self._min_bytes - self.bytes_read

    @property
    def names(self) -> int:
        """The largest number of partitions that a reading looks at."""
        return len(self.partitions if self.resting is None else self.resting.awake)

    @property
    def is_satisfied(self) -> bool:
        """Whether the last reading should be answered now."""
        if self._has_errors or self.reader.has_news or self.bytes_read >= self._min_bytes:
            return True
        return not self.partitions and self.resting is None  # a resting partition may change later

    # --- all partitions

    def read(self) -> list[Answer]:
        """Reads every partition once, in order, until the answer is full."""
        answers: list[Answer] = []
        self._begin()
        resting = self.resting
        if resting is not None:
            if self.reader.update_resting(resting, is_waiting=self._is_waiting):
                resting.lay_down(self._broker.replicas.by_name, list(resting.awake))
            self.partitions = list(resting.awake)
        self._read_some(self.partitions, self._max_bytes, answers)
        return answers

    def read_in_pieces(self, watch: Callable[[Iterable[SessionPartition]], None] | None) -> Steps[list[Answer]]:
        """Reads in pieces, with the result of `read`. `watch` is called with partitions before they are read, as they
        may change while others are read."""
        answers: list[Answer] = []
        self._begin()
        resting = self.resting
        if resting is not None:
            if self.reader.update_resting(resting, is_waiting=self._is_waiting):
                for some in parts_of(list(resting.awake), READ_AT_ONCE):
                    resting.lay_down(self._broker.replicas.by_name, some)
                    yield 1
            self.partitions = list(resting.awake)
        left = self._max_bytes
        for some in parts_of(self.partitions, READ_AT_ONCE):
            if watch is not None:
                watch(some)
            left = self._read_some(some, left, answers)
            yield READ_AT_ONCE
        return answers

    def _begin(self) -> None:
        self.bytes_read = 0
        self._has_errors = False
        self.reader.begin()

    def _read_some(self, partitions: Iterable[SessionPartition], left: int, answers: list[Answer]) -> int:
        """Adds the answers of these partitions, with at most `left` bytes of records; returns the bytes that remain."""
        min_one = not self.bytes_read
        for partition in partitions:
            data = self._read_partition(partition, left, min_one)
            size = len(data.records) if data.records is not None else 0
            if size:
                min_one = False
                left -= size
                self.bytes_read += size
            answers.append((partition, data))
        return left

    def begin_wait(self) -> None:
        """Notes that the fetch waits: the data of changes is in memory, and resting partitions report them."""
        self._may_wait = self._is_waiting = True

    def count(self, answers: Sequence[Answer]) -> None:
        """Counts the answers of the last reading as sent."""
        self.reader.count_bytes(self.bytes_read)
        self.reader.count_partitions(answers)

    # --- one partition

    def _read_partition(self, partition: SessionPartition, left: int, min_one: bool) -> PartitionData:
        name = partition.topic
        reader = self.reader
        if not name:
            return self._error(partition, reader.unknown_id_error())
        refused = reader.refuse(name)
        if refused:
            return self._error(partition, refused)
        replicas = self._broker.replicas
        replica = replicas.by_name.get((name, partition.index))
        if replica is None or replica.error:
            found = reader.follower_here(name, partition.index) or replicas.find(name, partition.index)
            if not isinstance(found, Replica):
                return self._error(partition, self._error_of_missing(partition, found))
            replica = found
        if partition.current_leader_epoch >= 0:
            fenced = replica.state.check_epoch(partition.current_leader_epoch)
            if fenced:
                return self._error(partition, fenced)
        limit = min(left, partition.max_bytes)
        try:
            try:
                data = reader.read(replica, partition, limit, min_one=min_one, wait=self._may_wait)
            except FileNotFoundError:
                # Retention or compaction removed a segment in between: the second attempt reads the log as it is now.
                data = reader.read(replica, partition, limit, min_one=min_one, wait=self._may_wait)
        except BlockingIOError:
            self._cold.append((replica, partition))
            return PartitionData(partition.index, 0, -1, aborted_transactions=None, records=NO_RECORDS)
        except OSError as error:
            replicas.failures.storage_failed(replica, error)
            return self._error(partition, replica.error or ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception as error:
            # A defect in one partition fails only that partition: the others are read and answered.
            self._broker.node.defects.report(
                error, "a fetch", partition=f"{name}-{partition.index}", offset=partition.fetch_offset
            )
            return self._error(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        return self._error(partition, data) if isinstance(data, ErrorCode) else data

    def _error_of_missing(self, partition: SessionPartition, error: ErrorCode) -> ErrorCode:
        """Returns the error of a partition that this broker does not lead. An epoch mismatch takes precedence over a
        wrong leader: the client knows a newer epoch, or has to learn of one."""
        held = self._broker.replicas.held((partition.topic, partition.index))
        if held is None or error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return error
        return held.state.check_epoch(partition.current_leader_epoch) or error

    def _error(self, partition: SessionPartition, error: ErrorCode) -> PartitionData:
        self._has_errors = True
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._version < _STORAGE_ERROR_FROM:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # As in Kafka: the list is empty if no log was looked up, and null if the log refused the read.
        aborted: list[AbortedTransaction] | None = [] if error in NOT_THERE else None
        data = PartitionData(partition.index, error, -1, aborted_transactions=aborted, records=NO_RECORDS)
        if error in _MOVED and self._version >= _LEADER_FROM:
            known = self._broker.image.topics.partition(partition.topic, partition.index)
            if known is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        return data

    # --- data that is not in memory

    def load_cold(self) -> Completion[Raised | None] | None:
        """Begins to load data that the last reading did not find in memory; None if it found everything.

        A worker reads it, so that the event loop never waits for the disk, and the next reading finds it in memory.
        Errors are not reported here, as that reading gets them too.
        """
        if not self._cold:
            return None
        reads = [self.reader.cold_read(replica, partition) for replica, partition in self._cold]
        self._cold.clear()
        self._may_wait = True
        self._broker.fetches.cold_lookups.value += len(reads)

        def load() -> None:
            for read in reads:
                try:
                    read()
                except OSError:
                    continue

        return self._broker.node.workers.submit(load)
