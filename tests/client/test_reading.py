"""Fetching: what is asked, what is handed out, and what happens when the log is not where one thought."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, OffsetOutOfRangeError, TimedOutError, UnknownTopicError
from headrace.client.fetcher import Fetcher
from headrace.client.reading import Fetched, visible_batches, whole_batches
from headrace.wire import uuids
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.records import Record, build_batch, decode_batch

from .fake_broker import HANG_UP, FakeBroker


def batch(base: int, count: int = 1, **options: Any) -> bytes:
    records = [Record(base + i, 1, None, b"%d" % (base + i)) for i in range(count)]
    return bytes(build_batch(records, base_offset=base, **options))


class Log:
    """Partitions as lists of batches; answers Fetch and ListOffsets. `trouble` may spoil a fetch."""

    def __init__(self, *batches: bytes, start: int = 0, cut: int = 0) -> None:
        self.batches = list(batches)
        self.start = start
        self.cut = cut
        self.requests: list[FetchRequest] = []
        self.trouble: Callable[[int], Any] = lambda _number: None
        self.aborted: list[AbortedTransaction] = []
        self.fetch_all: Callable[[int], bytes] | None = None

    def end(self) -> int:
        return self.start + sum(len(decode_batch(each)) for each in self.batches)

    def fetch(self, request: FetchRequest, _version: int) -> Any:
        self.requests.append(request)
        trouble = self.trouble(len(self.requests) - 1)
        if trouble is HANG_UP:
            return HANG_UP
        (topic,) = request.topics
        answers = []
        for asked in topic.partitions:
            found = [each for each in self.batches if decode_batch(each)[-1].offset >= asked.fetch_offset]
            data = b"".join(found)
            data = data[: len(data) - self.cut] if len(found) > 1 else data
            data = data if self.fetch_all is None else self.fetch_all(asked.fetch_offset)
            code = trouble or ErrorCode.NONE
            if not self.start <= asked.fetch_offset <= self.end():
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            answers.append(
                PartitionData(
                    partition_index=asked.partition,
                    error_code=code,
                    high_watermark=self.end(),
                    log_start_offset=self.start,
                    aborted_transactions=self.aborted,
                    records=b"" if code else data,
                )
            )
        if not any(answer.records or answer.error_code for answer in answers):
            time.sleep(request.max_wait_ms / 1000)
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)]
        )

    def list_offsets(self, request: ListOffsetsRequest, _version: int) -> ListOffsetsResponse:
        (topic,) = request.topics
        answers = [
            ListOffsetsPartitionResponse(
                partition_index=p.partition_index, offset=self.start if p.timestamp == -2 else self.end()
            )
            for p in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=answers)])

    def answers(self) -> dict[int, Any]:
        return {ApiKey.FETCH: self.fetch, ApiKey.LIST_OFFSETS: self.list_offsets}


def read(log: Log, start: int, end: int, *, newest: int = 18, **options: Any) -> list[Fetched]:
    broker = FakeBroker(answers=log.answers())
    broker.versions_max[ApiKey.FETCH] = newest
    with broker, Client(broker.bootstrap, timeout_s=5.0) as client:
        at = ("events", 0)
        return list(Fetcher(client, {at: start}, ends={at: end}, max_wait_ms=20, **options))


def values(pieces: list[Fetched]) -> list[bytes | None]:
    return [record.value for piece in pieces for _, body in visible_batches(piece) for record in decode_batch(body)]


@pytest.mark.parametrize("newest", [4, 11, 12, 13, 18])
def test_batches_come_whole_at_every_version(newest: int) -> None:
    log = Log(batch(0, 3), batch(3, 2), batch(5), cut=7)
    pieces = read(log, 0, 6, newest=newest)
    assert values(pieces) == [b"%d" % offset for offset in range(6)]
    assert [piece.position for piece in pieces] == [0, 5]
    assert [piece.next_position for piece in pieces] == [5, 6]
    assert pieces[0].end == 6
    assert len(pieces[0].records) == len(log.batches[0]) + len(log.batches[1])


def test_the_first_batch_may_begin_below_the_position() -> None:
    (piece,) = read(Log(batch(0, 10)), 4, 10)
    assert (piece.position, piece.next_position) == (4, 10)
    assert len(values([piece])) == 10


def test_gaps_of_compaction_are_passed() -> None:
    log = Log(batch(0), batch(7), batch(9))
    log.end = lambda: 20  # type: ignore[method-assign]
    assert values(read(log, 0, 10)) == [b"0", b"7", b"9"]


def test_an_empty_range_asks_nothing() -> None:
    log = Log(batch(0))
    assert read(log, 1, 1) == []
    assert log.requests == []


@pytest.mark.parametrize(
    "trouble", [HANG_UP, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_trouble_that_passes_loses_nothing(trouble: Any) -> None:
    log = Log(*(batch(offset) for offset in range(5)), cut=1)
    log.trouble = lambda number: trouble if number in (0, 2) else None
    assert values(read(log, 0, 5)) == [b"%d" % offset for offset in range(5)]


def test_trouble_that_does_not_pass_is_raised() -> None:
    log = Log(batch(0))
    log.trouble = lambda _number: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(log, 0, 1)


def test_a_log_that_the_broker_cannot_read_is_named_at_once() -> None:
    log = Log(batch(0))
    log.trouble = lambda _number: ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(BrokerError, match=r"topic events partition 0 offset 0: .* \(CORRUPT_MESSAGE\)"):
        read(log, 0, 1)
    assert len(log.requests) == 1


def test_outside_the_log() -> None:
    log = Log(batch(10, 5), start=10)
    for position in (3, 99):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {position}"):
            read(log, position, 100)
    assert [piece.position for piece in read(log, 3, 15, reset="earliest")] == [10]
    assert read(log, 3, 15, reset="latest") == []


def test_the_next_piece_is_asked_for_before_one_is_handed_out() -> None:
    log = Log(batch(0), batch(1))
    log.cut = 1
    with FakeBroker(answers=log.answers()) as broker, Client(broker.bootstrap) as client:
        fetcher = Fetcher(client, {("events", 0): 0}, max_wait_ms=20)
        (piece,) = fetcher.poll(20.0)
        patience = time.monotonic() + 60
        while len(log.requests) < 2 and time.monotonic() < patience:
            time.sleep(0.005)
        assert log.requests[1].topics[0].partitions[0].fetch_offset == piece.next_position


def test_partitions_take_turns_in_front() -> None:
    log = Log(batch(0))
    with FakeBroker(partitions=3, answers=log.answers()) as broker, Client(broker.bootstrap) as client:
        fetcher = Fetcher(client, {("events", index): 1 for index in range(3)}, max_wait_ms=5)
        for _ in range(6):
            fetcher.poll(0.02)
    assert {request.topics[0].partitions[0].partition for request in log.requests} == {0, 1, 2}


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    log = Log(batch(0))
    with FakeBroker(partitions=2, answers=log.answers()) as broker, Client(broker.bootstrap) as client:
        broker.leaderless = {0}
        fetcher = Fetcher(client, {("events", index): 0 for index in range(2)}, max_wait_ms=5)
        assert [piece.partition for piece in fetcher.poll(20.0)] == [1]
        assert fetcher.poll(0.3) == []
        broker.leaderless = set()
        assert [piece.partition for piece in fetcher.poll(20.0)] == [0]


def test_no_leader_for_too_long_is_said() -> None:
    with FakeBroker(answers=Log(batch(0)).answers()) as broker, Client(broker.bootstrap, timeout_s=0.5) as client:
        broker.leaderless = {0}
        with pytest.raises(BrokerError, match=r"^topic events partition 0: .* \(LEADER_NOT_AVAILABLE\)$"):
            list(Fetcher(client, {("events", 0): 0}, ends={("events", 0): 1}))


def test_a_broker_that_falls_silent_is_named() -> None:
    log = Log(batch(0))
    silent = {**log.answers(), ApiKey.FETCH: lambda _request, _version: None}
    with FakeBroker(answers=silent) as broker, Client(broker.bootstrap, timeout_s=0.3) as client:
        with pytest.raises(TimedOutError, match="broker 1 does not answer a fetch"):
            list(Fetcher(client, {("events", 0): 0}, ends={("events", 0): 1}, max_wait_ms=20))


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [None, HANG_UP, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_the_time_that_a_reader_takes_for_a_piece_is_not_the_brokers(trouble: Any) -> None:
    """Spark takes rows as fast as what follows in the query: the patience with a broker is not used up meanwhile."""
    log = Log(batch(0), batch(1), cut=1)
    log.trouble = lambda number: trouble if number == 1 else None
    with FakeBroker(answers=log.answers()) as broker, Client(broker.bootstrap, timeout_s=1.0) as client:
        found = []
        for piece in Fetcher(client, {("events", 0): 0}, ends={("events", 0): 2}, max_wait_ms=20):
            found.append(piece)
            time.sleep(1.3)
    assert values(found) == [b"0", b"1"]
    assert len(log.requests) == (2 if trouble is None else 3), "what was asked for before is not asked for again"


def test_a_topic_of_another_id_is_another_topic() -> None:
    log = Log(batch(0), batch(1))
    at = ("events", 0)

    def fetch(topic_id: bytes) -> list[Fetched]:
        return list(Fetcher(client, {at: 0}, ends={at: 2}, topic_ids={"events": topic_id}, max_wait_ms=20))

    with FakeBroker(answers=log.answers()) as broker, Client(broker.bootstrap) as client:
        assert values(fetch(broker.topic_id)) == values(fetch(uuids.ZERO)) == [b"0", b"1"]
        asked = len(log.requests)
        with pytest.raises(UnknownTopicError, match="topic events"):
            fetch(b"an-earlier-topic")
        assert len(log.requests) == asked, "nothing of it is read"
        # what the client knows is older than what is wanted
        broker.topic_id = b"headrace-topic-2"
        assert values(fetch(broker.topic_id)) == [b"0", b"1"]
    without = FakeBroker(answers=log.answers())
    without.topic_id = uuids.ZERO
    without.versions_max[ApiKey.FETCH] = 12
    with without, Client(without.bootstrap) as client:
        assert values(fetch(b"headrace-topic-2")) == [b"0", b"1"], "a broker that has no ids is taken at its word"


def test_a_topic_that_is_deleted_while_it_is_read_is_said_at_once() -> None:
    log = Log(batch(0), batch(1))
    with FakeBroker(answers=log.answers()) as broker, Client(broker.bootstrap, timeout_s=60) as client:
        pieces = iter(Fetcher(client, {("events", 0): 0}, ends={("events", 0): 3}, max_wait_ms=20))
        next(pieces)
        log.trouble = lambda _number: ErrorCode.UNKNOWN_TOPIC_ID
        broker.topic = "others"
        before = time.monotonic()
        with pytest.raises(UnknownTopicError, match="topic events"):
            next(pieces)
        assert time.monotonic() - before < 30, "long before the client's patience is over"


def test_seeking_and_removing() -> None:
    log = Log(*(batch(offset) for offset in range(4)))
    with FakeBroker(partitions=2, answers=log.answers()) as broker, Client(broker.bootstrap) as client:
        fetcher = Fetcher(client, {("events", 0): 0, ("events", 1): 0}, max_wait_ms=5)
        while not fetcher.poll(0.1):
            pass
        fetcher.remove(("events", 1))
        fetcher.seek(("events", 0), 2)
        pieces = [piece for _ in range(5) for piece in fetcher.poll(0.1)]
        assert [(piece.partition, piece.position) for piece in pieces] == [(0, 2)]
        fetcher.close()


def test_whole_batches_stop_at_the_torn_one() -> None:
    data = batch(0, 2) + batch(2)
    for size in range(len(data) + 1):
        records, next_offset = whole_batches(memoryview(data[:size]))
        expected = 0 if size < len(batch(0, 2)) else len(batch(0, 2)) if size < len(data) else len(data)
        assert len(records) == expected
        assert next_offset == {0: None, len(batch(0, 2)): 2, len(data): 3}[expected]


def moved(each: bytes, base: int) -> bytes:
    """A batch whose base offset, which no checksum covers, is another one."""
    return base.to_bytes(8, "big", signed=True) + each[8:]


def sized(each: bytes, length: int) -> bytes:
    return each[:8] + length.to_bytes(4, "big", signed=True) + each[12:]


@pytest.mark.parametrize(
    ("spoilt", "named"),
    [
        pytest.param(sized(batch(2), -12), 2, id="of no bytes"),
        pytest.param(sized(batch(2), -100), 2, id="of fewer"),
        pytest.param(sized(batch(2), 0), 2, id="less than a header"),
        pytest.param(sized(batch(2), 1 << 30), 2, id="beyond all there is"),
        # of two that contradict each other either may be wrong
        pytest.param(moved(batch(2), 0), 1, id="before the one before"),
        pytest.param(moved(batch(2), -5), 1, id="before all offsets"),
        pytest.param(moved(batch(2), 254), 2, id="after the one after"),
    ],
)
def test_what_cannot_be_a_batch_there_is_not_passed_over(spoilt: bytes, named: int) -> None:
    first, second, fourth = batch(0), batch(1), batch(3)
    sound = first if named == 1 else first + second
    assert whole_batches(memoryview(first + second + spoilt + fourth)) == (memoryview(sound), named)
    log = Log(first, second, batch(2))
    log.fetch_all = lambda position: b"".join([first, second][position:]) + spoilt + fourth
    text = f"topic events partition 0 offset {named}: the broker's answer is not a batch"
    with pytest.raises(BrokerError, match=text):
        read(log, 0, 4)
    # the records before it were read: no fetch asked for them again
    assert [request.topics[0].partitions[0].fetch_offset for request in log.requests] == [0, named]


def piece_of(*batches: bytes, aborted: list[tuple[int, int]]) -> Fetched:
    data = memoryview(b"".join(batches))
    return Fetched("t", 0, 0, 99, None, data, 99, 99, 0, aborted)


def test_aborted_transactions_are_left_out_of_committed_reads() -> None:
    def written(base: int, producer: int) -> bytes:
        return batch(base, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    def marker(base: int, producer: int) -> bytes:
        records = [Record(base, 1, b"\0\0\0\0", b"\0\0\0\0\0\0")]
        built = build_batch(
            records, base_offset=base, producer_id=producer, producer_epoch=0, transactional=True, control=True
        )
        return bytes(built)

    piece = piece_of(
        batch(0),
        written(1, 7),  # aborted at 4
        written(2, 8),  # committed at 5
        batch(3),
        marker(4, 7),
        marker(5, 8),
        written(6, 7),  # a new transaction of the same producer, committed
        marker(7, 7),
        written(8, 8),  # aborted
        marker(9, 8),
        aborted=[(8, 8), (7, 1)],
    )
    everything = [header.base_offset for header, _ in visible_batches(piece)]
    committed = [header.base_offset for header, _ in visible_batches(piece, committed=True)]
    assert everything == [0, 1, 2, 3, 6, 8]
    assert committed == [0, 2, 3, 6]
