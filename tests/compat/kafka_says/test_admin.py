"""Metadata, topics, settings and the cluster, as Kafka answers about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.config import BROKER_SETTINGS
from headrace.wire.apis import ApiKey
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest
from headrace.wire.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest

from .conftest import PLAIN, Both, Side

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
COORDINATOR_PATIENCE_S = 30.0
"""Until the groups' topic is made and has a leader."""


def test_api_versions(both: Both) -> None:
    """Every API that we serve has Kafka's range, but for the one that is ours."""

    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        yield side.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), version).error_code
        if version >= 3:
            yield side.ask(ApiVersionsRequest(client_software_name="-bad-", client_software_version=""), 3).error_code

    both.compare(18, script)
    assert both.ours.versions.keys() - both.kafka.versions.keys() == {ApiKey.HEADRACE_GROUP_END_TXN}
    for key in both.ours.versions.keys() & both.kafka.versions.keys():
        low, high = both.ours.versions[key]
        assert low == both.kafka.versions[key][0]
        assert high >= both.kafka.versions[key][1]


def metadata(side: Side, version: int, *names: str, create: bool = False) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    if version >= 4:
        request.allow_auto_topic_creation = create
    return side.ask(request, version)


def test_metadata(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        yield metadata(side, version, PLAIN)
        if version >= 4:
            yield metadata(side, version, name)
            yield metadata(side, version, "bad name")
            yield metadata(side, version, "")
            yield metadata(side, version, "x" * 250)
        if version >= 1:
            yield metadata(side, version)
        if version >= 12:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"\x07" * 16)])
            yield side.ask(request, version)
        if version >= 8:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=PLAIN)], allow_auto_topic_creation=False)
            request.include_topic_authorized_operations = True
            yield side.ask(request, version)

    both.compare(3, script)


def test_create_and_delete_topics(both: Both) -> None:
    def create(side: Side, version: int, validate_only: bool = False, **topic: Any) -> Any:
        wanted = {"num_partitions": 1, "replication_factor": 1, **topic}
        request = CreateTopicsRequest(topics=[CreatableTopic(**wanted)], timeout_ms=10_000)
        request.validate_only = validate_only
        return side.ask(request, version)

    def configs(**settings: str) -> list[CreatableTopicConfig]:
        return [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]

    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        yield create(side, version, name=name, validate_only=True)
        yield create(side, version, name=name, num_partitions=3, configs=configs(retention_ms="5"))
        yield create(side, version, name=name)
        yield create(side, version, name=name.replace("-", "."))
        yield create(side, version, name=name.replace("-", "."), validate_only=True)
        yield create(side, version, name=name.replace("-", "_"))
        yield create(side, version, name="bad name")
        yield create(side, version, name="")
        yield create(side, version, name=".")
        yield create(side, version, name=name + "a", num_partitions=0)
        yield create(side, version, name=name + "a", num_partitions=-2)
        yield create(side, version, name=name + "a", replication_factor=0)
        yield create(side, version, name=name + "a", replication_factor=2)
        yield create(side, version, name=name + "a", configs=configs(nope="1"))
        yield create(side, version, name=name + "a", configs=configs(segment_bytes="1"))
        yield create(side, version, name=name + "a", configs=configs(cleanup_policy="shred"))
        yield create(side, version, name=name + "a", configs=configs(remote_storage_enable="true"))
        given = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
        missing = [CreatableReplicaAssignment(partition_index=0, broker_ids=[9])]
        gap = [CreatableReplicaAssignment(partition_index=1, broker_ids=[1])]
        for assignment in (missing, gap):
            yield create(
                side, version, name=name + "a", num_partitions=-1, replication_factor=-1, assignments=assignment
            )
        yield create(side, version, name=name + "b", num_partitions=-1, replication_factor=-1, assignments=given)
        yield create(side, version, name=name + "c", num_partitions=3, replication_factor=1, assignments=given)
        if version >= 4:
            yield create(side, version, name=name + "d", num_partitions=-1, replication_factor=-1)

    both.compare(19, script)

    def deleting(side: Side, version: int, name: str) -> Iterator[Any]:
        create(side, 5, name=name)
        for wanted in (name, name, "says-unknown"):
            if version >= 6:
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name=wanted)], timeout_ms=10_000)
            else:
                request = DeleteTopicsRequest(topic_names=[wanted], timeout_ms=10_000)
            yield side.ask(request, version)

    both.compare(20, deleting)


def test_create_partitions(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1)]
        side.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        for wanted, count, validate in ((name, 4, True), (name, 4, False), (name, 4, False), (name, 1, False),
                                        (name, 0, False), ("says-unknown", 4, False)):  # fmt: skip
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=wanted, count=count, assignments=None)],
                timeout_ms=10_000, validate_only=validate,
            )  # fmt: skip
            yield side.ask(request, version)

    both.compare(37, script)


# What release 4.4 adds to 4.3's topic settings, and ours.
OUR_TOPIC_SETTINGS = frozenset({"max.decompressed.bytes", "record.validation"})


def test_describe_configs_of_a_topic(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=PLAIN, configuration_keys=None)
        answer = side.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), version)
        for result in answer.results:
            result.configs = sorted(
                (each for each in result.configs if each.name not in OUR_TOPIC_SETTINGS), key=lambda each: each.name
            )
        yield answer
        unknown = DescribeConfigsResource(
            resource_type=TOPIC, resource_name="says-unknown", configuration_keys=["retention.ms"]
        )
        yield side.ask(DescribeConfigsRequest(resources=[unknown]), version)
        nonsense = DescribeConfigsResource(resource_type=77, resource_name="x", configuration_keys=None)
        yield side.ask(DescribeConfigsRequest(resources=[nonsense]), version)

    both.compare(32, script)


# Settings whose defaults are ours (docs/divergence.md), or whose values are this broker's own.
OUR_BROKER_SETTINGS = frozenset(
    {
        "advertised.listeners", "controller.listener.names", "controller.quorum.voters", "listeners", "log.dir",
        "log.dirs", "listener.security.protocol.map", "node.id", "broker.id", "process.roles",
        "queued.max.request.bytes", "group.initial.rebalance.delay.ms", "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
    }
)  # fmt: skip


def test_describe_configs_of_a_broker(both: Both) -> None:
    """Each setting that we list, and that is not in the list above, is described as Kafka describes it."""

    def described(side: Side) -> dict[str, Any]:
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
        answer = side.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
        return {
            each.name: (each.value, each.read_only, each.config_source, each.is_sensitive, each.config_type)
            for each in answer.results[0].configs
        }

    ours, kafkas = described(both.ours), described(both.kafka)
    overridden = {name for name, value in kafkas.items() if value[2] == 4}
    compared = set(ours) & set(kafkas) - OUR_BROKER_SETTINGS - overridden
    assert len(compared) > 150
    # a listener keeps what it was opened with, its stores of keys apart: Kafka changes the rest for listeners to come
    fixed = {name for name in compared if BROKER_SETTINGS[name].update == "read-only"}
    kept = {name for name in fixed if BROKER_SETTINGS[name].by or name.startswith("sasl.")}
    for side in (ours, kafkas):
        side.update({name: (side[name][0], True, *side[name][2:]) for name in kept})
    assert {name: ours[name] for name in compared} == {name: kafkas[name] for name in compared}


def test_incremental_alter_configs(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        side.ask(
            CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=10_000
            ),
            5,
        )
        for kind, resource, setting, operation, value in (
            (TOPIC, name, "retention.ms", SET, "5"),
            (TOPIC, name, "retention.ms", DELETE, None),
            (TOPIC, name, "retention.ms", SET, "abc"),
            (TOPIC, name, "retention.ms", SET, None),
            (TOPIC, name, "cleanup.policy", APPEND, "compact"),
            (TOPIC, name, "cleanup.policy", SUBTRACT, "delete"),
            (TOPIC, name, "retention.ms", APPEND, "5"),
            (TOPIC, name, "nope", SET, "5"),
            (TOPIC, "says-unknown", "retention.ms", SET, "5"),
            (TOPIC, "", "retention.ms", SET, "5"),
            (BROKER, "1", "num.partitions", SET, "5"),
            (BROKER, "1", "log.retention.ms", SET, "abc"),
            (BROKER, "9", "log.retention.ms", SET, "5"),
            (BROKER, "1", "listeners", SET, "X://1:2"),
            (BROKER, "1", "listeners", SET, "garbage"),
            (BROKER, "1", "listeners", SET, "SSL://127.0.0.1:0"),
            (BROKER, "1", "listeners", SET, "PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:1"),
            (BROKER, "1", "listeners", SET, ""),
            (BROKER, "", "listeners", SET, "PLAINTEXT://127.0.0.1:0"),
            (BROKER, "1", "advertised.listeners", SET, "PLAINTEXT://127.0.0.1:1"),
            (BROKER, "1", "listener.security.protocol.map", SET, "PLAINTEXT:SSL"),
            (TOPIC, name, "remote.storage.enable", SET, "true"),
            (TOPIC, name, "remote.storage.enable", SET, "false"),
            (BROKER, "x", "log.retention.ms", SET, "5"),
            (77, "x", "retention.ms", SET, "5"),
        ):
            change = AlterableConfig(name=setting, config_operation=operation, value=value)
            asked = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])
            yield side.ask(IncrementalAlterConfigsRequest(resources=[asked]), version)

    both.compare(44, script)


def test_cluster(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        yield side.ask(DescribeClusterRequest(), version)
        yield side.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)

    both.compare(60, script)


def test_describe_topic_partitions(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for name in (PLAIN, "says-unknown"):
            yield side.ask(
                DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)], response_partition_limit=2000), version
            )
        yield side.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=PLAIN)], response_partition_limit=1), version
        )

    both.compare(75, script)


def test_elect_leaders(both: Both) -> None:
    def script(side: Side, version: int, _name: str) -> Iterator[Any]:
        for topic, partition in ((PLAIN, 0), (PLAIN, 9), ("says-unknown", 0)):
            wanted = [TopicPartitions(topic=topic, partitions=[partition])]
            yield side.ask(ElectLeadersRequest(topic_partitions=wanted, timeout_ms=10_000), version)

    both.compare(43, script)


def test_find_coordinator(both: Both) -> None:
    def script(side: Side, version: int, name: str) -> Iterator[Any]:
        deadline = time.monotonic() + COORDINATOR_PATIENCE_S
        while True:
            if version >= 4:
                request = FindCoordinatorRequest(key_type=0, coordinator_keys=[name])
            else:
                request = FindCoordinatorRequest(key=name)
            answer = side.ask(request, version)
            code = answer.coordinators[0].error_code if version >= 4 else answer.error_code
            if code == 0 or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        yield answer
        if version >= 4:
            yield side.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=[name]), version)

    both.compare(10, script)
