"""Reading partitions without I/O: positions, fetches under way, and what their answers hold.

One fetch is outstanding at every leader, and the next piece is asked for before the one that has arrived is handed out,
so the broker reads while the caller decodes. It returns whole record batches as the broker stored them, in
memory that nobody else touches; `headrace.wire.records` or `headrace.arrow` open them.

Methods named `..._steps` are conversations (see `conversation`): `Fetcher` and `AsyncFetcher` run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from headrace.client.conversation import Await, Pause, PendingCall, Steps
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
from headrace.client.reading import (
    EARLIEST,
    LATEST,
    Fetched,
    Isolation,
    Reset,
    list_offsets,
    whole_batches,
)
from headrace.client.routing import Router
from headrace.client.sizes import FETCH_SIZE, MAX_WAIT_MS, PARTITION_FETCH_SIZE
from headrace.wire import uuids
from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

LEADERLESS_REST_S = 0.1
"""How long a partition without a leader is left alone before the metadata is asked again."""

REPR_PARTITIONS = 3
"""How many partitions the `repr` of a fetcher shows."""


def _place(at: TopicPartition, offset: int) -> str:
    return f"topic {at[0]} partition {at[1]} offset {offset}"


class FetchOptions(TypedDict, total=False):
    """The options of a fetcher."""

    ends: Mapping[TopicPartition, int] | None
    isolation: Isolation
    reset: Reset
    topic_ids: Mapping[str, bytes] | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    rack: str


@dataclass(slots=True, eq=False)
class _Flight:
    """A fetch under way at one leader."""

    call: PendingCall[FetchResponse]
    requested: dict[TopicPartition, int]
    deadline: float


class FetcherMachine:
    """Reads partitions from given positions on, for ever or up to given ends; what waits is a conversation."""

    def __init__(self, router: Router, positions: Mapping[TopicPartition, int], options: FetchOptions) -> None:
        """`positions` are next offsets to read. `ends` (exclusive) bound partitions; those without one never finish.

        `reset` says what to do when a position is outside the log: raise `OffsetOutOfRangeError`, or go on from an end.
        `topic_ids` says in which topics the positions are: one of another id under the same name is another topic, and
        the one that is meant is not there any more. Brokers that know no ids are taken at their word.
        """
        self.router = router
        self.positions: dict[TopicPartition, int] = dict(positions)
        self.ends: dict[TopicPartition, int] = dict(options.get("ends") or {})
        self.isolation: Isolation = options.get("isolation", "read_uncommitted")
        self.reset: Reset = options.get("reset", "fail")
        self.topic_ids: dict[str, bytes] = dict(options.get("topic_ids") or {})
        self.max_wait_ms = options.get("max_wait_ms", MAX_WAIT_MS)
        self.min_bytes = options.get("min_bytes", 1)
        self.max_bytes = options.get("max_bytes", FETCH_SIZE)
        self.partition_max_bytes = options.get("partition_max_bytes", PARTITION_FETCH_SIZE)
        self.rack = options.get("rack", "")
        self.resets = 0
        self._flights: dict[int, _Flight] = {}
        self._failures: list[ClientError] = []
        self._retry = router.retry()
        self._clock = router.clock
        self._left_at = self._clock.monotonic()
        self._rotation = 0
        self._resting: dict[TopicPartition, float] = {}
        self._outside: list[tuple[TopicPartition, int]] = []
        """Positions that answers found outside their logs."""

    def __repr__(self) -> str:
        """The next offsets, and the ends, of the first partitions."""
        ends = {at: f" to {end}" for at, end in self.ends.items()}
        shown = [f"{at[0]}-{at[1]} from {now}{ends.get(at, '')}" for at, now in self.positions.items()]
        more = [f"{len(shown) - REPR_PARTITIONS} more"] if len(shown) > REPR_PARTITIONS else []
        return f"<{type(self).__name__} of {', '.join(shown[:REPR_PARTITIONS] + more)}>"

    @property
    def finished(self) -> bool:
        """Whether every partition has reached its end."""
        return not self._unfinished()

    def _unfinished(self) -> list[TopicPartition]:
        ends = self.ends
        return [at for at, position in self.positions.items() if position < ends.get(at, position + 1)]

    def pieces_steps(self) -> Steps[list[Fetched]]:
        """Waits for pieces; returns none once every partition has reached its end.

        When a bounded read makes no progress for the client's timeout, raises the error that prevents it (no leader, no
        broker), or `TimedOutError` if there is none: the end is not written.
        """
        # a fetch that nobody answers ends a moment before, and says so
        until = self._clock.monotonic() + self.router.timeout_s + 2 * self.max_wait_ms / 1000
        while not self.finished:
            pieces = yield from self.poll_steps(self.max_wait_ms / 1000)
            if pieces:
                return pieces
            if len(self.ends) == len(self.positions) and self._clock.monotonic() > until:
                at = min(self._unfinished())
                raise self._retry.error or TimedOutError(
                    f"topic {at[0]} partition {at[1]} gives nothing at offset {self.positions[at]}, "
                    f"before the end {self.ends[at]}"
                )
        return []

    def poll_steps(self, timeout_s: float) -> Steps[list[Fetched]]:
        """Returns what has arrived, waiting at most `timeout_s` for the first of it; empty if nothing came. Without
        partitions it waits as long.

        Raises `OffsetOutOfRangeError` (with reset="fail"), `UnknownTopicError` for a topic that the cluster keeps
        denying, `BrokerError`, or the last error of a cluster that does not recover within the client's timeout. Time
        between polls does not count: the caller may take as long as it likes for what it has got.
        """
        away_s = self._clock.monotonic() - self._left_at
        self._retry.leave_out(away_s)
        for flight in self._flights.values():
            flight.deadline += away_s
        try:
            return (yield from self._poll(timeout_s))
        finally:
            self._left_at = self._clock.monotonic()

    def _poll(self, timeout_s: float) -> Steps[list[Fetched]]:
        if not self.positions:  # those of a member without partitions: it polls again when this returns
            yield Pause(max(0.0, timeout_s))
            return []
        until = self._clock.monotonic() + timeout_s
        while True:
            if self._failures:
                raise self._failures.pop(0)
            yield from self._launch()
            pieces = yield from self._land()
            remaining = until - self._clock.monotonic()
            if pieces or remaining <= 0 or not self._flights:
                if not pieces and not self._flights and remaining > 0 and not self.finished:
                    yield Pause(min(remaining, LEADERLESS_REST_S / 10))
                    continue
                return pieces
            calls = [flight.call for flight in self._flights.values()]
            if not any(call.done for call in calls):
                yield Await(calls, self._clock.monotonic() + min(remaining, 1.0))

    def seek(self, at: TopicPartition, position: int) -> None:
        """Continue a partition elsewhere; drops its fetches in flight."""
        self.positions[at] = position
        for flight in self._flights.values():
            flight.requested.pop(at, None)

    def remove(self, at: TopicPartition) -> None:
        """Stop reading this partition."""
        self.positions.pop(at, None)
        self.ends.pop(at, None)
        for flight in self._flights.values():
            flight.requested.pop(at, None)

    def close(self) -> None:
        """Forget the fetches in flight.

        The client's connections stay with it, one outstanding answer a leader at most.
        """
        self._flights.clear()

    # -- requests

    def _launch(self) -> Steps[None]:
        """One fetch for every leader that has none under way and has something to read.

        Partitions without a leader wait a moment while the others go on.
        """
        under_way = {at for flight in self._flights.values() for at in flight.requested}
        wanted = [at for at in self._unfinished() if at not in under_way and self._rested(at)]
        if not wanted:
            return
        parts: dict[int, dict[TopicPartition, int]] = {}
        try:
            for name in sorted({at[0] for at in wanted}):
                if name in self.topic_ids or name not in self.router.known_topics:
                    yield from self._check_topic(name)
            for at in wanted:
                info = self.router.known_leader(*at) or (yield from self.router.leader(*at))
                if info is None:
                    self._resting[at] = self._clock.monotonic() + LEADERLESS_REST_S
                else:
                    parts.setdefault(info.leader, {})[at] = self.positions[at]
            for node_id, part in parts.items():
                if node_id not in self._flights:
                    request = self._request(part)
                    connection = self.router.brokers.open_connection(node_id)
                    if connection is None:
                        connection = yield from self.router.node_connection(node_id)
                    call = connection.send(request, FetchResponse)
                    patience_s = self.router.request_timeout_s or self.router.timeout_s
                    deadline = self._clock.monotonic() + self.max_wait_ms / 1000 + patience_s
                    self._flights[node_id] = _Flight(call, part, deadline)
        except (UnreachableError, ConnectionLostError, BrokerError) as error:
            yield from self._recover(error, {at[0] for at in wanted})
            return
        leaderless = {at for at in wanted if at in self._resting}
        if leaderless:
            self.router.forget({topic for topic, _ in leaderless})
            if not self._flights:
                at = min(leaderless)
                about = f"topic {at[0]} partition {at[1]}"
                yield from self._recover(BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about), set())

    def _check_topic(self, name: str) -> Steps[None]:
        """Fetches the topic unless it is in the cache. Raises `UnknownTopicError` if it is not the one that the
        positions are in."""
        wanted = self.topic_ids.get(name, uuids.ZERO)
        found = yield from self.router.topic(name)
        if wanted == uuids.ZERO or found.id in (wanted, uuids.ZERO):
            return
        # the client's metadata may be too old
        self.router.forget([name])
        if (yield from self.router.topic(name)).id not in (wanted, uuids.ZERO):
            raise UnknownTopicError(name)

    def _rested(self, at: TopicPartition) -> bool:
        if at in self._resting and self._clock.monotonic() >= self._resting[at]:
            del self._resting[at]
        return at not in self._resting

    def _request(self, part: Mapping[TopicPartition, int]) -> FetchRequest:
        """A fetch outside any session. The order of the partitions rotates, so that none starves behind another."""
        self._rotation += 1
        order = sorted(part)
        turn = self._rotation % len(order)
        topics: dict[str, FetchTopic] = {}
        for name, index in order[turn:] + order[:turn]:
            info = self.router.known_topics[name]
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

    def _land(self) -> Steps[list[Fetched]]:
        """Take in every answer that is there; ask each of these leaders for more before returning."""
        pieces: list[Fetched] = []
        for node_id, flight in list(self._flights.items()):
            if not flight.call.done:
                if self._clock.monotonic() > flight.deadline:
                    del self._flights[node_id]
                    self.router.brokers.close_node(node_id)
                    yield from self._recover(TimedOutError(f"broker {node_id} does not answer a fetch"), set())
                continue
            del self._flights[node_id]
            topics = {name for name, _ in flight.requested}
            try:
                response = flight.call.result()
            except ClientError as error:
                yield from self._recover(error, topics)
                continue
            if response.error_code != ErrorCode.NONE:
                yield from self._recover(BrokerError(response.error_code, f"fetch at broker {node_id}"), topics)
                continue
            for passing, names in self._take(response, flight.requested, pieces):
                yield from self._recover(passing, names)
        if self._outside:
            yield from self._reset_positions()
        if pieces:
            self._retry = self.router.retry()
            yield from self._launch()
        return pieces

    def _take(
        self, response: FetchResponse, requested: dict[TopicPartition, int], pieces: list[Fetched]
    ) -> list[tuple[ClientError, set[str]]]:
        """Takes in an answer. Returns the errors of partitions that may pass, and their topics."""
        passing: list[tuple[ClientError, set[str]]] = []
        for topic in response.responses:
            name = topic.topic
            if topic.topic_id != uuids.ZERO:
                name = self.router.topic_name(topic.topic_id) or name
            for data in topic.partitions:
                at = (name, data.partition_index)
                position = requested.get(at)
                if position is None or self.positions.get(at) != position:
                    continue
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._outside.append((at, position))
                elif data.error_code == ErrorCode.CORRUPT_MESSAGE:
                    # retriable as an answer to a producer; a log does not change
                    self._failures.append(BrokerError(data.error_code, _place(at, position)))
                elif data.error_code != ErrorCode.NONE:
                    passing.append((BrokerError(data.error_code, _place(at, position)), {name}))
                else:
                    self._take_records(at, position, data, pieces)
        return passing

    def _take_records(self, at: TopicPartition, position: int, data: PartitionData, pieces: list[Fetched]) -> None:
        raw = data.records
        assert raw is None or not isinstance(raw, FileSlice), "decoded records are memory"
        records, next_position = whole_batches(memoryview(b"" if raw is None else raw), position)
        if next_position is None:
            if raw is not None and len(raw):
                no_batch = "the broker's answer is not a batch"
                self._failures.append(BrokerError(ErrorCode.CORRUPT_MESSAGE, _place(at, position), no_batch))
            self._retry = self.router.retry()
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

    def _reset_positions(self) -> Steps[None]:
        """Handles positions below the log's start (retention) or above its end (truncation, a topic created again)."""
        outside, self._outside = self._outside, []
        for at, position in outside:
            if self.reset == "fail":
                self._failures.append(OffsetOutOfRangeError(at[0], at[1], position))
                continue
            special = EARLIEST if self.reset == "earliest" else LATEST
            found = yield from list_offsets.steps(self.router, {at: special}, isolation=self.isolation)
            self.positions[at] = found[at].offset
            self.resets += 1

    def _recover(self, error: ClientError, topics: set[str]) -> Steps[None]:
        """Pause and ask for fresh metadata after an error that may pass; keep any other for the next `poll`."""
        if isinstance(error, BrokerError) and not error.retriable:
            self._failures.append(error)
            return
        try:
            if isinstance(error, UnknownTopicError):
                yield from self._retry.pause_or_raise(error)
            else:
                yield from self._retry.pause(error)
            self.router.forget(topics)
        except ClientError as final:
            self._failures.append(final)
