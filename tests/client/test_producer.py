"""Idempotent delivery under trouble: retries keep order and sequences, what cannot be delivered stops the producer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from headrace.client import producing
from headrace.client.batch_limits import BATCH_SIZE_MAX, FORGET_AFTER_S, BatchLimits
from headrace.client.cluster import Client
from headrace.client.deliveries import IN_FLIGHT_MAX
from headrace.client.errors import BrokerError, TimedOutError, UnknownTopicError
from headrace.client.partitioner import partition_for_key
from headrace.client.producer import Producer
from headrace.client.ready_batches import stamp_producer
from headrace.wire.apis import ApiKey
from headrace.wire.batch import BATCH_OVERHEAD, check_crc, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.records import Compression, Record, build_batch, decode_batch

from .fake_broker import HANG_UP, Answer, FakeBroker

Trouble = Callable[[int], Any]


class Partition:
    """The log of one partition as a broker with idempotence keeps it; `trouble` spoils the n-th batch's answer."""

    def __init__(self, trouble: Trouble = lambda _number: None) -> None:
        self.trouble = trouble
        self.values: list[bytes | None] = []
        self.next_sequence = 0
        self.epoch = 0
        self.arrivals = 0

    def answer(self, request: ProduceRequest, _version: int) -> Any:
        topic = request.topic_data[0]
        answers = []
        for data in topic.partition_data:
            number, self.arrivals = self.arrivals, self.arrivals + 1
            spoiled = self.trouble(number)
            if spoiled in (HANG_UP, None):
                code, offset = self.append(data.records)
                if spoiled is HANG_UP:
                    return HANG_UP
            else:
                code, offset = spoiled, -1
            answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)]
        )

    def append(self, batch: Any) -> tuple[int, int]:
        header = read_header(batch)
        assert check_crc(batch, 0, header)
        assert header.producer_id == 7
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > self.epoch and header.base_sequence == 0:
            self.epoch, self.next_sequence = header.producer_epoch, 0
        if header.base_sequence < self.next_sequence:
            return ErrorCode.NONE, header.base_sequence
        if header.base_sequence > self.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.next_sequence += header.record_count
        offset = len(self.values)
        self.values += [record.value for record in decode_batch(batch)]
        return ErrorCode.NONE, offset


def write(partition: Partition, count: int, **options: Any) -> list[bytes]:
    """Send `count` records in batches of about ten; returns their values."""
    values = [b"%05d" % number + b"x" * 95 for number in range(count)]
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        with Producer(client, batch_size=1000, **options) as producer:
            for value in values:
                producer.send("events", value)
        assert producer.records_delivered == count
        assert producer.buffered == 0
    return values


@pytest.mark.parametrize("codec", list(Compression))
def test_records_arrive_once_and_in_order(codec: Compression) -> None:
    partition = Partition()
    assert write(partition, 200, compression=codec) == partition.values


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
@pytest.mark.parametrize("spoiled", [{0}, {3}, {2, 9, 10}])
def test_a_refused_batch_goes_again_before_those_behind_it(code: ErrorCode, spoiled: set[int]) -> None:
    partition = Partition(lambda number: code if number in spoiled else None)
    assert write(partition, 200) == partition.values
    assert partition.arrivals > 20


@pytest.mark.parametrize("spoiled", [{0}, {4}, {1, 6, 12}])
def test_a_lost_answer_doubles_nothing(spoiled: set[int]) -> None:
    partition = Partition(lambda number: HANG_UP if number in spoiled else None)
    assert write(partition, 200) == partition.values


def test_no_more_requests_are_in_flight_than_a_broker_remembers() -> None:
    silent: list[ProduceRequest] = []
    answers: dict[int, Answer] = {ApiKey.PRODUCE: lambda request, _version: silent.append(request)}
    with FakeBroker(answers=answers) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client, batch_size=500)
        for number in range(200):
            producer.send("events", b"%d" % number * 50)
        for _ in range(20):
            producer.poll(0.01)
    assert 0 < len(silent) <= IN_FLIGHT_MAX


def test_a_final_refusal_stops_the_producer() -> None:
    partition = Partition(lambda number: ErrorCode.INVALID_RECORD if number == 1 else None)
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        write(partition, 200)


class Narrow(Partition):
    """Takes no batch of more than `most` bytes."""

    def __init__(self, most: int, trouble: Trouble = lambda _number: None) -> None:
        super().__init__(trouble)
        self.most = most
        self.refused = 0

    def append(self, batch: Any) -> tuple[int, int]:
        if len(batch) > self.most:
            self.refused += 1
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return super().append(batch)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("spoiled", [set(), {1, 4, 11}])
def test_batches_that_are_too_large_arrive_in_parts_in_their_order(codec: Compression, spoiled: set[int]) -> None:
    partition = Narrow(400, lambda number: ErrorCode.NOT_LEADER_OR_FOLLOWER if number in spoiled else None)
    assert write(partition, 200, compression=codec) == partition.values


@pytest.mark.parametrize("spoiled", [{0}, {2}, {3, 7}])
def test_parts_whose_answers_are_lost_are_not_doubled(spoiled: set[int]) -> None:
    partition = Narrow(300, lambda number: HANG_UP if number in spoiled else None)
    assert write(partition, 100) == partition.values


def test_the_size_that_a_broker_takes_is_learned() -> None:
    partition = Narrow(400)
    values = write(partition, 2_000)
    assert partition.values == values
    assert partition.refused < 20


def numbered(count: int) -> bytes:
    return bytes(build_batch([Record(0, 5, None, b"%05d" % number + b"x" * 95, []) for number in range(count)]))


def test_the_size_that_was_learned_shrinks_by_refusals_alone() -> None:
    partition = Narrow(20_000)
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        with Producer(client) as producer:
            for count in (400, *range(150, 10, -1)):
                producer.send_batch("events", 0, numbered(count))
                producer.flush()
            assert client.batch_limits.records("events") > 20_000 // 2 - BATCH_OVERHEAD
    assert partition.refused <= 2


SMALL: Final = [b"%d" % (number % 10) for number in range(6_000)]
LARGE: Final = [b"%05d" % number + b"x" * 95 for number in range(6_000)]


@pytest.mark.parametrize(("values", "codec"), [(SMALL, Compression.NONE), (LARGE, Compression.ZSTD)])
def test_ready_made_batches_are_refused_until_the_size_is_learned(values: list[bytes], codec: Compression) -> None:
    """Of tiny records, or compressed: what they take uncompressed says little of the batch."""
    partition = Narrow(2_000)
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        for begin in range(0, 6_000, 600):
            # a producer of its own, as each transaction has
            with Producer(client) as producer:
                records = [Record(0, 5, None, value, []) for value in values[begin : begin + 600]]
                producer.send_batch("events", 0, build_batch(records, compression=codec))
            partition.next_sequence = 0
    assert partition.values == values
    assert 0 < partition.refused <= 3


def test_a_size_that_was_learned_is_forgotten() -> None:
    now = 0.0
    limits = BatchLimits(lambda: now)
    assert (limits.is_refused("t", 1 << 30), limits.wanted("t")) == (False, BATCH_SIZE_MAX)
    limits.refuse("t", 1_000, 5_000)
    now = FORGET_AFTER_S
    limits.refuse("t", 1_200, 4_000)
    assert [limits.is_refused("t", length) for length in (999, 1_000)] == [False, True]
    assert (limits.wanted("t"), limits.records("t"), limits.records("u")) == (500, 2_000, BATCH_SIZE_MAX)
    now = 2 * FORGET_AFTER_S
    assert limits.is_refused("t", 1_000), "the last refusal counts"
    now += 1
    assert (limits.is_refused("t", 1_000), limits.wanted("t")) == (False, BATCH_SIZE_MAX)


def test_batches_closed_at_the_size_that_was_learned_leave_at_once() -> None:
    partition = Narrow(2_000)
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        with Producer(client, linger_ms=60_000) as producer:
            producer.send_batch("events", 0, numbered(100))
            producer.flush()
            before = partition.arrivals
            for _ in range(1_000):  # less than a batch has where nothing was learned
                producer.send("events", b"x" * 100, partition=0)
            deadline = time.monotonic() + 60
            while partition.arrivals == before and time.monotonic() < deadline:
                time.sleep(0.01)
            assert partition.arrivals > before


def test_a_partition_that_takes_nothing_for_long_is_logged_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(producing, "WARN_AFTER_S", 0.1)
    partition = Partition(lambda _number: ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(TimedOutError, match="took no batch in time.*NOT_ENOUGH_REPLICAS"):
        write(partition, 5, delivery_timeout_s=0.5)
    assert ["NOT_ENOUGH_REPLICAS" in line and "events partition" in line for line in caplog.messages] == [True]


class Remembering(Narrow):
    """Knows a repeated batch by its first and last sequence, as brokers do, and takes small batches after `lowered`."""

    def __init__(self, lowered: int, trouble: Trouble) -> None:
        super().__init__(1 << 30, trouble)
        self.lowered = lowered
        self.known: set[tuple[int, int]] = set()

    def append(self, batch: Any) -> tuple[int, int]:
        header = read_header(batch)
        at = (header.base_sequence, header.record_count)
        if header.producer_epoch > self.epoch:
            self.known.clear()
        elif len(batch) <= self.most and at[0] < self.next_sequence and at not in self.known:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        answer = super().append(batch)
        self.known.add(at)
        if self.arrivals == self.lowered:
            self.most = 400
        return answer


def test_a_batch_that_may_be_written_is_not_doubled_by_its_parts() -> None:
    """Its answer was lost, and the topic takes smaller batches since."""
    partition = Remembering(2, lambda number: HANG_UP if number == 1 else None)
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client)
        producer.send_batch("events", 0, numbered(1))
        producer.flush()
        producer.send_batch("events", 0, numbered(20))
        with pytest.raises(BrokerError, match="may or may not have written"):
            producer.flush()
    assert len(partition.values) == 21


def test_a_record_that_is_too_large_alone_stops_the_producer() -> None:
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        write(Narrow(120), 20)


def test_a_ready_made_batch_that_was_split_is_one_delivery() -> None:
    partition = Narrow(400)
    values = [b"%02d" % number * 50 for number in range(16)]
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        with Producer(client) as producer:
            first = producer.send_batch("events", 0, build_batch([Record(0, 5, None, values[0], [])]))
            records = [Record(0, 5, b"k", value, [("h", b"x"), ("null", None)]) for value in values]
            delivery = producer.send_batch("events", 0, build_batch(records, compression=Compression.GZIP))
            last = producer.send_batch("events", 0, build_batch([Record(0, 5, None, b"last", [])]))
        assert (first.base_offset, delivery.base_offset, last.base_offset) == (0, 1, 17)
        assert delivery.done and delivery.record_count == 16
        assert producer.records_delivered == 18
        assert producer.buffered == 0
    assert partition.values == [values[0], *values, b"last"]


def test_a_split_delivery_has_no_offset_if_its_first_part_has_none() -> None:
    class Forgetful(Narrow):
        def append(self, batch: Any) -> tuple[int, int]:
            code, offset = super().append(batch)
            return (code, offset) if offset else (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)

    partition = Forgetful(400)
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        with Producer(client) as producer:
            records = [Record(0, 5, None, b"x" * 100, []) for _ in range(16)]
            delivery = producer.send_batch("events", 0, build_batch(records))
    assert len(partition.values) == 16
    assert (delivery.done, delivery.error, delivery.base_offset) == (True, None, -1)


@pytest.mark.parametrize("learned", [False, True])
def test_a_batch_that_is_too_large_and_cannot_be_read_stops_the_producer(learned: bool) -> None:
    partition = Narrow(400)
    records = [Record(0, 5, None, b"x" * 100, []) for _ in range(16)]
    damaged = bytearray(build_batch(records))
    damaged[BATCH_OVERHEAD : BATCH_OVERHEAD + 5] = b"\x7f" * 5
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client)
        if learned:
            producer.send_batch("events", 0, build_batch(records))
            producer.flush()
        delivery = producer.send_batch("events", 0, damaged)
        for _ in range(2):
            with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
                producer.flush()
        assert delivery.done and isinstance(delivery.error, BrokerError)
        assert producer.buffered == 0


@pytest.mark.parametrize("other", [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_refusal_of_one_partition_ends_what_was_sent_with_it(
    other: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: ProduceRequest, _version: int) -> ProduceResponse:
        topic = request.topic_data[0]
        assert [data.index for data in topic.partition_data] == [0, 1]
        answers = [
            PartitionProduceResponse(index=0, error_code=ErrorCode.INVALID_RECORD),
            PartitionProduceResponse(index=1, error_code=other, base_offset=0),
        ]
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)]
        )

    records = [Record(0, 5, None, b"x" * 100, []) for _ in range(6)]
    with FakeBroker(partitions=2, answers={ApiKey.PRODUCE: answer}) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client)
        with monkeypatch.context() as patch:
            # both leave in one request
            patch.setattr(producer, "_pump", lambda _timeout_s: ())
            deliveries = [producer.send_batch("events", index, build_batch(records)) for index in range(2)]
        with pytest.raises(BrokerError, match="INVALID_RECORD") as stopped:
            producer.flush()
        assert [(each.done, each.error) for each in deliveries] == [(True, stopped.value)] * 2
        assert (producer.buffered, producer.records_delivered) == (0, 0)


def test_a_sequence_that_is_really_out_of_order_stops_the_producer() -> None:
    partition = Partition(lambda number: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if number == 0 else None)
    with pytest.raises(BrokerError, match="OUT_OF_ORDER"):
        write(partition, 5)


def forgetful(partition: Partition, at: int, code: ErrorCode) -> None:
    """At the n-th batch the broker knows this epoch of the producer no more."""
    strict = partition.append

    def append(batch: Any) -> tuple[int, int]:
        if partition.arrivals > at and partition.epoch == read_header(batch).producer_epoch == 0:
            return code, -1
        return strict(batch)

    partition.append = append  # type: ignore[method-assign]


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
@pytest.mark.parametrize("at", [1, 2, 7, 19])
def test_a_broker_that_forgot_the_sequence_gets_a_new_epoch_from_0_on(code: ErrorCode, at: int) -> None:
    partition = Partition()
    forgetful(partition, at, code)
    assert write(partition, 200) == partition.values, "each once, in order"
    assert partition.epoch == 1


def test_another_partition_keeps_its_epoch() -> None:
    partitions = [Partition(), Partition()]
    forgetful(partitions[0], 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def answer(request: ProduceRequest, version: int) -> ProduceResponse:
        topic = request.topic_data[0]
        answers = []
        for data in topic.partition_data:
            part = partitions[data.index]
            part.arrivals += 1
            code, offset = part.append(data.records)
            answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)]
        )

    with FakeBroker(partitions=2, answers={ApiKey.PRODUCE: answer}) as broker, Client(broker.bootstrap) as client:
        with Producer(client, batch_size=300) as producer:
            for number in range(100):
                producer.send("events", b"%d" % number * 50, partition=number % 2)
    assert [partition.values for partition in partitions] == [
        [b"%d" % number * 50 for number in range(first, 100, 2)] for first in (0, 1)
    ]
    assert [partition.epoch for partition in partitions] == [1, 0]


def test_what_may_have_been_written_is_not_written_again_under_a_new_epoch() -> None:
    partition = Partition(lambda number: HANG_UP if number == 3 else None)
    forgetful(partition, 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    with pytest.raises(BrokerError, match="may or may not have written"):
        write(partition, 200)
    assert len(set(partition.values)) == len(partition.values), "nothing is doubled"


def test_delivery_has_an_end() -> None:
    partition = Partition(lambda _number: ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(TimedOutError):
        write(partition, 5, delivery_timeout_s=0.3)


def test_an_unknown_topic_is_said_at_once() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        with pytest.raises(UnknownTopicError):
            Producer(client).send("nothing", b"x")


def test_ready_made_batches_get_producer_fields_and_a_true_checksum() -> None:
    partition = Partition()
    batches = [build_batch([Record(i, 5, None, b"%d-%d" % (n, i)) for i in range(3)]) for n in range(4)]
    with FakeBroker(answers={ApiKey.PRODUCE: partition.answer}) as broker, Client(broker.bootstrap) as client:
        producer = Producer(client)
        deliveries = [producer.send_batch("events", 0, batch) for batch in batches]
        producer.flush()
    assert [delivery.base_offset for delivery in deliveries] == [0, 3, 6, 9]
    assert all(delivery.done and delivery.error is None for delivery in deliveries)
    assert partition.values == [b"%d-%d" % (n, i) for n in range(4) for i in range(3)]
    for broken in (batches[0][:-1], batches[0] + batches[1], b""):
        with pytest.raises(ValueError, match="batch"):
            producer.send_batch("events", 0, broken)


def test_stamping_changes_the_producer_alone() -> None:
    batch = bytearray(build_batch([Record(0, 5, b"k", b"v")]))
    before = decode_batch(batch)
    stamp_producer(batch, 1 << 40, 3, 99)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 3, 99)
    assert check_crc(batch, 0, header)
    assert decode_batch(batch) == before


def test_without_acks_nothing_is_waited_for() -> None:
    received: list[bytes | None] = []

    def take(request: ProduceRequest, _version: int) -> None:
        assert request.acks == 0
        for data in request.topic_data[0].partition_data:
            assert isinstance(data.records, bytes | memoryview)
            assert read_header(data.records).producer_id == -1
            received.extend(record.value for record in decode_batch(data.records))

    with FakeBroker(answers={ApiKey.PRODUCE: take}) as broker, Client(broker.bootstrap) as client:
        with Producer(client, acks=0) as producer:
            for number in range(20):
                producer.send("events", b"%d" % number)
        client.topics(["events"])
    assert received == [b"%d" % number for number in range(20)]


def test_keys_choose_partitions_as_java_does_and_null_keys_stick() -> None:
    taken: dict[int, list[bytes | None]] = {index: [] for index in range(4)}

    def take(request: ProduceRequest, _version: int) -> ProduceResponse:
        topic = request.topic_data[0]
        answers = []
        for data in topic.partition_data:
            assert isinstance(data.records, bytes | memoryview)
            taken[data.index] += [record.key for record in decode_batch(data.records)]
            answers.append(PartitionProduceResponse(index=data.index, base_offset=0))
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)]
        )

    with FakeBroker(partitions=4, answers={ApiKey.PRODUCE: take}) as broker, Client(broker.bootstrap) as client:
        with Producer(client) as producer:
            for number in range(100):
                producer.send("events", b"v", key=b"%d" % number)
        for index, keys in taken.items():
            assert all(key is not None and partition_for_key(key, 4) == index for key in keys)
            keys.clear()
        with Producer(client, linger_ms=60_000) as producer:
            for _ in range(50):
                producer.send("events", b"v")
        assert sorted(len(keys) for keys in taken.values()) == [0, 0, 0, 50]


def test_nothing_overtakes_the_first_batch_at_a_broker_that_does_not_know_the_producer() -> None:
    partition = Partition(lambda number: ErrorCode.NOT_LEADER_OR_FOLLOWER if number == 0 else None)
    strict = partition.append

    def lenient(batch: Any) -> tuple[int, int]:
        if not partition.values:
            partition.next_sequence = read_header(batch).base_sequence
        return strict(batch)

    partition.append = lenient  # type: ignore[method-assign]
    assert write(partition, 200) == partition.values
