"""A client that may do nothing: every API that is served refuses it as Kafka does, short cuts or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from broker.short_paths import note_short_fetches
from compat.kafka_says.refusals import GROUP, NO_TRANSACTION, SERVED_KEYS, TOPIC, Refusal, codes_of, refusals

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.broker.requests.apis import SERVED
from headrace.broker.requests.produce_run import ProduceRun
from headrace.security.authorizer import UNCACHED, Authorizer, OpenAuthorizer, Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k19900_headrace_group_end_txn as k19900
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k16_list_groups import ListGroupsRequest
from headrace.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest
from headrace.wire.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest

OUR_OWN = Refusal(k19900.HeadraceGroupEndTxnRequest("mine", 1, 0, True), NO_TRANSACTION)


class Only:
    """Allows nothing but what it is told to."""

    generation = UNCACHED
    audit = None

    def __init__(self, *allowed: tuple[Operation, ResourceType, str]) -> None:
        self.allowed = set(allowed)

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (operation, resource, name) in self.allowed

    def authorize_any(self, principal: str, client_host: str, operation: Operation, resource: ResourceType) -> bool:
        return any(allowed[:2] == (operation, resource) for allowed in self.allowed)


def rule(broker: TestBroker, authorizer: Authorizer) -> None:
    broker.call(lambda inside: setattr(inside, "authorizer", authorizer))


@pytest.fixture
def obedient(served: TestBroker) -> Iterator[TestBroker]:
    """A broker whose authorizer a test may exchange."""
    yield served
    rule(served, OpenAuthorizer())


def hold(broker: TestBroker) -> bytes:
    """Makes the topic and the group of the refused requests; returns the topic's id."""
    topic_id = create_topic(broker.port, TOPIC, 2)
    with Raw(broker.port) as raw:
        assert raw.ask(produce(TOPIC, batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0
        assert raw.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4).coordinators[0].error_code == 0
        committed = OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 1)])
        answer = raw.ask(OffsetCommitRequest(GROUP, topics=[committed]), 8)
        assert answer.topics[0].partitions[0].error_code == 0
        assert [group.group_id for group in raw.ask(ListGroupsRequest(), 4).groups] == [GROUP]
    return topic_id


def test_every_api_in_every_version() -> None:
    with running_broker() as broker:
        topic_id = hold(broker)
        with Raw(broker.port) as raw:
            rule(broker, Only())
            for refusal in (*refusals(topic_id), OUR_OWN):
                assert refusal.versions(), refusal
                for version in refusal.versions():
                    assert codes_of(raw.ask(refusal.request, version)) == refusal.codes, (refusal.request, version)
            assert raw.ask(ListGroupsRequest(), 5).groups == []
            assert raw.ask(MetadataRequest(topics=None), 12).topics == []
            assert raw.ask(DescribeTopicPartitionsRequest(), 0).topics == []
            described = raw.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
            assert described.cluster_authorized_operations == 0


def test_no_served_api_is_left_out() -> None:
    ours = {OUR_OWN.request.API_KEY}
    assert frozenset(key for key in SERVED if "broker" in APIS[key].listeners) == SERVED_KEYS | ours


def test_who_may_not_ask_for_a_group_creates_nothing() -> None:
    with running_broker() as broker, Raw(broker.port) as raw:
        rule(broker, Only((Operation.DESCRIBE, ResourceType.GROUP, "mine")))
        refused = raw.ask(FindCoordinatorRequest(coordinator_keys=["other"]), 4).coordinators
        assert [each.error_code for each in refused] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        assert broker.call(lambda inside: inside.image.topics.by_name(OFFSETS_TOPIC)) is None
        both = raw.ask(FindCoordinatorRequest(coordinator_keys=["other", "mine"]), 4).coordinators
        assert [each.error_code for each in both] == [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE]
        assert broker.call(lambda inside: inside.image.topics.by_name(OFFSETS_TOPIC)) is not None


def test_a_broker_of_the_cluster_may_ask_where_epochs_end(
    obedient: TestBroker, raw: Raw, topic: Callable[..., str]
) -> None:
    name = topic()
    asked = OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0)])
    rule(obedient, Only((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")))
    assert codes_of(raw.ask(OffsetForLeaderEpochRequest(topics=[asked]), 4)) == ()


def test_the_short_cut_of_produce_gives_way_when_the_authorizer_changes(
    obedient: TestBroker, raw: Raw, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one connection, with requests that differ in their records alone, one at a time and many together."""
    taken: list[bool] = []
    for way in ("add", "add_alike"):
        original = getattr(ProduceRun, way)

        def noted(self: ProduceRun, *arguments: object, way: Callable[..., bool] = original) -> bool:
            taken.append(way(self, *arguments))
            return taken[-1]

        monkeypatch.setattr(ProduceRun, way, noted)
    name = topic()

    def codes(count: int) -> list[int]:
        taken.clear()
        raw.socket.sendall(b"".join(raw.frame(produce(name, batch(b"%d" % n)), 9) for n in range(count)))
        answers = [raw.receive(0, 9)[1] for _ in range(count)]
        return [answer.responses[0].partition_responses[0].error_code for answer in answers]

    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes(1) == [0]  # this one may wait until the leader's epoch is on disk
    for count in (1, 8):
        assert codes(count) == [0] * count
        assert taken.count(True) == count
    rule(obedient, Only())
    for count in (1, 8):
        assert codes(count) == [refused] * count
        assert not any(taken)
    rule(obedient, Only((Operation.WRITE, ResourceType.TOPIC, name)))
    assert codes(8) == [0] * 8
    assert not any(taken)
    rule(obedient, OpenAuthorizer())
    assert codes(8) == [0] * 8
    assert taken.count(True) == 8
    assert obedient.call(lambda inside: inside.replicas.by_name[name, 0].log.end_offset) == 26


@pytest.mark.parametrize("version", [12, 17])
def test_the_short_cut_of_fetch_gives_way_when_the_authorizer_changes(
    obedient: TestBroker, raw: Raw, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    taken = note_short_fetches(obedient, monkeypatch)
    name = f"switched-{version}"
    topic_id = create_topic(obedient.port, name)
    raw.ask(produce(name, batch(b"x")), 9)
    request = fetch(name, topic_id=topic_id, max_wait_ms=10)

    def partition() -> tuple[int, bool]:
        found = raw.ask(request, version).responses[0].partitions[0]
        return found.error_code, bool(found.records)

    assert [partition() for _ in range(3)] == [(0, True)] * 3
    assert taken() == [True, True]
    rule(obedient, Only())
    assert [partition() for _ in range(2)] == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)] * 2
    rule(obedient, Only((Operation.READ, ResourceType.TOPIC, name)))
    assert partition() == (0, True)
    assert taken() == [True, True, False, False, False]
    rule(obedient, OpenAuthorizer())
    assert partition() == (0, True)
    assert taken()[-1]
