"""Reading: offsets by time or end, and raw batches from the leaders of partitions.

A `Fetcher` keeps one fetch outstanding at every leader and asks for the next piece before it hands out the one that has
arrived, so the broker reads while the caller decodes. What it hands out are whole record batches as the broker stored
them, in memory that nobody else touches; `headrace.wire.records` or `headrace.arrow` open them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headrace.client.cluster import Client
from headrace.client.conversation import PendingCall, Steps
from headrace.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    OffsetOutOfRangeError,
    TimedOutError,
    UnknownTopicError,
    UnreachableError,
)
from headrace.client.metadata import TopicPartition
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.client.sizes import FETCH_SIZE, MAX_WAIT_MS, PARTITION_FETCH_SIZE
from headrace.wire import uuids
from headrace.wire.batch import BatchHeader, iter_whole_headers, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice
from headrace.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

Isolation = Literal["read_uncommitted", "read_committed"]
Reset = Literal["fail", "earliest", "latest"]

LEADERLESS_REST_S = 0.1
"""How long a partition without a leader is left alone before the metadata is asked again."""

REPR_PARTITIONS = 3
"""How many partitions the `repr` of a fetcher shows."""


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """What ListOffsets found: -1 as the offset means that no record is that young."""

    offset: int
    timestamp: int
    leader_epoch: int


@operation
def list_offsets(
    router: Router,
    times: Mapping[TopicPartition, int],
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_s: float | None = None,
) -> Steps[dict[TopicPartition, OffsetAt]]:
    """Finds the first offset at or after a timestamp in ms, or a special one: `LATEST`, `EARLIEST`, `MAX_TIMESTAMP`...

    With read_committed, `LATEST` is the last stable offset. Raises `BrokerError`.
    """
    level = int(isolation == "read_committed")

    def request_of(part: dict[TopicPartition, int]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, index), timestamp in part.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=level, topics=list(topics.values()), timeout_ms=int(router.timeout_s * 1000)
        )

    def results_of(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, OffsetAt]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield (topic.name, p.partition_index), p.error_code, OffsetAt(p.offset, p.timestamp, p.leader_epoch)

    return (yield from router.at_leaders(times, request_of, ListOffsetsResponse, results_of, timeout_s=timeout_s))


@operation
def earliest_offsets(router: Router, topic: str) -> Steps[dict[int, int]]:
    """Finds the log start offset of every partition of a topic."""
    partitions = yield from router.partitions(topic)
    found = yield from list_offsets.steps(router, dict.fromkeys(partitions, EARLIEST))
    return {partition: at.offset for (_, partition), at in found.items()}


@operation
def latest_offsets(router: Router, topic: str, *, isolation: Isolation = "read_uncommitted") -> Steps[dict[int, int]]:
    """Finds the end of every partition of a topic: the high watermark, or the last stable offset for read_committed."""
    partitions = yield from router.partitions(topic)
    found = yield from list_offsets.steps(router, dict.fromkeys(partitions, LATEST), isolation=isolation)
    return {partition: at.offset for (_, partition), at in found.items()}


@dataclass(slots=True)
class Fetched:
    """Whole batches of one partition, in offset order.

    `records` may begin below `position` (a batch that contains it) and, with an end set, reach beyond that end: readers
    drop records outside [`position`, `end`). `next_position` is where the next piece continues. `aborted` lists
    (producer id, first offset) of aborted transactions in here, for read_committed; see `visible_batches`.
    """

    topic: str
    partition: int
    position: int
    next_position: int
    end: int | None
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] = field(default_factory=list)

    def __repr__(self) -> str:
        """Where it is and how large; the records are encoded batches."""
        some = self.next_position > self.position
        span = f"offsets {self.position} to {self.next_position - 1}" if some else "nothing"
        return f"<Fetched {self.topic}-{self.partition}, {span}, {len(self.records)} bytes>"


def _place(at: TopicPartition, offset: int) -> str:
    return f"topic {at[0]} partition {at[1]} offset {offset}"


def whole_batches(records: memoryview, position: int = 0) -> tuple[memoryview, int | None]:
    """Cut off the batch that the fetch limit left incomplete; returns the rest and the offset after its last batch.

    Sizes and base offsets lie outside the checksum. So what cannot be a batch is cut off too: its length is less than a
    header, or it does not end above `position`. Of two of which the later begins before the end of the earlier one,
    either may be wrong, and both go.
    """
    before = end = 0
    due_before = due = position
    for at, header in iter_whole_headers(records):
        if at and header.base_offset < due:
            end, due = before, due_before
            break
        if header.next_offset <= max(due, header.base_offset):
            break
        before, due_before = end, due
        end, due = at + header.size, header.next_offset
    return records[:end], due if end else None


def visible_batches(
    fetched: Fetched, *, committed: bool = False, control: bool = False
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the data batches of a piece, without aborted transactions if `committed`; control batches if `control`.

    A transaction is aborted from its first offset until its producer's next control batch (KIP-98).
    """
    waiting = sorted(fetched.aborted, key=lambda producer: producer[1])
    aborted: set[int] = set()
    at, size = 0, len(fetched.records)
    while at < size:
        header = read_header(fetched.records, at)
        body = fetched.records[at : at + header.size]
        at += header.size
        while waiting and waiting[0][1] <= header.last_offset:
            aborted.add(waiting.pop(0)[0])
        if header.is_control:
            aborted.discard(header.producer_id)
            if control:
                yield header, body
        elif not (committed and header.is_transactional and header.producer_id in aborted):
            yield header, body


@dataclass(slots=True, eq=False)
class _Flight:
    """A fetch under way at one leader."""

    call: PendingCall[FetchResponse]
    asked: dict[TopicPartition, int]
    deadline: float


class Fetcher:
    """Reads partitions from given positions on, for ever or up to given ends."""

    def __init__(
        self,
        client: Client,
        positions: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        isolation: Isolation = "read_uncommitted",
        reset: Reset = "fail",
        topic_ids: Mapping[str, bytes] | None = None,
        max_wait_ms: int = MAX_WAIT_MS,
        min_bytes: int = 1,
        max_bytes: int = FETCH_SIZE,
        partition_max_bytes: int = PARTITION_FETCH_SIZE,
        rack: str = "",
    ) -> None:
        """`positions` are next offsets to read. `ends` (exclusive) bound partitions; those without one never finish.

        `reset` says what to do when a position is outside the log: raise `OffsetOutOfRangeError`, or go on from an end.
        `topic_ids` says in which topics the positions are: one of another id under the same name is another topic, and
        the one that is meant is not there any more. Brokers that know no ids are taken at their word.
        """
        self.client = client
        self.positions: dict[TopicPartition, int] = dict(positions)
        self.ends: dict[TopicPartition, int] = dict(ends or {})
        self.isolation = isolation
        self.reset = reset
        self.topic_ids: dict[str, bytes] = dict(topic_ids or {})
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.partition_max_bytes = partition_max_bytes
        self.rack = rack
        self.resets = 0
        self._flights: dict[int, _Flight] = {}
        self._failures: list[ClientError] = []
        self._retry = client.router.retry()
        self._left_at = time.monotonic()
        self._rotation = 0
        self._resting: dict[TopicPartition, float] = {}

    def __repr__(self) -> str:
        """The next offsets, and the ends, of the first partitions."""
        ends = {at: f" to {end}" for at, end in self.ends.items()}
        shown = [f"{at[0]}-{at[1]} from {now}{ends.get(at, '')}" for at, now in self.positions.items()]
        more = [f"{len(shown) - REPR_PARTITIONS} more"] if len(shown) > REPR_PARTITIONS else []
        return f"<Fetcher of {', '.join(shown[:REPR_PARTITIONS] + more)}>"

    @property
    def finished(self) -> bool:
        """Whether every partition has reached its end."""
        return not self._unfinished()

    def _unfinished(self) -> list[TopicPartition]:
        ends = self.ends
        return [at for at, position in self.positions.items() if position < ends.get(at, position + 1)]

    def __iter__(self) -> Iterator[Fetched]:
        """Pieces until every partition has reached its end.

        When a bounded read makes no progress for the client's timeout, raises the error that stands in its way (no
        leader, no broker), or `TimedOutError` where there is none: the end is not written.
        """
        # a fetch that nobody answers ends a moment before, and says so
        patience_s = self.client.timeout_s + 2 * self.max_wait_ms / 1000
        patience = time.monotonic() + patience_s
        while not self.finished:
            pieces = self.poll(self.max_wait_ms / 1000)
            if pieces:
                yield from pieces
                patience = time.monotonic() + patience_s
            elif len(self.ends) == len(self.positions) and time.monotonic() > patience:
                at = min(self._unfinished())
                raise self._retry.error or TimedOutError(
                    f"topic {at[0]} partition {at[1]} gives nothing at offset {self.positions[at]}, "
                    f"before the end {self.ends[at]}"
                )

    def poll(self, timeout_s: float) -> list[Fetched]:
        """What has arrived, waiting at most `timeout_s` for the first of it. Empty when nothing came.

        Raises `OffsetOutOfRangeError` (with reset="fail"), `UnknownTopicError` for a topic that the cluster keeps
        denying, `BrokerError`, or the last error of a cluster that does not recover within the client's timeout. Time
        between polls counts for nobody: the caller may take as long as it likes for what it has got.
        """
        away_s = time.monotonic() - self._left_at
        self._retry.leave_out(away_s)
        for flight in self._flights.values():
            flight.deadline += away_s
        try:
            return self._poll(timeout_s)
        finally:
            self._left_at = time.monotonic()

    def _poll(self, timeout_s: float) -> list[Fetched]:
        until = time.monotonic() + timeout_s
        while True:
            if self._failures:
                raise self._failures.pop(0)
            self._launch()
            pieces = self._land()
            remaining = until - time.monotonic()
            if pieces or remaining <= 0 or not self._flights:
                if not pieces and not self._flights and remaining > 0 and not self.finished:
                    time.sleep(min(remaining, LEADERLESS_REST_S / 10))
                    continue
                return pieces
            if not any(flight.call.done for flight in self._flights.values()):
                self.client.move(min(remaining, 1.0))

    def seek(self, at: TopicPartition, position: int) -> None:
        """Continue a partition elsewhere; what is under way for it is dropped."""
        self.positions[at] = position
        for flight in self._flights.values():
            flight.asked.pop(at, None)

    def remove(self, at: TopicPartition) -> None:
        """Read this partition no more."""
        self.positions.pop(at, None)
        self.ends.pop(at, None)
        for flight in self._flights.values():
            flight.asked.pop(at, None)

    def close(self) -> None:
        """Forget what is under way. The client's connections stay with it, one outstanding answer a leader at most."""
        self._flights.clear()

    # -- requests

    def _launch(self) -> None:
        """One fetch for every leader that has none under way and has something to read.

        Partitions without a leader wait a moment while the others go on.
        """
        under_way = {at for flight in self._flights.values() for at in flight.asked}
        wanted = [at for at in self._unfinished() if at not in under_way and self._rested(at)]
        if not wanted:
            return
        parts: dict[int, dict[TopicPartition, int]] = {}
        try:
            for name in sorted({at[0] for at in wanted}):
                self._check_topic(name)
            for at in wanted:
                info = self.client.leader(*at)
                if info is None:
                    self._resting[at] = time.monotonic() + LEADERLESS_REST_S
                else:
                    parts.setdefault(info.leader, {})[at] = self.positions[at]
            for node_id, part in parts.items():
                if node_id not in self._flights:
                    request = self._request(part)
                    call = self.client.send(node_id, request, FetchResponse)
                    patience_s = self.client.request_timeout_s or self.client.timeout_s
                    deadline = time.monotonic() + self.max_wait_ms / 1000 + patience_s
                    self._flights[node_id] = _Flight(call, part, deadline)
        except (UnreachableError, ConnectionLostError, BrokerError) as error:
            self._recover(error, {at[0] for at in wanted})
            return
        leaderless = {at for at in wanted if at in self._resting}
        if leaderless:
            self.client.forget({topic for topic, _ in leaderless})
            if not self._flights:
                at = min(leaderless)
                about = f"topic {at[0]} partition {at[1]}"
                self._recover(BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about), set())

    def _check_topic(self, name: str) -> None:
        """Raises `UnknownTopicError` where the topic of this name is not the one that the positions are in."""
        wanted = self.topic_ids.get(name, uuids.ZERO)
        if wanted == uuids.ZERO or self.client.topic(name).id in (wanted, uuids.ZERO):
            return
        # what the client knows may be older than what is wanted
        self.client.forget([name])
        if self.client.topic(name).id not in (wanted, uuids.ZERO):
            raise UnknownTopicError(name)

    def _rested(self, at: TopicPartition) -> bool:
        if at in self._resting and time.monotonic() >= self._resting[at]:
            del self._resting[at]
        return at not in self._resting

    def _request(self, part: Mapping[TopicPartition, int]) -> FetchRequest:
        """A fetch outside any session. The order of the partitions rotates, so that none starves behind another."""
        self._rotation += 1
        order = sorted(part)
        turn = self._rotation % len(order)
        topics: dict[str, FetchTopic] = {}
        for name, index in order[turn:] + order[:turn]:
            info = self.client.topic(name)
            topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=info.id))
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=info.partitions[index].leader_epoch,
                    fetch_offset=part[name, index],
                    partition_max_bytes=self.partition_max_bytes,
                )
            )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=int(self.isolation == "read_committed"),
            session_epoch=-1,
            topics=list(topics.values()),
            rack_id=self.rack,
        )

    # -- answers

    def _land(self) -> list[Fetched]:
        """Take in every answer that is there; ask each of these leaders for more before returning."""
        pieces: list[Fetched] = []
        for node_id, flight in list(self._flights.items()):
            if not flight.call.done:
                if time.monotonic() > flight.deadline:
                    del self._flights[node_id]
                    self.client.node_connection(node_id).close()
                    self._recover(TimedOutError(f"broker {node_id} does not answer a fetch"), set())
                continue
            del self._flights[node_id]
            topics = {name for name, _ in flight.asked}
            try:
                response = flight.call.result()
            except ClientError as error:
                self._recover(error, topics)
                continue
            if response.error_code != ErrorCode.NONE:
                self._recover(BrokerError(response.error_code, f"fetch at broker {node_id}"), topics)
                continue
            self._take(response, flight.asked, pieces)
        if pieces:
            self._retry = self.client.router.retry()
            self._launch()
        return pieces

    def _take(self, response: FetchResponse, asked: dict[TopicPartition, int], pieces: list[Fetched]) -> None:
        for topic in response.responses:
            name = topic.topic
            if topic.topic_id != uuids.ZERO:
                name = self.client.topic_name(topic.topic_id) or name
            for data in topic.partitions:
                at = (name, data.partition_index)
                position = asked.get(at)
                if position is None or self.positions.get(at) != position:
                    continue
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._out_of_range(at, position)
                elif data.error_code == ErrorCode.CORRUPT_MESSAGE:
                    # retriable where it is an answer to a producer; what lies in a log does not mend itself
                    self._failures.append(BrokerError(data.error_code, _place(at, position)))
                elif data.error_code != ErrorCode.NONE:
                    self._recover(BrokerError(data.error_code, _place(at, position)), {name})
                else:
                    self._take_records(at, position, data, pieces)

    def _take_records(self, at: TopicPartition, position: int, data: PartitionData, pieces: list[Fetched]) -> None:
        raw = data.records
        assert raw is None or not isinstance(raw, FileSlice), "decoded records are memory"
        records, next_position = whole_batches(memoryview(b"" if raw is None else raw), position)
        if next_position is None:
            if raw is not None and len(raw):
                no_batch = "the broker's answer is not a batch"
                self._failures.append(BrokerError(ErrorCode.CORRUPT_MESSAGE, _place(at, position), no_batch))
            self._retry = self.client.router.retry()
            return
        self.positions[at] = next_position
        aborted = [(txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or []]
        pieces.append(
            Fetched(
                topic=at[0],
                partition=at[1],
                position=position,
                next_position=next_position,
                end=self.ends.get(at),
                records=records,
                high_watermark=data.high_watermark,
                last_stable_offset=data.last_stable_offset,
                log_start_offset=data.log_start_offset,
                aborted=aborted,
            )
        )

    def _out_of_range(self, at: TopicPartition, position: int) -> None:
        """The log starts above the position (retention) or ends below it (truncation, a topic created again)."""
        if self.reset == "fail":
            self._failures.append(OffsetOutOfRangeError(at[0], at[1], position))
            return
        special = EARLIEST if self.reset == "earliest" else LATEST
        self.positions[at] = list_offsets(self.client, {at: special}, isolation=self.isolation)[at].offset
        self.resets += 1

    def _recover(self, error: ClientError, topics: set[str]) -> None:
        """Pause and ask for fresh metadata after an error that may pass; keep any other for the next `poll`."""
        if isinstance(error, BrokerError) and not error.retriable:
            self._failures.append(error)
            return
        try:
            if isinstance(error, UnknownTopicError):
                self.client.run(self._retry.pause_or_raise(error))
            else:
                self.client.run(self._retry.pause(error))
            self.client.forget(topics)
        except ClientError as final:
            self._failures.append(final)
