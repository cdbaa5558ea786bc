"""Admin requests to a broker in this process: what they change, live and after a restart, and who may ask."""

from __future__ import annotations

import errno
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.link import Link

from headrace.metadata.image import DIRECTORY_UNASSIGNED
from headrace.security.authorizer import UNCACHED, Operation, ResourceType
from headrace.testing import TestBroker
from headrace.wire.batch import read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.k33_alter_configs import AlterableConfig as WholeConfig
from headrace.wire.messages.k33_alter_configs import AlterConfigsRequest
from headrace.wire.messages.k33_alter_configs import AlterConfigsResource as WholeResource
from headrace.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from headrace.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.k43_elect_leaders import ElectLeadersRequest
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.k45_alter_partition_reassignments import AlterPartitionReassignmentsRequest
from headrace.wire.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from headrace.wire.messages.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest
from headrace.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from headrace.wire.messages.k75_describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from headrace.wire.records import Record, build_batch, decode_batch
from headrace.wire.uuids import ZERO

TOPIC, BROKER = 2, 4


class Running:
    """A broker and a connection to it."""

    def __init__(self, data: Path, **settings: str) -> None:
        self.data = data
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.broker = TestBroker(data, named)
        self.broker.start()
        self.link = Link(self.broker.port)

    def ask(self, request: Any, version: int) -> Any:
        return self.link.ask(request, version)

    def stop(self) -> None:
        self.link.socket.close()
        self.broker.stop()

    def create(self, name: str, partitions: int = 1, **configs: str) -> Any:
        settings = [CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        return self.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0]

    def metadata(self, *names: str, version: int = 12, create: bool = False) -> Any:
        topics = [MetadataRequestTopic(name=name) for name in names]
        return self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version).topics

    def alter(self, kind: int, name: str, **values: str) -> Any:
        configs = [AlterableConfig(name=k.replace("_", "."), config_operation=0, value=v) for k, v in values.items()]
        asked = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return self.ask(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses[0]

    def described(self, kind: int, name: str, *keys: str) -> dict[str, str | None]:
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        answer = self.ask(DescribeConfigsRequest(resources=[resource]), 4)
        return {config.name: config.value for config in answer.results[0].configs}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def begin(data: Path | None = None, **settings: str) -> Running:
        running.append(Running(data or tmp_path / "data", **settings))
        return running[-1]

    yield begin
    for each in running:
        if each.broker._thread.is_alive():
            each.stop()


def test_a_topic_lives_through_a_restart(start: Callable[..., Running]) -> None:
    one = start()
    made = one.create("a", 3, retention_ms="1000")
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 1)
    before = one.metadata("a")[0]
    one.stop()
    again = start()
    after = again.metadata("a")[0]
    assert after == before
    assert after.topic_id == made.topic_id
    assert again.described(TOPIC, "a", "retention.ms") == {"retention.ms": "1000"}
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=made.topic_id)])
    assert again.ask(by_id, 12).topics[0].name == "a"
    deleted = again.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=made.topic_id)]), 6)
    assert [(each.name, each.error_code) for each in deleted.responses] == [("a", 0)]
    assert again.metadata("a")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert again.ask(by_id, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_names_and_ids_cannot_be_mixed_when_deleting(start: Callable[..., Running]) -> None:
    one = start()
    made = one.create("a")
    states = [
        DeleteTopicState(name="a", topic_id=made.topic_id),
        DeleteTopicState(name=None, topic_id=ZERO),
        DeleteTopicState(name="b"),
        DeleteTopicState(name="b"),
    ]
    answer = one.ask(DeleteTopicsRequest(topics=states), 6)
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 3
    assert one.metadata("a")[0].error_code == 0


def test_topics_are_created_on_first_use(start: Callable[..., Running]) -> None:
    one = start(num_partitions="3")
    first = one.metadata("new", "bad/name", create=True)
    assert [t.error_code for t in first] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    deadline = time.monotonic() + 60
    while (now := one.metadata("new")[0]).error_code:
        assert time.monotonic() < deadline
    assert len(now.partitions) == 3
    assert one.metadata("other")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    time.sleep(0.05)
    assert one.metadata("other")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody allowed it"


def test_the_broker_may_forbid_creation_on_first_use(start: Callable[..., Running]) -> None:
    one = start(auto_create_topics_enable="false")
    for _ in range(2):
        assert one.metadata("new", create=True)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        time.sleep(0.05)


def test_metadata_of_all_and_of_none(start: Callable[..., Running]) -> None:
    one = start()
    one.create("b")
    one.create("a")
    assert [t.name for t in one.ask(MetadataRequest(topics=[]), 0).topics] == ["a", "b"]
    assert [t.name for t in one.ask(MetadataRequest(topics=None), 1).topics] == ["a", "b"]
    answer = one.ask(MetadataRequest(topics=[]), 1)
    assert answer.topics == []
    assert [(b.node_id, b.port) for b in answer.brokers] == [(1, one.broker.port)]


def test_topic_settings_reach_the_open_logs(start: Callable[..., Running]) -> None:
    one = start()
    one.create("a", 2)

    def retention() -> list[int]:
        return one.broker.call(lambda b: [b.logs.logs["a", i].config.retention_ms for i in range(2)])

    assert retention() == [604_800_000] * 2
    assert one.alter(TOPIC, "a", retention_ms="5000").error_code == 0
    assert retention() == [5000] * 2
    assert one.alter(BROKER, "", log_retention_ms="7000").error_code == 0
    assert retention() == [5000] * 2
    whole = WholeResource(
        resource_type=TOPIC, resource_name="a", configs=[WholeConfig(name="segment.ms", value="60000")]
    )
    assert one.ask(AlterConfigsRequest(resources=[whole]), 2).responses[0].error_code == 0
    assert retention() == [7000] * 2


def test_broker_settings_change_while_it_runs_and_stay(start: Callable[..., Running]) -> None:
    one = start()
    assert one.alter(BROKER, "1", log_cleaner_threads="2").error_code == 0
    assert one.alter(BROKER, "", message_max_bytes="2000000").error_code == 0
    assert one.broker.call(lambda b: b.config["log.cleaner.threads"]) == 2
    assert one.broker.call(lambda b: b.logs.config["log.cleaner.threads"]) == 2
    assert one.described(BROKER, "") == {"message.max.bytes": "2000000", "min.insync.replicas": "1"}
    one.stop()
    again = start()
    assert again.broker.call(lambda b: b.config["message.max.bytes"]) == 2_000_000
    assert again.described(BROKER, "1", "log.cleaner.threads") == {"log.cleaner.threads": "2"}
    listed = again.ask(ListConfigResourcesRequest(resource_types=[BROKER]), 1)
    assert [(each.resource_type, each.resource_name) for each in listed.config_resources] == [(BROKER, "1")]


def test_levels_of_loggers(start: Callable[..., Running]) -> None:
    one, kind, name = start(), 8, "headrace.broker"
    logger = logging.getLogger(name)
    before = logger.level

    def alter(key: str, operation: int, value: str | None) -> int:
        config = AlterableConfig(name=key, config_operation=operation, value=value)
        asked = AlterConfigsResource(resource_type=kind, resource_name="1", configs=[config])
        return int(one.ask(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses[0].error_code)

    try:
        assert alter(name, 0, "DEBUG") == 0
        assert one.described(kind, "1")[name] == "DEBUG"
        assert logger.isEnabledFor(logging.DEBUG)
        assert alter(name, 0, "LOUD") == ErrorCode.INVALID_CONFIG
        assert alter("no.such.logger", 0, "DEBUG") == ErrorCode.INVALID_CONFIG
        assert alter("root", 1, None) == ErrorCode.INVALID_REQUEST
        assert alter(name, 2, "DEBUG") == ErrorCode.INVALID_REQUEST
        assert alter(name, 1, None) == 0
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)


def test_producer_ids_are_never_given_twice(start: Callable[..., Running]) -> None:
    one = start()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    first = [one.ask(request, 4).producer_id for _ in range(1500)]
    assert first == list(range(1500))
    one.stop()
    again = start()
    answer = again.ask(request, 4)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id == 2000
    transactional = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
    assert again.ask(transactional, 4).error_code == ErrorCode.NOT_COORDINATOR
    assert again.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4).coordinators[0].error_code == 0
    answer = again.ask(transactional, 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 2001, 0)


def test_a_directory_whose_size_is_not_told_is_used_as_long_as_it_works(
    start: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = start(log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    one.create("a", 2)
    disk_type = type(one.broker.inside.node.disk)
    with monkeypatch.context() as patched:

        def fails(_: object, path: str) -> int:
            raise OSError(errno.EIO, "not now", path)

        patched.setattr(disk_type, "free_bytes", fails)
        answer = one.ask(DescribeLogDirsRequest(topics=None), 4)
        assert [result.error_code for result in answer.results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    answer = one.ask(DescribeLogDirsRequest(topics=None), 4)
    assert [result.error_code for result in answer.results] == [0, 0]
    assert [sum(len(t.partitions) for t in result.topics) for result in answer.results] == [1, 1]


def test_replicas_spread_over_log_directories(start: Callable[..., Running], tmp_path: Path) -> None:
    one = start(log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    one.create("a", 6)
    answer = one.ask(DescribeLogDirsRequest(topics=None), 4)
    assert [result.log_dir for result in answer.results] == [f"{tmp_path}/one", f"{tmp_path}/two"]
    assert [sum(len(t.partitions) for t in result.topics) for result in answer.results] == [3, 3]
    assert all(result.total_bytes > result.usable_bytes > 0 for result in answer.results)
    deadline = time.monotonic() + 60

    def directories() -> set[bytes]:
        return one.broker.call(lambda b: {p.directory_of(1) for p in b.image.topics.topics_by_name["a"].partitions})

    while DIRECTORY_UNASSIGNED in directories():
        assert time.monotonic() < deadline
    assert directories() == set(one.broker.inside.layout.directory_ids.values())


def move(one: Running, path: Path, topic: str, partition: int) -> int:
    asked = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[asked])])
    return int(one.ask(request, 2).results[0].partitions[0].error_code)


def produce(one: Running, topic: str, values: list[bytes]) -> None:
    data = build_batch([Record(0, 1_700_000_000_000, None, value) for value in values])
    part = PartitionProduceData(index=0, records=memoryview(bytes(data)))
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[part])])
    assert one.ask(request, 9).responses[0].partition_responses[0].error_code == 0


def read_all(one: Running, topic: str) -> list[bytes | None]:
    values: list[bytes | None] = []
    while True:
        part = FetchPartition(partition=0, fetch_offset=len(values), partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1)
        request.topics = [FetchTopic(topic=topic, partitions=[part])]
        data = bytes(one.ask(request, 12).responses[0].partitions[0].records or b"")
        if not data:
            return values
        at = 0
        while at + 61 <= len(data) and at + (size := read_header(data, at).size) <= len(data):
            values += [record.value for record in decode_batch(data, at) if record.offset >= len(values)]
            at += size


def test_a_replica_moves_to_another_directory(start: Callable[..., Running], tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    one = start(log_dirs=",".join(map(str, homes)))
    one.create("a", 1, segment_bytes="1048576", file_delete_delay_ms="0")
    values = [b"%06d" % n * 500 for n in range(1500)]
    for at in range(0, len(values), 100):
        produce(one, "a", values[at : at + 100])
    source = next(home for home in homes if (home / "a-0").is_dir())
    target = next(home for home in homes if home is not source)
    assert move(one, tmp_path / "nowhere", "a", 0) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(one, target, "a", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(one, source, "a", 0) == 0
    assert move(one, target, "a", 0) == 0
    more = [b"more %d" % n for n in range(50)]
    for value in more:
        produce(one, "a", [value])
    deadline = time.monotonic() + 60
    while not (target / "a-0").is_dir():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    produce(one, "a", [b"after"])
    expected = [*values, *more, b"after"]
    assert read_all(one, "a") == expected
    wanted = one.broker.inside.layout.directory_ids[str(target)]
    while one.broker.call(lambda b: b.image.topics.topics_by_name["a"].partitions[0].directory_of(1)) != wanted:
        assert time.monotonic() < deadline
    assert not (source / "a-0").exists()
    one.stop()
    again = start(log_dirs=",".join(map(str, homes)))
    assert read_all(again, "a") == expected
    assert [path.name for path in target.glob("a-0*")] == ["a-0"]


def test_a_move_back_is_called_off(start: Callable[..., Running], tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    one = start(log_dirs=",".join(map(str, homes)))
    one.create("a")
    produce(one, "a", [b"x"])
    source = next(home for home in homes if (home / "a-0").is_dir())
    target = next(home for home in homes if home is not source)
    one.broker.call(lambda b: setattr(b.logs.compaction, "is_running", True))
    assert move(one, target, "a", 0) == 0
    described = one.ask(DescribeLogDirsRequest(topics=None), 4)
    assert [p.is_future_key for result in described.results for t in result.topics for p in t.partitions].count(
        True
    ) == 1
    assert move(one, source, "a", 0) == 0
    one.broker.call(lambda b: setattr(b.logs.compaction, "is_running", False))
    time.sleep(0.5)  # for a move that goes on although it was called off
    assert (source / "a-0").is_dir()
    assert read_all(one, "a") == [b"x"]


def test_a_partition_in_a_directory_that_is_gone_stays_offline(start: Callable[..., Running], tmp_path: Path) -> None:
    one = start(log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    one.create("a", 2)
    deadline = time.monotonic() + 60
    while one.broker.call(
        lambda b: {p.directory_of(1) for p in b.image.topics.topics_by_name["a"].partitions} & {DIRECTORY_UNASSIGNED}
    ):
        assert time.monotonic() < deadline
    one.stop()
    shutil.rmtree(tmp_path / "two")
    again = start(log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    assert len(again.broker.call(lambda b: list(b.logs.logs))) == 1
    assert list(again.broker.call(lambda b: b.replicas.offline).values()) == [ErrorCode.KAFKA_STORAGE_ERROR]
    partitions = again.metadata("a")[0].partitions
    assert sorted((p.leader_id, p.error_code) for p in partitions) == [(-1, ErrorCode.LEADER_NOT_AVAILABLE), (1, 0)]


def test_a_failed_directory_takes_its_leaders_along(start: Callable[..., Running], tmp_path: Path) -> None:
    one = start(log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    one.create("a", 2)
    deadline = time.monotonic() + 60
    while one.broker.call(
        lambda b: {p.directory_of(1) for p in b.image.topics.topics_by_name["a"].partitions} & {DIRECTORY_UNASSIGNED}
    ):
        assert time.monotonic() < deadline
    one.broker.call(lambda b: b.replicas.failures.directory_failed(f"{tmp_path}/two", OSError("gone")))
    while sorted(p.leader_id for p in one.metadata("a")[0].partitions) != [-1, 1]:
        assert time.monotonic() < deadline
    results = one.ask(DescribeLogDirsRequest(topics=None), 4).results
    assert [result.error_code for result in results] == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    assert len(one.broker.call(lambda b: b.image.brokers[1].directories)) == 1
    one.stop()
    again = start(log_dirs=f"{tmp_path}/one,{tmp_path}/two")
    assert [p.leader_id for p in again.metadata("a")[0].partitions] == [1, 1], "the disk is back"


def test_pages_of_topic_partitions(start: Callable[..., Running]) -> None:
    one = start()
    for name in ("a", "b", "c"):
        one.create(name, 3)
    pages: list[list[tuple[str, list[int]]]] = []
    cursor: Cursor | None = None
    while not pages or cursor is not None:
        answer = one.ask(DescribeTopicPartitionsRequest(response_partition_limit=4, cursor=cursor), 0)
        pages.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        cursor = answer.next_cursor
    assert pages == [
        [("a", [0, 1, 2]), ("b", [0])],
        [("b", [1, 2]), ("c", [0, 1])],
        [("c", [2])],
    ]


class Nobody:
    """Allows nothing but what it is told to."""

    generation = UNCACHED
    audit = None

    def __init__(self, *allowed: tuple[Operation, ResourceType]) -> None:
        self.allowed = set(allowed)

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (operation, resource) in self.allowed

    def authorize_any(self, principal: str, client_host: str, operation: Operation, resource: ResourceType) -> bool:
        return (operation, resource) in self.allowed


def test_nobody_may_do_anything(start: Callable[..., Running]) -> None:
    one = start()
    made = one.create("a")
    one.broker.call(lambda b: setattr(b, "authorizer", Nobody()))
    topic, cluster = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert one.create("b").error_code == topic
    assert one.metadata("a", "b", create=True)[0].error_code == topic
    assert one.ask(MetadataRequest(topics=None), 12).topics == []
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=made.topic_id)])
    refused = one.ask(by_id, 12).topics[0]
    assert (refused.error_code, refused.name, refused.topic_id) == (topic, None, made.topic_id)
    for state in (DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=made.topic_id)):
        deleted = one.ask(DeleteTopicsRequest(topics=[state]), 6).responses[0]
        assert (deleted.error_code, deleted.name, deleted.topic_id) == (topic, state.name, state.topic_id)
    grown = CreatePartitionsTopic(name="a", count=3, assignments=None)
    assert one.ask(CreatePartitionsRequest(topics=[grown]), 3).results[0].error_code == topic
    assert one.alter(TOPIC, "a", retention_ms="1").error_code == topic
    assert one.alter(BROKER, "1", log_retention_ms="1").error_code == cluster
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="a", configuration_keys=None)
    assert one.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].error_code == topic
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    quorum = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    for request, version in (
        (ListConfigResourcesRequest(), 1),
        (DescribeLogDirsRequest(topics=None), 4),
        (ElectLeadersRequest(topic_partitions=None), 2),
        (AlterPartitionReassignmentsRequest(), 1),
        (ListPartitionReassignmentsRequest(), 0),
        (UpdateFeaturesRequest(feature_updates=[update]), 2),
        (DescribeQuorumRequest(topics=[quorum]), 2),
        (InitProducerIdRequest(transactional_id=None), 4),
    ):
        assert one.ask(request, version).error_code == cluster, type(request).__name__
    assert one.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1).error_code == 0


def test_authorized_operations_are_those_that_are_allowed(start: Callable[..., Running]) -> None:
    one = start()
    one.create("a")
    allowed = [(Operation.DESCRIBE, ResourceType.TOPIC), (Operation.READ, ResourceType.TOPIC)]
    one.broker.call(lambda b: setattr(b, "authorizer", Nobody(*allowed)))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")], include_topic_authorized_operations=True)
    assert one.ask(request, 12).topics[0].topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert one.metadata("a")[0].topic_authorized_operations == -(2**31)


def test_the_cluster_describes_itself(start: Callable[..., Running]) -> None:
    one = start()
    answer = one.ask(DescribeClusterRequest(), 2)
    assert answer.controller_id == 1
    assert [(b.broker_id, b.port, b.is_fenced) for b in answer.brokers] == [(1, one.broker.port, False)]
    features = one.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4).finalized_features
    assert {each.name: each.max_version_level for each in features}["kraft.version"] == 1
    assert one.ask(DescribeClusterRequest(endpoint_type=2), 2).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert one.ask(DescribeClusterRequest(endpoint_type=9), 2).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    quorum = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    answer = one.ask(DescribeQuorumRequest(topics=[quorum]), 2)
    state = answer.topics[0].partitions[0]
    assert (state.leader_id, [voter.replica_id for voter in state.current_voters]) == (1, [1])
    assert state.high_watermark == state.current_voters[0].log_end_offset > 0


def test_thousands_of_partitions_are_made_at_once(start: Callable[..., Running]) -> None:
    one = start()
    before = time.monotonic()
    assert one.create("many", 2000).error_code == 0
    assert len(one.metadata("many")[0].partitions) == 2000
    assert time.monotonic() - before < 30
