"""Reads the partitions of a Fetch request: once over all of them, and again if the caller wants to look once more.

How a partition is read depends on who reads, a consumer or a follower: `PartitionReader` is the port for that.
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
"""Clients of this version of Fetch know that a follower may serve them."""
READ_AT_ONCE: Final = 20
"""Partitions that a reading in pieces reads without checking whether the piece is full."""
NO_RECORDS: Final = b""
_LEADER_FROM: Final = 12
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_STORAGE_ERROR_FROM: Final = 6
"""Earlier clients do not know KAFKA_STORAGE_ERROR and are sent to refresh their metadata instead, as Kafka does."""
NOT_THERE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""The errors of a partition that does not exist, or not for this client."""

Answer = tuple[SessionPartition, PartitionData]


class PartitionReader(Protocol):
    """Reads single partitions for a consumer or a follower, and keeps what only one of the two needs."""

    has_news: bool
    """Whether the last reading found something to report beside records and errors."""
    refuse: Callable[[str], ErrorCode]
    """Returns why the client may not read a topic, NONE if it may."""

    def begin(self) -> None:
        """Starts another reading."""
        ...

    def update_resting(self, resting: Resting, *, is_waiting: bool) -> bool:
        """Wakes the partitions of a session that rest no longer; returns whether more of them may be laid down."""
        ...

    def unknown_id_error(self) -> ErrorCode:
        """Returns the error of a topic id that no topic has."""
        ...

    def follower_here(self, topic: str, index: int) -> Replica | None:
        """Returns the replica of this broker that follows, if this client may read from it."""
        ...

    def read(
        self, replica: Replica, partition: SessionPartition, limit: int, *, min_one: bool, wait: bool
    ) -> PartitionData | ErrorCode:
        """Reads up to `limit` bytes, or one batch if `min_one`. Raises BlockingIOError if they are not in memory and
        `wait` is false, and OSError."""
        ...

    def cold_read(self, replica: Replica, partition: SessionPartition) -> Callable[[], object]:
        """Returns the read that brings into memory what `read` did not find there. It raises OSError."""
        ...

    def waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        """Returns where a fetch is registered that waits for a replica to change."""
        ...

    def count_bytes(self, size: int) -> None:
        """Counts the bytes of an answer."""
        ...

    def count_partitions(self, answers: Sequence[Answer]) -> None:
        """Counts the bytes of some partitions of an answer."""
        ...


def refresh(replica: Replica, data: PartitionData) -> None:
    """Brings the offsets in the answer of a partition without new records up to date."""
    state = replica.state
    data.high_watermark = state.high_watermark
    data.last_stable_offset = state.last_stable_offset
    data.log_start_offset = replica.log.bounds.log_start_offset


class Reading:
    """The partitions of one Fetch request, read as often as is asked, and the totals of the last reading."""

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
        """`resting` is the state of a session whose answer may leave out the partitions that rest; it knows the others,
        so `partitions` is not used then. `max_bytes` is bounded by the broker's own limit."""
        self._broker = broker
        self.reader = reader
        self.partitions = list(partitions) if resting is None else []
        """The partitions that the last reading read, or the next one will if none rest."""
        self.resting = resting
        self._version = version
        self._max_bytes = max_bytes = min(max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(min_bytes, max_bytes)
        self._may_wait = False
        self._is_waiting = False
        self._cold: list[tuple[Replica, SessionPartition]] = []
        self.bytes_read = 0
        self._has_errors = False

    @property
    def bytes_wanted(self) -> int:
        """The bytes that the last reading lacks for an answer."""
        return self._min_bytes - self.bytes_read

    @property
    def names(self) -> int:
        """The number of partitions that a reading looks at, at most."""
        return len(self.partitions if self.resting is None else self.resting.awake)

    @property
    def is_satisfied(self) -> bool:
        """Whether the last reading is worth an answer now."""
        if self._has_errors or self.reader.has_news or self.bytes_read >= self._min_bytes:
            return True
        return not self.partitions and self.resting is None  # all may rest, and one of them change

    # --- all partitions

    def read(self) -> list[Answer]:
        """Reads every partition once, in order, while there is room in the answer."""
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
        """Reads as `read` does, in pieces. `watch` is called with partitions before they are read, as they may change
        while others are read."""
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
        """Adds the answers of these partitions, with `left` bytes of room; returns the room that remains."""
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
        """Notes that the fetch waits for changes: they are in memory, and partitions that rest report them."""
        self._may_wait = self._is_waiting = True

    def count(self, answers: Sequence[Answer]) -> None:
        """Counts the last reading as sent."""
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
                # Retention or compaction removed a segment in between: another attempt reads the log as it is now.
                data = reader.read(replica, partition, limit, min_one=min_one, wait=self._may_wait)
        except BlockingIOError:
            self._cold.append((replica, partition))
            return PartitionData(partition.index, 0, -1, aborted_transactions=None, records=NO_RECORDS)
        except OSError as error:
            replicas.failures.storage_failed(replica, error)
            return self._error(partition, replica.error or ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception as error:
            # A defect in one partition is the answer of that partition: the others are read, and the client is served.
            self._broker.node.defects.report(
                error, "a fetch", partition=f"{name}-{partition.index}", offset=partition.fetch_offset
            )
            return self._error(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        return self._error(partition, data) if isinstance(data, ErrorCode) else data

    def _error_of_missing(self, partition: SessionPartition, error: ErrorCode) -> ErrorCode:
        """Returns the error of a partition that this broker does not lead: a wrong epoch comes before a wrong leader,
        as the client knows of a newer epoch or has to learn of it."""
        held = self._broker.replicas.held((partition.topic, partition.index))
        if held is None or error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return error
        return held.state.check_epoch(partition.current_leader_epoch) or error

    def _error(self, partition: SessionPartition, error: ErrorCode) -> PartitionData:
        self._has_errors = True
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._version < _STORAGE_ERROR_FROM:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Kafka's list is empty if it did not look for a log, and null if a log refused.
        aborted: list[AbortedTransaction] | None = [] if error in NOT_THERE else None
        data = PartitionData(partition.index, error, -1, aborted_transactions=aborted, records=NO_RECORDS)
        if error in _MOVED and self._version >= _LEADER_FROM:
            known = self._broker.image.topics.partition(partition.topic, partition.index)
            if known is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        return data

    # --- data that is not in memory

    def load_cold(self) -> Completion[Raised | None] | None:
        """Begins to load what the last reading did not find in memory; None if it found everything.

        A worker reads it, so that the event loop never waits for the disk, and the next reading finds it in memory.
        An error is not reported here, as that reading meets it too.
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
