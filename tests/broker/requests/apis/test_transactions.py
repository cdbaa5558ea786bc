"""The APIs of transactions over the wire: what each version asks and is answered, on one broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.raw import Raw

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.broker.coordinators.transaction_coordinator import TRANSACTIONS_TOPIC
from headrace.security.authorizer import UNCACHED, OpenAuthorizer
from headrace.testing.running import TestBroker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k10_find_coordinator as k10
from headrace.wire.messages import k18_api_versions as k18
from headrace.wire.messages import k22_init_producer_id as k22
from headrace.wire.messages import k24_add_partitions_to_txn as k24
from headrace.wire.messages import k25_add_offsets_to_txn as k25
from headrace.wire.messages import k26_end_txn as k26
from headrace.wire.messages import k32_describe_configs as k32
from headrace.wire.messages import k61_describe_producers as k61
from headrace.wire.messages import k65_describe_transactions as k65
from headrace.wire.messages import k66_list_transactions as k66

PATIENCE_S = 60.0
NONE = ErrorCode.NONE
FORBIDDEN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Nobody:
    """Nobody may do anything."""

    generation = UNCACHED
    audit = None

    def authorize(self, *_: object) -> bool:
        return False

    authorize_any = authorize


def init(raw: Raw, name: str, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    """(error, producer id, epoch), once the coordinator is found and the last transaction has ended."""
    deadline = time.monotonic() + PATIENCE_S
    request = k22.InitProducerIdRequest(name, fields.pop("timeout_ms", 60_000), **fields)
    while True:
        answer = raw.ask(request, version)
        if answer.error_code not in (14, 15, 16, 51) or time.monotonic() > deadline:
            return answer.error_code, answer.producer_id, answer.producer_epoch


def find(raw: Raw, *names: str) -> list[k10.Coordinator]:
    """Who coordinates each, once that is known."""
    request = k10.FindCoordinatorRequest(key_type=1, coordinator_keys=[*names])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found: list[k10.Coordinator] = raw.ask(request, 4).coordinators
        if not any(each.error_code == 15 for each in found) or time.monotonic() > deadline:
            return found


def begin(raw: Raw, name: str, version: int = 5, **fields: Any) -> tuple[int, int]:
    """The id and epoch of a producer that has a transactional id, once the broker serves every id that it coordinates:
    a test may ask for another."""
    assert find(raw, name)[0].error_code == 0
    deadline = time.monotonic() + PATIENCE_S
    while raw.ask(k66.ListTransactionsRequest(), 2).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        assert time.monotonic() < deadline, "a coordinator loads for ever"
    error, producer_id, epoch = init(raw, name, version, **fields)
    assert error == 0
    return producer_id, epoch


def of_client(name: str, producer: tuple[int, int], **topics: list[int]) -> k24.AddPartitionsToTxnRequest:
    return k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[k24.AddPartitionsToTxnTopic(each, indexes) for each, indexes in topics.items()],
    )


def errors_of(results: list[k24.AddPartitionsToTxnTopicResult]) -> dict[tuple[str, int], int]:
    return {(t.name, p.partition_index): p.partition_error_code for t in results for p in t.results_by_partition}


def add(
    raw: Raw, version: int, name: str, producer: tuple[int, int], **topics: list[int]
) -> dict[tuple[str, int], int]:
    answer = raw.ask(of_client(name, producer, **topics), version)
    return errors_of(answer.results_by_topic_v3_and_below)


def end(raw: Raw, version: int, name: str, producer: tuple[int, int], committed: bool) -> tuple[int, int, int]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = raw.ask(k26.EndTxnRequest(name, *producer, committed), version)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
            return answer.error_code, answer.producer_id, answer.producer_epoch


def describe(raw: Raw, name: str) -> k65.TransactionState:
    states: list[k65.TransactionState] = raw.ask(k65.DescribeTransactionsRequest([name]), 0).transaction_states
    assert len(states) == 1
    return states[0]


def until_state(raw: Raw, name: str, state: str) -> k65.TransactionState:
    deadline = time.monotonic() + PATIENCE_S
    while (told := describe(raw, name)).transaction_state != state:
        assert time.monotonic() < deadline, f"{told.transaction_state}, {told.error_code}"
    return told


def producers(raw: Raw, topic: str, partition: int = 0) -> dict[int, tuple[int, int]]:
    """(epoch, coordinator epoch) of each producer that a partition remembers."""
    request = k61.DescribeProducersRequest([k61.TopicRequest(topic, [partition])])
    told = raw.ask(request, 0).topics[0].partitions[0]
    assert told.error_code == 0
    return {each.producer_id: (each.producer_epoch, each.coordinator_epoch) for each in told.active_producers}


def test_a_transaction_is_committed_as_old_clients_do(raw: Raw, topic: Callable[..., str]) -> None:
    """The epoch stays; the markers are on every partition when the state says that it is over."""
    name = topic(2)
    producer = begin(raw, "old", version=4)
    assert producer[1] == 0
    assert add(raw, 3, "old", producer, **{name: [0, 1]}) == {(name, 0): NONE, (name, 1): NONE}
    told = describe(raw, "old")
    assert (told.transaction_state, told.topics) == ("Ongoing", [k65.TopicData(name, [0, 1])])
    assert told.transaction_timeout_ms == 60_000 and told.transaction_start_time_ms > 0
    assert end(raw, 4, "old", producer, committed=True) == (0, -1, -1)
    told = until_state(raw, "old", "CompleteCommit")
    assert (told.producer_id, told.producer_epoch, told.topics) == (*producer, [])
    for partition in (0, 1):
        assert producers(raw, name, partition) == {producer[0]: (0, 0)}


def test_every_end_raises_the_epoch_of_new_clients(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    producer_id, epoch = begin(raw, "new")
    for round_ in range(3):
        asked = k24.AddPartitionsToTxnTransaction(
            "new", producer_id, epoch + round_, False, [k24.AddPartitionsToTxnTopic(name, [0])]
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = raw.ask(k24.AddPartitionsToTxnRequest([asked]), 5)
            (result,) = answer.results_by_transaction
            code = errors_of(result.topic_results)[name, 0]
            if code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                break
        assert (answer.error_code, result.transactional_id, code) == (0, "new", 0)
        raised = (0, producer_id, epoch + round_ + 1)
        assert end(raw, 5, "new", (producer_id, epoch + round_), committed=round_ != 1) == raised
        assert end(raw, 5, "new", (producer_id, epoch + round_), committed=round_ != 1) == raised  # a retry
        told = until_state(raw, "new", "CompleteAbort" if round_ == 1 else "CompleteCommit")
        assert told.producer_epoch == epoch + round_ + 1
        assert producers(raw, name) == {producer_id: (epoch + round_ + 1, 0)}
    error, _, _ = end(raw, 5, "new", (producer_id, epoch), committed=True)
    assert error == ErrorCode.PRODUCER_FENCED


def test_partitions_are_looked_at_before_the_transaction(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    producer = begin(raw, "looked-at")
    unknown, not_tried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    said = add(raw, 3, "looked-at", producer, **{name: [0, 1], "nowhere": [0]})
    assert said == {(name, 0): not_tried, (name, 1): unknown, ("nowhere", 0): unknown}
    assert describe(raw, "looked-at").transaction_state == "Empty"
    other = (producer[0] + 1_000, 0)
    assert add(raw, 3, "looked-at", other, **{name: [0]}) == {(name, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_brokers_ask_for_many_and_may_only_ask(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic(2)
    one, two = begin(raw, "one-of-two"), begin(raw, "two-of-two")
    assert add(raw, 3, "one-of-two", one, **{name: [0]}) == {(name, 0): NONE}
    asked = [
        k24.AddPartitionsToTxnTransaction("one-of-two", *one, True, [k24.AddPartitionsToTxnTopic(name, [0, 1])]),
        k24.AddPartitionsToTxnTransaction("two-of-two", *two, False, [k24.AddPartitionsToTxnTopic(name, [1])]),
        k24.AddPartitionsToTxnTransaction("nobody", 1, 1, True, [k24.AddPartitionsToTxnTopic(name, [1])]),
    ]
    answer = raw.ask(k24.AddPartitionsToTxnRequest(asked), 5)
    assert {each.transactional_id: errors_of(each.topic_results) for each in answer.results_by_transaction} == {
        "one-of-two": {(name, 0): NONE, (name, 1): ErrorCode.TRANSACTION_ABORTABLE},
        "two-of-two": {(name, 1): NONE},
        "nobody": {(name, 1): ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    }
    assert raw.ask(k24.AddPartitionsToTxnRequest([]), 4).results_by_transaction == []


def test_a_partition_that_is_named_again_and_again_is_answered_once(raw: Raw, topic: Callable[..., str]) -> None:
    """As in Kafka, whose answer is a map; each would be an element of one turn of the loop."""
    name = topic()
    producer = begin(raw, "again")
    answer = raw.ask(of_client("again", producer, **{name: [0] * 1000}), 3)
    (result,) = answer.results_by_topic_v3_and_below
    assert [(each.partition_index, each.partition_error_code) for each in result.results_by_partition] == [(0, NONE)]
    asked = [
        k24.AddPartitionsToTxnTransaction("again", *producer, True, [k24.AddPartitionsToTxnTopic(name, [0] * 1000)])
    ]
    (each,) = raw.ask(k24.AddPartitionsToTxnRequest(asked), 5).results_by_transaction
    assert [len(result.results_by_partition) for result in each.topic_results] == [1]


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_producer_hears_what_its_version_knows(raw: Raw, version: int, topic: Callable[..., str]) -> None:
    name, id_ = topic(), f"fenced-{version}"
    old = begin(raw, id_)
    newer = begin(raw, id_)
    assert newer == (old[0], old[1] + 1)
    late, fenced = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED
    if version >= 3:
        wanted = late if version < 4 else fenced
        assert init(raw, id_, version, producer_id=old[0], producer_epoch=old[1] - 1 if old[1] else 9)[0] == wanted
    wanted = late if version < 2 else fenced
    if version < 4:
        assert add(raw, version, id_, old, **{name: [0]}) == {(name, 0): wanted}
    if version < 5:
        assert raw.ask(k25.AddOffsetsToTxnRequest(id_, *old, "g"), version).error_code == wanted
    assert raw.ask(k26.EndTxnRequest(id_, *old, True), version).error_code == wanted


def test_a_groups_offsets_are_part_of_it(served: TestBroker, raw: Raw) -> None:
    raw.ask(k10.FindCoordinatorRequest(coordinator_keys=["offsets-of-it"]), 4)
    producer = begin(raw, "with-offsets")
    assert raw.ask(k25.AddOffsetsToTxnRequest("with-offsets", *producer, "offsets-of-it"), 4).error_code == 0
    index = served.call(lambda broker: broker.groups.partition_for("offsets-of-it"))
    assert describe(raw, "with-offsets").topics == [k65.TopicData(OFFSETS_TOPIC, [index])]
    assert end(raw, 4, "with-offsets", producer, committed=False) == (0, -1, -1)
    until_state(raw, "with-offsets", "CompleteAbort")
    assert producer[0] in producers(raw, OFFSETS_TOPIC, index)


def test_what_cannot_be_asked(raw: Raw) -> None:
    begin(raw, "any")
    invalid = ErrorCode.INVALID_REQUEST
    assert init(raw, "")[0] == invalid
    assert init(raw, "x", producer_id=5)[0] == invalid
    assert init(raw, "x", timeout_ms=0)[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert init(raw, "x", timeout_ms=900_001) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert raw.ask(k26.EndTxnRequest("", 1, 1, True), 5).error_code == invalid
    assert describe(raw, "").error_code == invalid
    assert describe(raw, "never-heard-of").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_transactions_are_listed(raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    begin(raw, "list-empty")
    producer = begin(raw, "list-open")
    add(raw, 3, "list-open", producer, **{name: [0]})

    def listed(version: int = 2, **filters: Any) -> dict[str, str]:
        answer = raw.ask(k66.ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        found = answer.transaction_states
        return {each.transactional_id: each.transaction_state for each in found if "list-" in each.transactional_id}

    both = {"list-empty": "Empty", "list-open": "Ongoing"}
    assert listed(0) == listed() == both
    assert listed(state_filters=["Ongoing"]) == {"list-open": "Ongoing"}
    assert listed(producer_id_filters=[producer[0]]) == {"list-open": "Ongoing"}
    assert listed(duration_filter=3_600_000) == {"list-empty": "Empty"}
    assert listed(transactional_id_pattern="") == both
    assert listed(transactional_id_pattern="list-(e|x).*") == {"list-empty": "Empty"}
    assert listed(transactional_id_pattern="list") == {}
    unknown = raw.ask(k66.ListTransactionsRequest(state_filters=["Sleeping", "Empty"]), 2)
    assert unknown.unknown_state_filters == ["Sleeping"] and unknown.transaction_states
    bad = raw.ask(k66.ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_the_topic_is_made_as_kafka_makes_it(served: TestBroker, raw: Raw) -> None:
    assert find(raw, "any", "other") == [
        k10.Coordinator(key, 1, "127.0.0.1", served.port, 0, "") for key in ("any", "other")
    ]
    wanted = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    resource = k32.DescribeConfigsResource(2, TRANSACTIONS_TOPIC, list(wanted))
    (result,) = raw.ask(k32.DescribeConfigsRequest([resource]), 4).results
    assert {each.name: each.value for each in result.configs} == wanted
    topic = served.call(lambda broker: broker.image.topics.by_name(TRANSACTIONS_TOPIC))
    assert topic is not None and {len(each.replicas) for each in topic.partitions} == {1}


def test_the_feature_is_told(raw: Raw) -> None:
    answer = raw.ask(k18.ApiVersionsRequest("test", "1"), 4)
    assert [(f.min_version, f.max_version) for f in answer.supported_features if f.name == "transaction.version"] == [
        (0, 2)
    ]
    assert [f.max_version_level for f in answer.finalized_features if f.name == "transaction.version"] == [2]


def test_whoever_may_not_is_told_so(served: TestBroker, raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    producer = begin(raw, "closed")

    def close(broker: Any) -> None:
        broker.authorizer = Nobody()

    def open_(broker: Any) -> None:
        broker.authorizer = OpenAuthorizer()

    served.call(close)
    try:
        with Raw(served.port) as other:
            assert find(other, "closed")[0].error_code == FORBIDDEN
            assert init(other, "closed")[0] == FORBIDDEN
            assert add(other, 3, "closed", producer, **{name: [0]}) == {(name, 0): FORBIDDEN}
            of_brokers = other.ask(k24.AddPartitionsToTxnRequest([]), 4)
            assert of_brokers.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert other.ask(k25.AddOffsetsToTxnRequest("closed", *producer, "g"), 4).error_code == FORBIDDEN
            assert other.ask(k26.EndTxnRequest("closed", *producer, True), 4).error_code == FORBIDDEN
            assert describe(other, "closed").error_code == FORBIDDEN
            assert other.ask(k66.ListTransactionsRequest(), 2).transaction_states == []
    finally:
        served.call(open_)
