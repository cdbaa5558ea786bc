"""Reading for a Fetch request: once over its partitions, and again when there is more, until enough is there or time
is up.

A fetch that waits is no task and no thread: it is registered with the replicas that it reads, and holds one timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.partitions.replica import Replica
from headrace.broker.requests.pieces import Steps, parts_of
from headrace.log.read_results import Local, OutOfRange
from headrace.replicas.sessions import SessionPartition
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
)

if TYPE_CHECKING:
    from headrace.broker.partitions.replica import FetchWaiter
    from headrace.broker.requests.resting import Resting
    from headrace.broker.requests.services import Services
    from headrace.env import Timer
    from headrace.env.workers import Raised

READ_COMMITTED: Final = 1
FOLLOWERS_SERVE_FROM: Final = 11
"""Clients of this version of Fetch know that a follower may serve them."""
MAX_WAIT_MS: Final = 2**31 - 1
READ_AT_ONCE: Final = 20
"""Partitions of a reading in pieces that are read without looking whether the piece is full."""
_NO_RECORDS: Final = b""
_OK: Final = ErrorCode.NONE
_LEADER_FROM: Final = 12
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_STORAGE_ERROR_FROM: Final = 6
"""Earlier clients do not know KAFKA_STORAGE_ERROR and are sent to refresh their metadata instead, as Kafka does."""
NOT_THERE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""What is said of a partition that there is none of, or not for this client."""

Answer = tuple[SessionPartition, PartitionData]
Nearest = Callable[[Replica, int], int]
"""Which follower is nearer to a client that reads a replica, led here, at an offset; -1: none."""


def see_again(replica: Replica, data: PartitionData) -> None:
    """Makes the answer about a partition without new records what another reading would give."""
    state = replica.state
    data.high_watermark = state.high_watermark
    data.last_stable_offset = state.last_stable_offset
    data.log_start_offset = replica.log.bounds.log_start_offset


class Fetch:
    """One Fetch request at work. `respond` is called once with what was read, unless the fetch is cancelled before."""

    __slots__ = (
        "_broker",
        "_cold",
        "_committed_only",
        "_holder",
        "_look_handle",
        "_max_bytes",
        "_max_wait_ms",
        "_may_wait",
        "_min_bytes",
        "_missing",
        "_nearest",
        "_partitions",
        "_reads_followers",
        "_refuse",
        "_respond",
        "_timer",
        "_unmoved",
        "_version",
        "_watched",
        "bytes_read",
        "follower_bytes_read",
        "has_news",
        "resting",
    )

    def __init__(
        self,
        broker: Services,
        partitions: Iterable[SessionPartition],
        *,
        version: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        refuse: Callable[[str], ErrorCode],
        reads_followers: bool = False,
        nearest: Nearest | None = None,
        resting: Resting | None = None,
        holder: str = "",
    ) -> None:
        """`refuse(topic)` says why a client may not read a topic, NONE where it may. `reads_followers`: it knows that a
        follower may serve it. `nearest` says which follower it should read from; None leaves it here. `resting` is what
        is kept of its session, whose answer need not have what rests: it knows the partitions then. `holder` is whose
        wait it is (`RequestContext.holder`); a follower's is nobody's."""
        self._broker = broker
        self._partitions = list(partitions) if resting is None else []
        self.resting = resting
        self._version = version
        self._max_bytes = min(max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(min_bytes, self._max_bytes)
        self._committed_only = isolation_level == READ_COMMITTED
        self._refuse = refuse
        self._holder = holder
        self._reads_followers = reads_followers
        self._nearest = nearest
        self._respond: Callable[[list[Answer]], None] | None = None
        self._missing = 0
        self._max_wait_ms = 0
        self._may_wait = False
        self._cold: list[tuple[Replica, SessionPartition]] = []
        self._timer: Timer | None = None
        self._look_handle: Timer | None = None
        self._watched: list[Replica] = []
        self._unmoved: list[Answer] | None = None
        """What was read before the wait, while that is still all there is: no records, of any partition."""
        self.bytes_read = 0
        self.follower_bytes_read = 0
        self.has_news = False
        """Whether the last reading says something beside records."""

    # --- reading

    def read(self) -> list[Answer]:
        """Reads every partition once, in order, while there is room in the answer."""
        answers: list[Answer] = []
        self._begin_reading()
        self._read_some(self._to_read(), self._max_bytes, answers)
        return answers

    def reading(self, watch: Callable[[Iterable[SessionPartition]], None] | None) -> Steps[list[Answer]]:
        """The same for many partitions, in pieces. `watch` is called with partitions before they are read: they may
        change while others are read."""
        answers: list[Answer] = []
        self._begin_reading()
        resting = self.resting
        if resting is not None:
            if self._looks_at_rest(resting):
                for some in parts_of(list(resting.awake), READ_AT_ONCE):
                    resting.lay_down(self._broker.replicas.by_name, some)
                    yield 1
            self._partitions = list(resting.awake)
        left = self._max_bytes
        for some in parts_of(self._partitions, READ_AT_ONCE):
            if watch is not None:
                watch(some)
            left = self._read_some(some, left, answers)
            yield READ_AT_ONCE
        return answers

    def _begin_reading(self) -> None:
        self.bytes_read = self.follower_bytes_read = 0
        self.has_news = False

    def _read_some(self, partitions: Iterable[SessionPartition], left: int, answers: list[Answer]) -> int:
        """Adds what is read of these, with so many bytes left in the answer; returns how many are left then."""
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

    def _to_read(self) -> list[SessionPartition]:
        """The partitions that a reading looks at: without those that rest."""
        resting = self.resting
        if resting is not None:
            if self._looks_at_rest(resting):
                resting.lay_down(self._broker.replicas.by_name, list(resting.awake))
            self._partitions = list(resting.awake)
        return self._partitions

    def _looks_at_rest(self, resting: Resting) -> bool:
        """Has partitions that rest no longer wake; returns whether more are to be laid down."""
        resting.look_at_log_starts()
        return self._timer is None  # once: while it waits it hears of what moves

    @property
    def bytes_wanted(self) -> int:
        """How many bytes the last reading lacks for an answer."""
        return self._min_bytes - self.bytes_read

    @property
    def names(self) -> int:
        """How many partitions a reading looks at, at most."""
        return len(self._partitions if self.resting is None else self.resting.awake)

    @property
    def is_satisfied(self) -> bool:
        """Whether the last reading is worth an answer now."""
        if self.has_news or self.bytes_read >= self._min_bytes:
            return True
        return not self._partitions and self.resting is None  # all may rest, and one of them move

    def _of_unknown_id(self) -> ErrorCode:
        """What is said of a topic id that no topic has."""
        return ErrorCode.UNKNOWN_TOPIC_ID

    def _read_partition(self, partition: SessionPartition, left: int, min_one: bool) -> PartitionData:
        name = partition.topic
        if not name:
            return self._error(partition, self._of_unknown_id())
        refused = self._refuse(name)
        if refused:
            return self._error(partition, refused)
        replicas = self._broker.replicas
        replica = replicas.by_name.get((name, partition.index))
        if replica is None or replica.error:
            found = self._follower_of(name, partition.index) or replicas.find(name, partition.index)
            if not isinstance(found, Replica):
                return self._error(partition, self._why_not(partition, found))
            replica = found
        if partition.current_leader_epoch >= 0:
            fenced = replica.state.check_epoch(partition.current_leader_epoch)
            if fenced:
                return self._error(partition, fenced)
        if self._nearest is not None and not replica.error:
            nearest = self._nearest(replica, partition.fetch_offset)
            if nearest >= 0:
                return self._elsewhere(replica, partition, nearest)
        try:
            try:
                return self._read_replica(replica, partition, left, min_one)
            except FileNotFoundError:
                # Retention or compaction took a segment away in between: there is another answer now.
                return self._read_replica(replica, partition, left, min_one)
        except BlockingIOError:
            self._cold.append((replica, partition))
            return self._nothing(partition)
        except OSError as error:
            replicas.failures.storage_failed(replica, error)
            return self._error(partition, replica.error or ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception as error:
            # One partition's defect is its own answer: the others are read, and nobody waits for ever.
            self._broker.node.defects.report(
                error, "a fetch", partition=f"{name}-{partition.index}", offset=partition.fetch_offset
            )
            return self._error(partition, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _follower_of(self, topic: str, index: int) -> Replica | None:
        """The replica here that follows, where this client may read it now (KIP-392)."""
        if not self._reads_followers:
            return None
        held = self._broker.replicas.held((topic, index))
        return held if held is not None and held.serves_as_follower else None

    def _elsewhere(self, replica: Replica, partition: SessionPartition, nearest: int) -> PartitionData:
        """Nothing but the name of a follower that is nearer to the client."""
        state = replica.state
        self.has_news = True
        data = PartitionData(
            partition.index, 0, state.high_watermark, state.last_stable_offset, replica.log.bounds.log_start_offset
        )
        data.records = _NO_RECORDS
        data.aborted_transactions = None
        data.preferred_read_replica = nearest
        return data

    def _why_not(self, partition: SessionPartition, error: ErrorCode) -> ErrorCode:
        """An epoch that is not ours comes before a leader that is not here: whoever asks knows of it or has to."""
        held = self._broker.replicas.held((partition.topic, partition.index))
        if held is None or error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return error
        return held.state.check_epoch(partition.current_leader_epoch) or error

    def _read_replica(self, replica: Replica, partition: SessionPartition, left: int, min_one: bool) -> PartitionData:
        log = replica.log
        high_watermark = replica.state.high_watermark
        stable = replica.state.last_stable_offset
        data = PartitionData(partition.index, 0, high_watermark, stable, log.bounds.log_start_offset)
        data.records = _NO_RECORDS
        data.aborted_transactions = [] if self._committed_only else None
        offset = partition.fetch_offset
        if partition.last_fetched_epoch >= 0:
            epoch, end_offset = replica.log.end_offset_for_epoch(partition.last_fetched_epoch)
            if epoch < 0:
                return self._error(partition, ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < partition.last_fetched_epoch or end_offset < offset:
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                self.has_news = True
                return data
        limit = min(left, partition.max_bytes)
        upper = stable if self._committed_only else high_watermark
        result = log.reader.read(offset, max_bytes=limit, max_offset=upper, min_one=min_one, wait=self._may_wait)
        if isinstance(result, OutOfRange):
            return self._error(partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        if result.slice is not None:
            data.records = result.slice
            if replica.error:
                self.follower_bytes_read += result.size
            if self._committed_only:
                data.aborted_transactions = [
                    AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                    for aborted in log.reader.aborted_transactions(offset, result, wait=self._may_wait)
                ]
        return data

    def _upper(self, replica: Replica) -> int:
        """Up to where this client may read."""
        state = replica.state
        return state.last_stable_offset if self._committed_only else state.high_watermark

    def waiters(self, replica: Replica) -> dict[FetchWaiter, None]:
        """Where a fetch is registered that waits for a replica to move."""
        return replica.fetch_waiters

    def _error(self, partition: SessionPartition, error: ErrorCode) -> PartitionData:
        self.has_news = True
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._version < _STORAGE_ERROR_FROM:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Kafka's list is empty where it did not look for a log, and null where a log refused.
        aborted: list[AbortedTransaction] | None = [] if error in NOT_THERE else None
        data = PartitionData(partition.index, error, -1, aborted_transactions=aborted, records=_NO_RECORDS)
        if error in _MOVED and self._version >= _LEADER_FROM:
            known = self._broker.image.topics.partition(partition.topic, partition.index)
            if known is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        return data

    def _nothing(self, partition: SessionPartition) -> PartitionData:
        return PartitionData(partition.index, 0, -1, aborted_transactions=None, records=_NO_RECORDS)

    # --- waiting

    def run(self, max_wait_ms: int, respond: Callable[[list[Answer]], None]) -> None:
        """Reads, and responds at once, or when enough can be read, or after `max_wait_ms`."""
        self._respond = respond
        self._max_wait_ms = max_wait_ms
        self._attempt()

    def _attempt(self) -> None:
        answers = self.read()
        if (look_up := self.cold_lookup()) is not None:
            self._broker.node.workers.submit(look_up).deliver_to(self._warmed)
        elif self.is_satisfied or self._max_wait_ms <= 0 or not self._broker.fetches.make_room():
            self._finish(answers)
        else:
            self._wait(answers)

    def cold_lookup(self) -> Callable[[], None] | None:
        """Returns what a worker is to do before the next reading, None if the last one found all in memory: so the
        event loop never waits for the disk."""
        if not self._cold:
            return None
        places = [
            (replica.log, partition.fetch_offset, partition.max_bytes, self._upper(replica))
            for replica, partition in self._cold
        ]
        self._cold.clear()
        self._may_wait = True
        self._broker.fetches.cold_lookups.value += len(places)

        def look_up() -> None:
            for log, offset, limit, upper in places:
                try:
                    found = log.reader.read(offset, max_bytes=limit, max_offset=upper)
                    if self._committed_only and isinstance(found, Local):
                        log.reader.aborted_transactions(offset, found)
                except OSError:
                    continue  # the fetch itself will meet it, and say so

        return look_up

    def _warmed(self, _: Raised | None) -> None:
        """Reads again. What the worker raised, this reading meets too."""
        if self._respond is not None:
            self._attempt()

    def _wait(self, answers: list[Answer]) -> None:
        self._missing = self._min_bytes - self.bytes_read
        self._may_wait = True  # what comes now is in memory
        find = self._broker.replicas.held
        for partition in self._partitions:
            replica = find((partition.topic, partition.index))
            if replica is not None:
                self.waiters(replica)[self] = None
                self._watched.append(replica)
        if self.resting is not None:
            self.resting.waiting[self] = None  # those awake are few: they are read again
        elif not self.bytes_read and len(self._watched) == len(answers):
            self._unmoved = answers
        self._broker.fetches.waits(self, self._holder)
        self._timer = self._broker.requests_owner.later(self._max_wait_ms / 1000, self._time_is_up)

    def moved(self, replica: Replica, byte_count: int) -> None:
        """More can be read, or something else changed (0): has a look once the loop gets to it."""
        self._missing -= byte_count
        self._unmoved = None
        if self._look_handle is None and (self._missing <= 0 or not byte_count):
            self._look_handle = self._broker.requests_owner.soon(self._look)

    def woke(self, replica: Replica, byte_count: int) -> None:
        """A partition that rested when this fetch looked at it moved."""
        self.waiters(replica)[self] = None
        self._watched.append(replica)
        self.moved(replica, byte_count)

    def _look(self) -> None:
        self._look_handle = None
        if self._respond is None:
            return
        answers = self.read()
        if self.is_satisfied:
            self._finish(answers)
        else:
            self._missing = self._min_bytes - self.bytes_read

    def end_wait(self) -> None:
        """Others are to wait in its place: answers now, with what there is."""
        self._max_wait_ms = 0
        self._time_is_up()

    def hurry(self) -> None:
        """Nothing more is waited for: answers with what there is once the loop gets to it."""
        self._max_wait_ms = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._broker.requests_owner.soon(self._time_is_up)

    def _time_is_up(self) -> None:
        if self._respond is not None:
            self._finish(self.read() if self._unmoved is None else self._seen_again(self._unmoved))

    def _seen_again(self, answers: list[Answer]) -> list[Answer]:
        """What another reading would give where there was nothing, and nothing came: a session of thousands of idle
        partitions costs a broker as little as it can."""
        for replica, (_, data) in zip(self._watched, answers, strict=True):
            see_again(replica, data)
        return answers

    def _finish(self, answers: list[Answer]) -> None:
        respond = self._respond
        assert respond is not None
        self.count(answers)
        self.cancel()
        respond(answers)

    def count(self, answers: Sequence[Answer]) -> None:
        """What the last reading found goes out: all of it."""
        self.count_bytes()
        self.count_partitions(answers)

    def count_bytes(self) -> None:
        """Counts what goes out in all."""
        fetches = self._broker.fetches
        fetches.bytes.value += self.bytes_read
        fetches.follower_bytes.value += self.follower_bytes_read

    def count_partitions(self, answers: Sequence[Answer]) -> None:
        """Counts what goes out of some partitions."""
        led = self._broker.replicas.by_name
        for partition, data in answers:
            if data.records and (replica := led.get((partition.topic, partition.index))) is not None:
                replica.bytes_out += len(data.records)

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._respond = None
        if self.resting is not None:
            self.resting.waiting.pop(self, None)
        if self._timer is None:
            return
        for replica in self._watched:
            self.waiters(replica).pop(self, None)
        self._watched.clear()
        self._unmoved = None
        self._broker.fetches.waits_no_longer(self, self._holder)
        self._timer.cancel()
        self._timer = None
        if self._look_handle is not None:
            self._look_handle.cancel()
