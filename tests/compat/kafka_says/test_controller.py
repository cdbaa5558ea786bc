"""What the controller is asked beside topics: settings as a whole, elections, moves, features, quorum, producers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k33_alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from headrace.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from headrace.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.k44_incremental_alter_configs import AlterableConfig as IncrementalConfig
from headrace.wire.messages.k44_incremental_alter_configs import AlterConfigsResource as IncrementalResource
from headrace.wire.messages.k44_incremental_alter_configs import IncrementalAlterConfigsRequest
from headrace.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from headrace.wire.messages.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.k64_unregister_broker import UnregisterBrokerRequest
from headrace.wire.messages.k74_list_config_resources import ListConfigResourcesRequest

from .conftest import EMPTY, PLAIN, Both, Side

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


def create(side: Side, name: str, **configs: str) -> None:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=settings)
    side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)


def test_alter_configs(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        create(side, name, retention_ms="5")
        for kind, resource, settings in (
            (TOPIC, name, {"segment.ms": "7000"}),
            (TOPIC, name, {"segment.ms": "x"}),
            (TOPIC, name, {"nope": "1"}),
            (TOPIC, name, {"segment.ms": None}),
            (TOPIC, name, {}),
            (TOPIC, "says-unknown", {}),
            (TOPIC, "bad name", {}),
            (BROKER, "1", {"log.retention.ms": "x"}),
            (BROKER, "1", {"broker.id": "2"}),
            (BROKER, "", {"listeners": "PLAINTEXT://:1"}),
            (BROKER, "7", {}),
            (CLIENT_METRICS, "", {}),
            (GROUP, "", {}),
            (8, "1", {"kafka": "INFO"}),
            (77, "x", {}),
        ):
            configs = [AlterableConfig(name=key, value=value) for key, value in settings.items()]
            asked = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=configs)
            yield side.ask(AlterConfigsRequest(resources=[asked]), version)

    both.compare(33, script)


def test_alter_loggers(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for broker, logger, operation, level in (
            ("1", "root", 0, "LOUD"),
            ("1", "root", 0, "WARN"),
            ("1", "root", 0, None),
            ("1", "no.such.logger", 0, "WARN"),
            ("1", "root", 1, None),
            ("1", "root", 2, "WARN"),
            ("9", "root", 0, "WARN"),
            ("x", "root", 0, "WARN"),
        ):
            config = IncrementalConfig(name=logger, config_operation=operation, value=level)
            asked = IncrementalResource(resource_type=8, resource_name=broker, configs=[config])
            yield side.ask(IncrementalAlterConfigsRequest(resources=[asked], validate_only=True), version)

    both.compare(44, script)


def test_elect_all_leaders(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        answer = side.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=10_000), version)
        # Topics of other tests come and go; all of them are listed.
        yield [each for each in answer.replica_election_results if each.topic == PLAIN]
        if version >= 1:
            for kind in (1, 7):
                wanted = [TopicPartitions(topic=PLAIN, partitions=[0, 1])]
                request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=10_000)
                yield side.ask(request, version)

    both.compare(43, script)


def test_reassignments(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for topic, partition, replicas in (
            (PLAIN, 0, [1]),
            (PLAIN, 0, None),
            (PLAIN, 0, []),
            (PLAIN, 0, [9]),
            (PLAIN, 0, [1, 1]),
            (PLAIN, 9, [1]),
            ("says-unknown", 0, [1]),
        ):
            moved = ReassignablePartition(partition_index=partition, replicas=replicas)
            asked = ReassignableTopic(name=topic, partitions=[moved])
            yield side.ask(AlterPartitionReassignmentsRequest(topics=[asked], timeout_ms=10_000), version)

    both.compare(45, script)

    def listing(side: Side, version: int, _name: str) -> Iterator[Any]:
        yield side.ask(ListPartitionReassignmentsRequest(topics=None), version)
        for topic in (PLAIN, "says-unknown"):
            asked = ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 9])
            yield side.ask(ListPartitionReassignmentsRequest(topics=[asked]), version)

    both.compare(46, listing)


def test_update_features(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for name, level, kind in (
            ("metadata.version", 30, 1),
            ("metadata.version", 99, 1),
            ("metadata.version", 29, 1),
            ("group.version", 1, 1),
            ("group.version", -1, 1),
            ("group.version", 9, 1),
            ("group.version", 1, 9),
            ("no.such.feature", 1, 1),
        ):
            update = FeatureUpdateKey(feature=name, max_version_level=level)
            if version >= 1:
                update.upgrade_type = kind
            request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000)
            yield side.ask(request, version)

    both.compare(57, script)


def test_unregister_broker(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for broker in (99, -1):
            yield side.ask(UnregisterBrokerRequest(broker), version)

    both.compare(64, script)


def test_features(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        answer = side.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), version)
        yield sorted((each.name, each.min_version, each.max_version) for each in answer.supported_features)
        # Kafka is formatted with a static quorum here, ours with a dynamic one.
        yield sorted(
            (each.name, each.min_version_level, each.max_version_level)
            for each in answer.finalized_features
            if each.name != "kraft.version"
        )

    both.compare(18, script)


def test_describe_quorum(both: Both) -> None:
    moving = frozenset(
        {"leader_epoch", "high_watermark", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp",
         "replica_directory_id", "leader_id", "name"}
    )  # fmt: skip

    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for topic, partition in (("__cluster_metadata", 0), ("__cluster_metadata", 1), (PLAIN, 0)):
            asked = TopicData(topic_name=topic, partitions=[PartitionData(partition_index=partition)])
            yield side.ask(DescribeQuorumRequest(topics=[asked]), version)

    both.compare(55, script, moving)


def test_producers(both: Both) -> None:
    def init(side: Side, version: int, _name: str) -> Iterator[Any]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answer = side.ask(request, version)
        for _ in range(100):
            # Kafka brings its first block of ids when it is first asked.
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            time.sleep(0.05)
            answer = side.ask(request, version)
        yield answer
        if version >= 3:
            for producer_id, epoch in ((5, -1), (-1, 5), (5, 0)):
                request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
                yield side.ask(request, version)

    both.compare(22, init)

    def describe(side: Side, version: int, _name: str) -> Iterator[Any]:
        for topic in (EMPTY, "says-unknown", "bad name"):
            asked = TopicRequest(name=topic, partition_indexes=[0, 9])
            yield side.ask(DescribeProducersRequest(topics=[asked]), version)

    both.compare(61, describe)


def test_list_config_resources(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for types in ([], [BROKER], [CLIENT_METRICS], [GROUP, BROKER], [77]) if version else ([],):
            answer = side.ask(ListConfigResourcesRequest(resource_types=types), version)
            # Topics and groups of other tests come and go.
            answer.config_resources = sorted(
                (each for each in answer.config_resources if each.resource_type not in (TOPIC, GROUP)),
                key=lambda each: (each.resource_type, each.resource_name),
            )
            yield answer

    both.compare(74, script)


def test_log_directories(both: Both) -> None:
    unlike = frozenset({"log_dir", "total_bytes", "usable_bytes", "partition_size"})

    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for topic, partitions in ((PLAIN, [0, 1, 9]), ("says-unknown", [0])):
            asked = DescribableLogDirTopic(topic=topic, partitions=partitions)
            answer = side.ask(DescribeLogDirsRequest(topics=[asked]), version)
            for result in answer.results:
                for each in result.topics:
                    each.partitions.sort(key=lambda partition: partition.partition_index)
            yield answer
        yield side.ask(DescribeLogDirsRequest(topics=[]), version)

    both.compare(35, script, unlike)

    def moving(side: Side, version: int, _name: str) -> Iterator[Any]:
        for path in ("/no/such/directory", "relative"):
            for topic, partition in ((PLAIN, 0), (PLAIN, 9), ("says-unknown", 0)):
                asked = AlterReplicaLogDir(
                    path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
                )
                yield side.ask(AlterReplicaLogDirsRequest(dirs=[asked]), version)

    both.compare(34, moving)
