"""A transactional producer under trouble: what is tried again, what ends a transaction, what ends the producer.

The broker is scripted; against Apache Kafka the same producer is in test_transactions_in_kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, FencedError, InDoubtError
from headrace.client.transacting import ErrorClass, State, class_of
from headrace.client.transactions import TransactionalProducer
from headrace.wire.apis import ApiKey
from headrace.wire.batch import check_crc, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k24_add_partitions_to_txn as k24
from headrace.wire.messages.k00_produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.wire.messages.k22_init_producer_id import InitProducerIdResponse
from headrace.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnResponse
from headrace.wire.messages.k26_end_txn import EndTxnResponse
from headrace.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from .fake_broker import HANG_UP, FakeBroker

E, A = ErrorCode, ApiKey
R, ABORT, FATAL = ErrorClass.RETRIABLE, ErrorClass.ABORTABLE, ErrorClass.FATAL
OLD, NEW = 1, 2
"""The levels of transaction.version at which clients speak differently."""


@pytest.mark.parametrize(
    ("api", "classes"),
    [
        (A.INIT_PRODUCER_ID, {51: R, 14: R, 16: R, 31: ABORT, 53: ABORT, 120: ABORT, 47: FATAL, 90: FATAL}),
        (A.ADD_PARTITIONS_TO_TXN, {51: R, 3: R, 29: ABORT, 59: ABORT, 120: ABORT, 47: FATAL, 48: FATAL, 53: FATAL}),
        (A.ADD_OFFSETS_TO_TXN, {16: R, 30: ABORT, 49: FATAL, 90: FATAL}),
        (A.TXN_OFFSET_COMMIT, {3: R, 7: R, 14: R, 22: ABORT, 25: ABORT, 30: ABORT, 82: ABORT, 43: FATAL, 90: FATAL}),
        (A.END_TXN, {51: R, 59: ABORT, 120: ABORT, 47: FATAL, 48: FATAL, 49: FATAL, 53: FATAL, 90: FATAL}),
        (A.PRODUCE, {19: R, 51: R, 45: ABORT, 47: ABORT, 10: ABORT, 31: FATAL, 49: FATAL, 53: FATAL, 90: FATAL}),
    ],
)  # fmt: skip
def test_errors_are_taken_as_kafkas_own_client_takes_them(api: ApiKey, classes: dict[int, ErrorClass]) -> None:
    assert {code: class_of(api, code) for code in classes} == classes


class Cluster:
    """One coordinator that is also the leader of a topic; `trouble` has what to answer first, by API."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.trouble: dict[int, list[Any]] = {}
        self.asked: list[tuple[int, int]] = []
        self.epoch = -1
        self.sequences: list[tuple[int, int, bool]] = []
        self.ends: list[tuple[int, bool]] = []
        self.offsets: list[tuple[str, str, int, int, str | None]] = []
        self.joined: list[tuple[str, list[int]]] = []
        self.kinds: list[int] = []
        self.port = 0

    def counted(self) -> Counter[int]:
        return Counter(key for key, _ in self.asked)

    def answers(self) -> dict[int, Any]:
        served = {
            A.FIND_COORDINATOR: self.found, A.INIT_PRODUCER_ID: self.initialized, A.PRODUCE: self.produced,
            A.ADD_PARTITIONS_TO_TXN: self.added, A.ADD_OFFSETS_TO_TXN: self.group_added,
            A.TXN_OFFSET_COMMIT: self.offsets_taken, A.END_TXN: self.ended,
        }  # fmt: skip
        return {key: self._troubled(key, answer) for key, answer in served.items()}

    def _troubled(self, key: int, answer: Any) -> Any:
        def act(request: Any, version: int) -> Any:
            self.asked.append((key, version))
            first = self.trouble.get(key) or []
            spoiled = first.pop(0) if first else 0
            if isinstance(spoiled, tuple):  # it is done, and nobody hears of it
                answer(request, 0)
                return HANG_UP
            return spoiled if spoiled is HANG_UP else answer(request, spoiled)

        return act

    def found(self, request: Any, code: int) -> Any:
        self.kinds.append(request.key_type)
        where = Coordinator(request.coordinator_keys[0], 1, "127.0.0.1", self.port, code)
        return FindCoordinatorResponse(coordinators=[where])

    def initialized(self, request: Any, code: int) -> Any:
        assert (request.transactional_id, request.transaction_timeout_ms) == ("billing", 60_000)
        self.epoch += not code
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def produced(self, request: Any, code: int) -> Any:
        assert request.transactional_id == "billing" and request.acks == -1
        answers = []
        for data in request.topic_data[0].partition_data:
            header = read_header(data.records)
            assert check_crc(data.records, 0, header) and header.producer_id == 7
            if not code:
                self.sequences.append((header.producer_epoch, header.base_sequence, header.is_transactional))
            answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=0))
        topic = request.topic_data[0]
        told = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        return ProduceResponse(responses=[told])

    def added(self, request: Any, code: int) -> Any:
        results = []
        for topic in request.v3_and_below_topics:
            self.joined.append((topic.name, list(topic.partitions)))
            said = [k24.AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
            results.append(k24.AddPartitionsToTxnTopicResult(topic.name, said))
        return k24.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def group_added(self, request: Any, code: int) -> Any:
        assert request.group_id == "group"
        return AddOffsetsToTxnResponse(error_code=code)

    def offsets_taken(self, request: Any, code: int) -> Any:
        assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)
        topics = []
        for topic in request.topics:
            said = []
            for p in topic.partitions:
                place = (p.partition_index, p.committed_offset, p.committed_metadata)
                self.offsets.append((request.group_id, topic.name, *place))
                said.append(TxnOffsetCommitResponsePartition(p.partition_index, code))
            topics.append(TxnOffsetCommitResponseTopic(topic.name, partitions=said))
        return TxnOffsetCommitResponse(topics=topics)

    def ended(self, request: Any, code: int) -> Any:
        if code:
            return EndTxnResponse(error_code=code)
        if self.level == OLD:
            self.ends.append((request.producer_epoch, request.committed))
            return EndTxnResponse()
        if request.producer_epoch == self.epoch:  # else the same request again, which is answered the same
            self.ends.append((request.producer_epoch, request.committed))
            self.epoch += 1
        return EndTxnResponse(producer_id=7, producer_epoch=self.epoch)


@contextmanager
def producing(level: int, **trouble: list[Any]) -> Iterator[tuple[Cluster, TransactionalProducer]]:
    """A producer and its cluster, which at first answers to each API by its name as `trouble` says."""
    cluster = Cluster(level)
    cluster.trouble = {A[name]: answers for name, answers in trouble.items()}
    with FakeBroker(partitions=3, answers=cluster.answers()) as broker, Client(broker.bootstrap, timeout_s=1) as client:
        cluster.port = broker.port
        broker.features["transaction.version"] = level
        yield cluster, TransactionalProducer(client, "billing", request_timeout_s=0.5)


def transact(producer: TransactionalProducer, *partitions: int) -> None:
    producer.begin()
    for partition in partitions:
        producer.send("events", b"v", partition=partition)
    producer.send_offsets("group", {("events", 2): 9})
    producer.commit()


def test_with_the_newer_protocol_every_transaction_has_an_epoch() -> None:
    with producing(NEW) as (cluster, producer):
        transact(producer, 0, 1)
        transact(producer, 0)
    assert sorted(cluster.sequences) == [(0, 0, True), (0, 0, True), (1, 0, True)]
    assert cluster.ends == [(0, True), (1, True)] and cluster.offsets == [("group", "events", 2, 9, "")] * 2
    assert cluster.kinds == [1, 0] and producer.records_committed == 3
    versions = dict(cluster.asked)
    assert (versions[A.PRODUCE], versions[A.TXN_OFFSET_COMMIT], versions[A.END_TXN]) == (13, 5, 5)
    counted = cluster.counted()
    assert counted[A.ADD_PARTITIONS_TO_TXN] == counted[A.ADD_OFFSETS_TO_TXN] == 0 and counted[A.INIT_PRODUCER_ID] == 1


def test_with_the_older_protocol_partitions_are_added_and_sequences_go_on() -> None:
    with producing(OLD) as (cluster, producer):
        transact(producer, 0, 1)
        producer.begin()
        producer.join([("events", 0), ("events", 2)])
        producer.send("events", b"v", partition=0)
        producer.commit()
    assert sorted(cluster.sequences) == [(0, 0, True), (0, 0, True), (0, 1, True)]
    assert cluster.ends == [(0, True), (0, True)]
    assert cluster.joined == [("events", [0]), ("events", [1]), ("events", [0, 2])]
    versions = dict(cluster.asked)
    assert (versions[A.PRODUCE], versions[A.TXN_OFFSET_COMMIT], versions[A.END_TXN]) == (11, 4, 4)
    assert versions[A.ADD_PARTITIONS_TO_TXN] == 3
    counted = cluster.counted()
    assert counted[A.ADD_OFFSETS_TO_TXN] == 1 and counted[A.INIT_PRODUCER_ID] == 1


@pytest.mark.parametrize("level", [OLD, NEW])
@pytest.mark.parametrize("lost", [HANG_UP, (HANG_UP,)], ids=["the request", "the answer"])
@pytest.mark.parametrize("api", ["INIT_PRODUCER_ID", "PRODUCE", "TXN_OFFSET_COMMIT", "ADD_PARTITIONS_TO_TXN"])
def test_whatever_is_lost_is_asked_again(level: int, lost: Any, api: str) -> None:
    with producing(level, **{api: [lost, lost]}) as (cluster, producer):
        transact(producer, 0)
        assert len(cluster.ends) == 1 and producer.records_committed == 1
        asked = 0 if level == NEW and api == "ADD_PARTITIONS_TO_TXN" else 3
        assert cluster.counted()[A[api]] == asked


@pytest.mark.parametrize("code", [E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS])
@pytest.mark.parametrize("api", ["INIT_PRODUCER_ID", "END_TXN", "TXN_OFFSET_COMMIT", "ADD_OFFSETS_TO_TXN"])
def test_a_coordinator_that_moves_or_is_busy_is_asked_again(api: str, code: int) -> None:
    with producing(OLD, **{api: [code, code]}) as (cluster, producer):
        transact(producer, 0)
        assert len(cluster.ends) == 1 and cluster.counted()[A[api]] == 3
        finds = 4 if code == E.NOT_COORDINATOR else 2
        assert cluster.counted()[A.FIND_COORDINATOR] == finds


def test_an_end_whose_answer_is_lost_is_asked_for_again_and_done_once() -> None:
    with producing(NEW, END_TXN=[(HANG_UP,)]) as (cluster, producer):
        transact(producer, 0)
        assert cluster.ends == [(0, True)] and producer.state is State.READY
        transact(producer, 0)
        assert cluster.ends == [(0, True), (1, True)] and cluster.counted()[A.INIT_PRODUCER_ID] == 1


def test_with_the_older_protocol_such_an_end_costs_the_epoch() -> None:
    """The first request may still be under way, and would end whatever the same epoch has open."""
    with producing(OLD, END_TXN=[HANG_UP]) as (cluster, producer):
        transact(producer, 0)
        transact(producer, 0)
        assert cluster.ends == [(0, True), (1, True)]
        assert cluster.sequences == [(0, 0, True), (1, 0, True)]


@pytest.mark.parametrize(
    "answers",
    [
        [(HANG_UP,), E.PRODUCER_FENCED],
        [E.NOT_COORDINATOR, E.INVALID_TXN_STATE],
        [(HANG_UP,)] * 1000,
    ],
    ids=["fenced meanwhile", "aborted meanwhile, or not", "never answered"],
)
def test_a_commit_of_which_nothing_is_known_is_in_doubt(answers: list[Any]) -> None:
    with producing(NEW, END_TXN=answers) as (cluster, producer):
        with pytest.raises(InDoubtError, match="whether the transaction was committed is not known"):
            transact(producer, 0)
        assert producer.state is State.DEAD
        cluster.trouble.clear()
        producer.initialize()
        transact(producer, 0)


@pytest.mark.parametrize("code", [E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("api", ["END_TXN", "TXN_OFFSET_COMMIT", "ADD_PARTITIONS_TO_TXN"])
def test_a_newer_producer_is_named(api: str, code: int) -> None:
    with producing(OLD, **{api: [code]}) as (cluster, producer):
        with pytest.raises(FencedError, match="transactional id billing: a newer producer with this id has taken over"):
            transact(producer, 0)
        assert cluster.ends == [] and producer.state is State.DEAD
        with pytest.raises(ValueError, match="dead, not ready to begin"):
            producer.begin()


def test_a_write_that_is_refused_ends_the_transaction_alone() -> None:
    with producing(NEW, PRODUCE=[E.INVALID_PRODUCER_EPOCH]) as (cluster, producer):
        with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
            transact(producer, 0)
        assert producer.state is State.FAILED
        with pytest.raises(ValueError, match="no transaction"):
            producer.commit()
        producer.abort()
        transact(producer, 0)
    assert cluster.ends == [(0, False), (1, True)] and cluster.counted()[A.INIT_PRODUCER_ID] == 1


def test_with_the_older_protocol_an_abort_costs_the_epoch() -> None:
    with producing(OLD, TXN_OFFSET_COMMIT=[E.UNKNOWN_MEMBER_ID]) as (cluster, producer):
        with pytest.raises(BrokerError, match="offsets of group group"):
            transact(producer, 0)
        producer.abort()
        transact(producer, 0)
    assert cluster.ends == [(0, False), (1, True)]
    assert cluster.sequences == [(0, 0, True), (1, 0, True)], "a sequence that a broker may have seen is not used again"


def test_a_transaction_of_nothing_is_not_ended() -> None:
    with producing(NEW) as (cluster, producer):
        producer.begin()
        producer.join([("events", 0)])
        producer.commit()
        producer.begin()
        producer.abort()
    assert cluster.counted()[A.END_TXN] == 0


def test_a_block_that_fails_aborts() -> None:
    with producing(NEW) as (cluster, producer):
        with pytest.raises(ZeroDivisionError), producer:
            producer.begin()
            producer.send("events", b"v", partition=0)
            producer.flush()
            raise ZeroDivisionError
        assert cluster.ends == [(0, False)]


def test_a_cluster_without_transactions_says_so_at_once() -> None:
    with producing(NEW, INIT_PRODUCER_ID=[E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]) as (_, producer):
        with pytest.raises(BrokerError, match="transactional id billing"):
            producer.begin()
