"""What clients hear while nobody decides on the metadata: Kafka's retriable errors, and reads go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker.raw import Raw

from headrace.broker.broker import Broker
from headrace.broker.quorum.port.controller import AbsentController
from headrace.broker.quorum.port.producer_ids import ProducerIds
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages import k20_delete_topics as k20
from headrace.wire.messages import k33_alter_configs as k33
from headrace.wire.messages import k37_create_partitions as k37
from headrace.wire.messages import k43_elect_leaders as k43
from headrace.wire.messages import k44_incremental_alter_configs as k44
from headrace.wire.messages import k45_alter_partition_reassignments as k45
from headrace.wire.messages import k57_update_features as k57
from headrace.wire.messages import k64_unregister_broker as k64
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest

TOPIC = 2


@pytest.fixture(scope="module")
def alone() -> Iterator[Raw]:
    def lose(broker: Broker) -> None:
        broker.controller = AbsentController()
        broker.producer_ids = ProducerIds(broker.controller, broker.node_id, broker.requests_owner)

    with running_broker() as running, Raw(running.port) as connection:
        running.call(lose)
        yield connection


@pytest.mark.parametrize(
    ("request_", "version", "of"),
    [
        (k19.CreateTopicsRequest(topics=[k19.CreatableTopic(name="a", num_partitions=1)]), 7, "topics"),
        (k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name="a")]), 6, "responses"),
        (k37.CreatePartitionsRequest([k37.CreatePartitionsTopic("a", 2, None)]), 3, "results"),
        (
            k44.IncrementalAlterConfigsRequest([k44.AlterConfigsResource(TOPIC, "a", [])]),
            1,
            "responses",
        ),
        (k33.AlterConfigsRequest([k33.AlterConfigsResource(TOPIC, "a", [])]), 2, "responses"),
        (k43.ElectLeadersRequest(0, [k43.TopicPartitions("a", [0])]), 2, None),
        (k45.AlterPartitionReassignmentsRequest(topics=[]), 0, None),
        (k57.UpdateFeaturesRequest(feature_updates=[k57.FeatureUpdateKey("group.version", 1)]), 1, None),
        (k64.UnregisterBrokerRequest(1), 0, None),
    ],
    ids=["create", "delete", "grow", "alter", "replace", "elect", "reassign", "features", "unregister"],
)
def test_a_change_is_refused_as_kafka_refuses_it(alone: Raw, request_: Any, version: int, of: str | None) -> None:
    answer = alone.ask(request_, version)
    found = answer if of is None else getattr(answer, of)[0]
    assert ErrorCode(found.error_code) is ErrorCode.NOT_CONTROLLER


def test_producers_and_groups_are_to_ask_again(alone: Raw) -> None:
    made = alone.ask(InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1), 4)
    assert ErrorCode(made.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = alone.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
    assert ErrorCode(found.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_reads_go_on(alone: Raw) -> None:
    metadata = alone.ask(MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True), 9)
    assert ErrorCode(metadata.topics[0].error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(metadata.brokers) == 1
