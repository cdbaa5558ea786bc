"""Transactional Produce over real sockets: who may write, and what the coordinator of the transaction has to say."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic
from broker.scripted_coordinator import NONE, PATIENCE_S, ScriptedCoordinator, ask_there

from headrace.broker.broker import Broker
from headrace.security.authorizer import UNCACHED, OpenAuthorizer, Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.records import Compression

LATE = ErrorCode.INVALID_PRODUCER_EPOCH
NOT_NOW = ErrorCode.NOT_ENOUGH_REPLICAS
NOT_IN_IT = ErrorCode.INVALID_TXN_STATE
FORBIDDEN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
WRITES = (11, 12)
"""The newest version of Produce that verifies, and the first one that adds."""


@pytest.fixture
def scripted(served: TestBroker) -> Iterator[ScriptedCoordinator]:
    with ScriptedCoordinator() as coordinator:
        served.call(lambda broker: ask_there(broker, coordinator.port))
        yield coordinator


def data(sequence: int = 0, *, epoch: int = 0, producer: int = 7, transactional: bool = True, **fields: Any) -> bytes:
    fields.setdefault("values", [b"v"])
    values = fields.pop("values")
    return batch(
        *values,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        **fields,
    )


def write(topic: str, *batches: bytes | None, name: str | None = "x", acks: int = -1) -> ProduceRequest:
    """A batch for each partition from 0 on."""
    found = [PartitionProduceData(index=at, records=each) for at, each in enumerate(batches)]
    topics = [TopicProduceData(name=topic, partition_data=found)]
    return ProduceRequest(transactional_id=name, acks=acks, timeout_ms=5000, topic_data=topics)


def told(answer: Any) -> list[tuple[int, int]]:
    """(error, offset) of each partition."""
    return [(each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]


def end(raw: Raw, topic: str, epoch: int, *, version: int = 0, producer: int = 7) -> None:
    marker = WritableTxnMarker(producer, epoch, False, [WritableTxnMarkerTopic(topic, [0])], 0, version)
    answer = raw.ask(WriteTxnMarkersRequest(markers=[marker]), 2)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", WRITES)
def test_the_coordinator_is_asked_before_the_first_batch_alone(
    raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator, version: int
) -> None:
    name = topic(2)
    assert told(raw.ask(write(name, data(), data()), version)) == [(0, 0), (0, 0)]
    assert told(raw.ask(write(name, data(1), data(1)), version)) == [(0, 1), (0, 1)]
    assert scripted.transactions() == [("x", version < 12, [(name, [0, 1])])]
    asked = scripted.asked[0].transactions[0]
    assert (asked.producer_id, asked.producer_epoch) == (7, 0)
    end(raw, name, 0)
    assert told(raw.ask(write(name, data(2), data(2)), version)) == [(0, 3), (0, 2)]
    assert scripted.transactions()[1:] == [("x", version < 12, [(name, [0])])]


def test_a_partition_by_its_topics_id(raw: Raw, served: TestBroker, scripted: ScriptedCoordinator) -> None:
    topic_id = create_topic(served.port, "in-a-transaction-by-id")
    topics = [TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=data())])]
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=5000, topic_data=topics)
    assert told(raw.ask(request, 13)) == [(0, 0)]
    assert scripted.transactions() == [("x", False, [("in-a-transaction-by-id", [0])])]


@pytest.mark.parametrize(
    ("said", "version", "heard"),
    [
        (ErrorCode.PRODUCER_FENCED, 12, LATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, NOT_NOW),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, NOT_NOW),
        (ErrorCode.NOT_COORDINATOR, 3, NOT_NOW),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, NOT_NOW),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, NOT_IN_IT),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (None, 12, NOT_IN_IT),
    ],
)
def test_what_the_coordinator_says_as_a_producer_hears_it(
    raw: Raw,
    topic: Callable[..., str],
    scripted: ScriptedCoordinator,
    said: ErrorCode | None,
    version: int,
    heard: ErrorCode,
) -> None:
    """Partition 1 alone is not in the transaction: the other is written."""
    name = topic(2)
    scripted.says = lambda _, __, index: said if index else NONE
    assert told(raw.ask(write(name, data(), data()), version)) == [(0, 0), (heard, -1)]
    scripted.says = lambda *_: NONE
    assert told(raw.ask(write(name, data(), data()), version)) == [(0, 0), (0, 0)], "the first one is there already"


def test_a_transaction_whose_markers_are_on_their_way_is_waited_for(
    raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator
) -> None:
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    scripted.says = lambda *_: busy if len(scripted.asked) < 3 else NONE
    assert told(raw.ask(write(topic(), data()), 12)) == [(0, 0)]


@pytest.mark.parametrize("version", WRITES)
def test_without_a_coordinator_it_may_be_tried_again(
    raw: Raw, served: TestBroker, topic: Callable[..., str], version: int
) -> None:
    with ScriptedCoordinator() as gone:
        port = gone.port
    served.call(lambda broker: ask_there(broker, port))
    assert told(raw.ask(write(topic(), data()), version)) == [(NOT_NOW, -1)]


def test_who_may_not_write_to_the_transaction(
    raw: Raw, served: TestBroker, topic: Callable[..., str], scripted: ScriptedCoordinator
) -> None:
    """All of the request is refused, for what is not transactional too."""
    plain, other = batch(b"v"), topic()
    request = write(topic(2), plain, data(), name=None)
    assert told(raw.ask(request, 12)) == [(FORBIDDEN, -1)] * 2

    class NoTransactions(OpenAuthorizer):
        generation = UNCACHED

        def authorize(self, *asked: Any) -> bool:
            return bool(asked[2:] != (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"))

    def swap(broker: Broker, authorizer: OpenAuthorizer) -> None:
        broker.authorizer = authorizer

    served.call(lambda broker: swap(broker, NoTransactions()))
    try:
        request.transactional_id = "x"
        assert told(raw.ask(request, 12)) == [(FORBIDDEN, -1)] * 2
        assert told(raw.ask(write(other, plain), 12)) == [(0, 0)], "it names a transaction, and writes to none"
    finally:
        served.call(lambda broker: swap(broker, OpenAuthorizer()))
    assert not scripted.asked


@pytest.mark.parametrize("other", [{"producer": 8}, {"epoch": 1}, {"producer": -1, "epoch": -1}])
def test_one_request_is_of_one_producer(
    raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator, other: dict[str, Any]
) -> None:
    wrong = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
    assert told(raw.ask(write(topic(2), data(), data(**other)), 12)) == [wrong] * 2
    assert not scripted.asked


def test_what_is_outside_of_the_transaction(raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator) -> None:
    name = topic()
    raw.ask(write(name, data()), 12)
    assert told(raw.ask(write(name, data(1, transactional=False)), 12)) == [(NOT_IN_IT, -1)]
    assert told(raw.ask(write(name, data(1, transactional=False), name=None), 12)) == [(NOT_IN_IT, -1)]


def test_a_replaced_producer_is_refused_before_anybody_is_asked(
    raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator
) -> None:
    name = topic()
    end(raw, name, 3)
    assert told(raw.ask(write(name, data(epoch=2)), 12)) == [(LATE, -1)]
    assert not scripted.asked


@pytest.mark.parametrize("version", WRITES)
def test_batches_of_one_connection_keep_their_order(
    raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator, version: int
) -> None:
    """The first one waits for the coordinator, and those behind it for the first one."""
    name = topic()
    scripted.gate.clear()
    sent = [raw.send(write(name, data(sequence)), version) for sequence in range(5)]
    sent.append(raw.send(write(name, batch(b"plain"), name=None), version))
    assert scripted.came.acquire(timeout=PATIENCE_S)
    scripted.gate.set()
    answers = [raw.receive(0, version) for _ in sent]
    assert [correlation for correlation, _ in answers] == sent
    assert [told(answer) for _, answer in answers] == [[(0, offset)] for offset in range(6)]
    assert len(scripted.asked) == 1


@pytest.mark.parametrize("raises", [False, True])
def test_an_abort_while_the_coordinator_is_asked(
    raw: Raw, served: TestBroker, topic: Callable[..., str], scripted: ScriptedCoordinator, raises: bool
) -> None:
    """What it has said is about a transaction that is over."""
    name = topic()
    scripted.gate.clear()
    raw.send(write(name, data()), 12 if raises else 11)
    assert scripted.came.acquire(timeout=PATIENCE_S)
    with Raw(served.port) as other:
        end(other, name, int(raises), version=2 if raises else 0)
    scripted.gate.set()
    _, answer = raw.receive(0, 12 if raises else 11)
    assert told(answer) == [(NOT_IN_IT, -1)]


@pytest.mark.parametrize("version", WRITES)
def test_a_batch_that_comes_again_inside_the_transaction(
    raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator, version: int
) -> None:
    name = topic()
    for sequence in range(5):
        raw.ask(write(name, data(sequence)), version)
    for sequence in range(5):
        assert told(raw.ask(write(name, data(sequence)), version)) == [(0, sequence)]
    assert len(scripted.asked) == 1


def test_one_that_comes_again_over_another_connection_while_it_is_asked_about(
    raw: Raw, served: TestBroker, topic: Callable[..., str], scripted: ScriptedCoordinator
) -> None:
    name = topic()
    scripted.gate.clear()
    raw.send(write(name, data()), 12)
    assert scripted.came.acquire(timeout=PATIENCE_S)
    with Raw(served.port) as again:
        again.send(write(name, data()), 12)
        deadline = time.monotonic() + PATIENCE_S
        while served.call(waiting) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        scripted.gate.set()
        assert told(raw.receive(0, 12)[1]) == [(0, 0)]
        assert told(again.receive(0, 12)[1]) == [(0, 0)]


def waiting(broker: Broker) -> int:
    return sum(len(lane) for lane in broker.verifier._lanes.values())


def test_acks_0(raw: Raw, served: TestBroker, topic: Callable[..., str], scripted: ScriptedCoordinator) -> None:
    """Nobody is answered; an error ends the connection."""
    name = topic()
    raw.send(write(name, data(), acks=0), 12)
    assert told(raw.ask(write(name, data(1)), 12)) == [(0, 1)]
    scripted.says = lambda *_: ErrorCode.PRODUCER_FENCED
    for request in (write(topic(), data(), acks=0), write(topic(), data(), name=None, acks=0)):
        with Raw(served.port) as other:
            other.send(request, 12)
            assert other.is_closed()


def test_a_batch_that_a_worker_opens(raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator) -> None:
    name = topic(compression_type="zstd")
    large = data(values=[os.urandom(40_000)], compression=Compression.GZIP)
    assert told(raw.ask(write(name, large), 12)) == [(0, 0)]
    assert told(raw.ask(write(name, data(1, values=[os.urandom(40_000)], compression=Compression.GZIP)), 12)) == [
        (0, 1)
    ]
    assert len(scripted.asked) == 1


def test_a_broken_batch_is_not_asked_about(raw: Raw, topic: Callable[..., str], scripted: ScriptedCoordinator) -> None:
    broken = bytearray(data())
    broken[-1] ^= 1
    assert told(raw.ask(write(topic(), bytes(broken)), 12)) == [(ErrorCode.CORRUPT_MESSAGE, -1)]
    assert not scripted.asked


def test_verification_can_be_switched_off_for_those_that_do_not_add() -> None:
    with running_broker() as served, ScriptedCoordinator() as scripted, Raw(served.port) as raw:
        create_topic(served.port, "t", 2)
        served.call(lambda broker: ask_there(broker, scripted.port))
        off = AlterableConfig("transaction.partition.verification.enable", 0, "false")
        changed = raw.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(4, "", [off])]), 1)
        assert changed.responses[0].error_code == 0
        assert told(raw.ask(write("t", data()), 11)) == [(0, 0)]
        assert not scripted.asked
        assert told(raw.ask(write("t", data(1), data()), 12)) == [(0, 1), (0, 0)]
        assert scripted.transactions() == [("x", False, [("t", [1])])]
