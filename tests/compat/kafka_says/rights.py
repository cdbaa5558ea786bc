"""What clients ask that have one right, or all but one: the requests, the rights, and what is compared of an answer.

Every set of rights has an address of this machine: on PLAINTEXT all clients are User:ANONYMOUS. The rights are for
every name of a resource, so that a request that changes something can be about a topic or a group of its own.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from peers.link import Link

from headrace.security.authorizer import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType
from headrace.wire.messages import k00_produce as k00
from headrace.wire.messages import k01_fetch as k01
from headrace.wire.messages import k02_list_offsets as k02
from headrace.wire.messages import k03_metadata as k03
from headrace.wire.messages import k08_offset_commit as k08
from headrace.wire.messages import k09_offset_fetch as k09
from headrace.wire.messages import k10_find_coordinator as k10
from headrace.wire.messages import k11_join_group as k11
from headrace.wire.messages import k12_heartbeat as k12
from headrace.wire.messages import k13_leave_group as k13
from headrace.wire.messages import k14_sync_group as k14
from headrace.wire.messages import k15_describe_groups as k15
from headrace.wire.messages import k16_list_groups as k16
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages import k20_delete_topics as k20
from headrace.wire.messages import k21_delete_records as k21
from headrace.wire.messages import k22_init_producer_id as k22
from headrace.wire.messages import k23_offset_for_leader_epoch as k23
from headrace.wire.messages import k24_add_partitions_to_txn as k24
from headrace.wire.messages import k25_add_offsets_to_txn as k25
from headrace.wire.messages import k26_end_txn as k26
from headrace.wire.messages import k28_txn_offset_commit as k28
from headrace.wire.messages import k29_describe_acls as k29
from headrace.wire.messages import k30_create_acls as k30
from headrace.wire.messages import k31_delete_acls as k31
from headrace.wire.messages import k32_describe_configs as k32
from headrace.wire.messages import k33_alter_configs as k33
from headrace.wire.messages import k35_describe_log_dirs as k35
from headrace.wire.messages import k37_create_partitions as k37
from headrace.wire.messages import k42_delete_groups as k42
from headrace.wire.messages import k43_elect_leaders as k43
from headrace.wire.messages import k44_incremental_alter_configs as k44
from headrace.wire.messages import k45_alter_partition_reassignments as k45
from headrace.wire.messages import k46_list_partition_reassignments as k46
from headrace.wire.messages import k47_offset_delete as k47
from headrace.wire.messages import k50_describe_user_scram_credentials as k50
from headrace.wire.messages import k51_alter_user_scram_credentials as k51
from headrace.wire.messages import k55_describe_quorum as k55
from headrace.wire.messages import k57_update_features as k57
from headrace.wire.messages import k60_describe_cluster as k60
from headrace.wire.messages import k61_describe_producers as k61
from headrace.wire.messages import k64_unregister_broker as k64
from headrace.wire.messages import k65_describe_transactions as k65
from headrace.wire.messages import k66_list_transactions as k66
from headrace.wire.messages import k68_consumer_group_heartbeat as k68
from headrace.wire.messages import k69_consumer_group_describe as k69
from headrace.wire.messages import k74_list_config_resources as k74
from headrace.wire.messages import k75_describe_topic_partitions as k75
from headrace.wire.records import Record, build_batch

NEW = "new"
HELD, GROUP, TRANSACTION, ABSENT = "held", "held-group", "held-transaction", "absent"
ABSENT_ID = b"\x01" * 16
ANYONE, ALL, DENY, ALLOW, LITERAL = "User:*", 2, 2, 3, 3
OWNER = "127.0.0.1"
TOPIC_CONFIG, BROKER_CONFIG, LOGGER_CONFIG, METRICS_CONFIG, GROUP_CONFIG = 2, 4, 8, 16, 32

KINDS = {
    ResourceType.TOPIC: "*",
    ResourceType.GROUP: "*",
    ResourceType.TRANSACTIONAL_ID: "*",
    ResourceType.CLUSTER: CLUSTER_NAME,
}


def now_ms() -> int:
    """Records of long ago would be deleted meanwhile."""
    return time.time_ns() // 1_000_000


# --- who asks


@dataclass(frozen=True)
class Rights:
    """A set of rights, by the name of which a failure speaks, and the address that has it."""

    name: str
    host: str
    acls: tuple[k30.AclCreation, ...]


def _acl(kind: ResourceType, operation: int, host: str, permission: int = ALLOW) -> k30.AclCreation:
    return k30.AclCreation(kind, KINDS[kind], LITERAL, ANYONE, host, operation, permission)


def everything(host: str) -> tuple[k30.AclCreation, ...]:
    return tuple(_acl(kind, ALL, host) for kind in KINDS)


def every_rights() -> list[Rights]:
    """None, each one alone, all but each one, and all."""
    made: list[Rights] = []

    def add(name: str, acls: Callable[[str], tuple[k30.AclCreation, ...]]) -> None:
        host = f"127.0.1.{len(made) + 1}"
        made.append(Rights(name, host, acls(host)))

    add("nothing", lambda _: ())
    add("everything", everything)
    for kind in KINDS:
        # Kafka does not count it among the operations on a cluster, and asks for it where topics are deleted.
        more = (Operation.DELETE,) if kind is ResourceType.CLUSTER else ()
        for operation in (*OPERATIONS_OF[kind], *more):
            named = f"{kind.name}.{operation.name}"
            add(named, lambda host, kind=kind, operation=operation: (_acl(kind, operation, host),))  # type: ignore[misc]
            add(
                f"all but {named}",
                lambda host, kind=kind, operation=operation: (  # type: ignore[misc]
                    *everything(host),
                    _acl(kind, operation, host, DENY),
                ),
            )
    return made


THIN = ("nothing", "everything", "TOPIC.DESCRIBE", "TOPIC.READ", "GROUP.READ", "all but TOPIC.READ", "CLUSTER.ALTER")
"""Enough to see that a check is made at all."""


# --- what is asked


class World:
    """What the requests of one broker are about; names that are made once are the same on every broker."""

    def __init__(self, owner: Link, topic_id: bytes, controller_port: int) -> None:
        self.owner = owner
        self.controller_port = controller_port
        self.topic_id = topic_id
        self._numbers = itertools.count()

    def fresh(self, what: str) -> str:
        return f"{what}-{next(self._numbers)}"

    def topic(self) -> tuple[str, bytes]:
        """A topic that may be deleted."""
        name = self.fresh("victim")
        made = self.owner.ask(k19.CreateTopicsRequest([k19.CreatableTopic(name, 1, 1)]), 7).topics[0]
        assert made.error_code == 0
        return name, made.topic_id


@dataclass(frozen=True)
class Case:
    """A request in a version, made for each asking."""

    name: str
    make: Callable[[World], Any]
    version: int


def always(request: Any) -> Callable[[World], Any]:
    """One request for every asking."""
    return lambda _: request


def cases() -> Iterator[Case]:
    yield from _records()
    yield from _topics()
    yield from _groups()
    yield from _transactions()
    yield from _configs()
    yield from _cluster()


def _records() -> Iterator[Case]:
    data = memoryview(bytes(build_batch([Record(0, now_ms(), None, b"x")])))
    for name in (HELD, ABSENT):
        part = [k00.PartitionProduceData(0, data)]
        topic = k00.TopicProduceData(name, bytes(16), part)
        yield Case(f"Produce {name}", always(k00.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic])), 9)
        read = k01.FetchTopic(name, bytes(16), [k01.FetchPartition(partition=0, partition_max_bytes=1 << 20)])

        fetch = k01.FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[read])
        yield Case(f"Fetch {name}", always(fetch), 12)
        listed = k02.ListOffsetsTopic(name, [k02.ListOffsetsPartition(0, timestamp=-1)])
        yield Case(f"ListOffsets {name}", always(k02.ListOffsetsRequest(replica_id=-1, topics=[listed])), 7)
        deleted = k21.DeleteRecordsTopic(name, [k21.DeleteRecordsPartition(0, 0)])
        yield Case(f"DeleteRecords {name}", always(k21.DeleteRecordsRequest([deleted], 5000)), 2)
        ended = k23.OffsetForLeaderTopic(name, [k23.OffsetForLeaderPartition(0)])
        yield Case(f"Epochs {name}", always(k23.OffsetForLeaderEpochRequest(topics=[ended])), 4)
        asked = k61.TopicRequest(name, [0])
        yield Case(f"DescribeProducers {name}", always(k61.DescribeProducersRequest([asked])), 0)
    record = [Record(0, now_ms(), None, b"x")]
    of_producer = build_batch(record, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    part = [k00.PartitionProduceData(0, memoryview(of_producer))]
    for transaction in (TRANSACTION, None):
        yield Case(
            f"Produce of transaction {transaction}",
            always(k00.ProduceRequest(transaction, -1, 5000, [k00.TopicProduceData(HELD, bytes(16), part)])),
            9,
        )
    by_id = [k00.PartitionProduceData(0, data)]
    yield Case(
        "Produce by id",
        lambda world: k00.ProduceRequest(None, 1, 5000, [k00.TopicProduceData("", world.topic_id, by_id)]),
        13,
    )
    unknown = k00.TopicProduceData("", ABSENT_ID, by_id)
    yield Case("Produce absent id", lambda _: k00.ProduceRequest(None, 1, 5000, [unknown]), 13)


def _topics() -> Iterator[Case]:
    for name in (HELD, ABSENT):
        named = k03.MetadataRequestTopic(name=name)
        yield Case(f"Metadata {name}", always(k03.MetadataRequest([named], False, False, True)), 12)
        part = k75.TopicRequest(name)
        yield Case(f"DescribeTopicPartitions {name}", always(k75.DescribeTopicPartitionsRequest([part])), 0)
        grown = k37.CreatePartitionsTopic(name, 5, None)
        yield Case(f"CreatePartitions {name}", always(k37.CreatePartitionsRequest([grown], 5000, True)), 3)
        made = k19.CreatableTopic(name, 1, 1)
        yield Case(f"CreateTopics {name}", always(k19.CreateTopicsRequest([made], 5000, True)), 7)
    yield Case("Metadata new", lambda world: k03.MetadataRequest([k03.MetadataRequestTopic(name=world.fresh(NEW))]), 12)
    absent = [k03.MetadataRequestTopic(ABSENT_ID, None)]
    yield Case("Metadata absent id", always(k03.MetadataRequest(absent, False)), 12)

    def metadata_by_id(world: World) -> Any:
        return k03.MetadataRequest([k03.MetadataRequestTopic(world.topic_id, None)], False)

    yield Case("Metadata by id", metadata_by_id, 12)
    yield Case("Metadata all", lambda _: k03.MetadataRequest(None, False), 12)
    yield Case("DescribeTopicPartitions all", lambda _: k75.DescribeTopicPartitionsRequest(), 0)

    def by_name(world: World) -> Any:
        return k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name=world.topic()[0])], timeout_ms=5000)

    def by_id(world: World) -> Any:
        state = k20.DeleteTopicState(name=None, topic_id=world.topic()[1])
        return k20.DeleteTopicsRequest(topics=[state], timeout_ms=5000)

    yield Case("DeleteTopics by name", by_name, 6)
    yield Case("DeleteTopics by id", by_id, 6)
    for state in (k20.DeleteTopicState(name=ABSENT), k20.DeleteTopicState(name=None, topic_id=ABSENT_ID)):
        yield Case(
            f"DeleteTopics absent {state.name}",
            always(k20.DeleteTopicsRequest(topics=[state], timeout_ms=5000)),
            6,
        )


def _joining(topic: str) -> Callable[[World], Any]:
    """A new member of a new group, with a subscription."""

    def make(world: World) -> Any:
        request = k68.ConsumerGroupHeartbeatRequest(world.fresh("group"), "AAAAAAAAAAAAAAAAAAAAAQ", 0)
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = [topic]
        request.topic_partitions = []
        return request

    return make


def _groups() -> Iterator[Case]:
    for name in (HELD, ABSENT):
        done = k08.OffsetCommitRequestTopic(name, bytes(16), [k08.OffsetCommitRequestPartition(0, 1)])
        yield Case(f"OffsetCommit {name}", always(k08.OffsetCommitRequest(GROUP, topics=[done])), 8)
        asked = k09.OffsetFetchRequestGroup(GROUP, topics=[k09.OffsetFetchRequestTopics(name, bytes(16), [0])])
        yield Case(f"OffsetFetch {name}", always(k09.OffsetFetchRequest(groups=[asked])), 8)
        gone = k47.OffsetDeleteRequestTopic(name, [k47.OffsetDeleteRequestPartition(7)])
        yield Case(f"OffsetDelete {name}", always(k47.OffsetDeleteRequest(GROUP, [gone])), 0)
        yield Case(f"ConsumerGroupHeartbeat {name}", _joining(name), 1)
    every = k09.OffsetFetchRequestGroup(GROUP, topics=None)
    yield Case("OffsetFetch all", lambda _: k09.OffsetFetchRequest(groups=[every]), 8)
    yield Case("FindCoordinator", lambda _: k10.FindCoordinatorRequest("", 0, [GROUP]), 4)
    yield Case("FindCoordinator of a transaction", lambda _: k10.FindCoordinatorRequest("", 1, [TRANSACTION]), 4)
    protocol = [k11.JoinGroupRequestProtocol("range", b"")]
    yield Case(
        "JoinGroup",
        lambda world: k11.JoinGroupRequest(world.fresh("joined"), 10_000, 10_000, "", None, "consumer", protocol),
        9,
    )
    yield Case("Heartbeat", lambda _: k12.HeartbeatRequest(GROUP, 1, "m"), 4)
    yield Case("LeaveGroup", lambda _: k13.LeaveGroupRequest(GROUP, members=[k13.MemberIdentity("m")]), 5)
    yield Case("SyncGroup", lambda _: k14.SyncGroupRequest(GROUP, 1, "m", None, "consumer", "range"), 5)
    yield Case("DescribeGroups", lambda _: k15.DescribeGroupsRequest([GROUP], True), 5)
    yield Case("ListGroups", lambda _: k16.ListGroupsRequest(), 4)
    yield Case("DeleteGroups", lambda _: k42.DeleteGroupsRequest(["no-group"]), 2)
    yield Case("ConsumerGroupDescribe", lambda _: k69.ConsumerGroupDescribeRequest(["no-group"], True), 1)


def _transactions() -> Iterator[Case]:
    yield Case("InitProducerId", lambda _: k22.InitProducerIdRequest(None, 60_000), 5)
    yield Case("InitProducerId of a transaction", lambda _: k22.InitProducerIdRequest(TRANSACTION, 60_000), 5)
    for name in (HELD, ABSENT):
        joined = [k24.AddPartitionsToTxnTopic(name, [0])]
        yield Case(
            f"AddPartitionsToTxn {name}",
            always(k24.AddPartitionsToTxnRequest([], TRANSACTION, 7, 0, joined)),
            3,
        )
        of_broker = k24.AddPartitionsToTxnTransaction(TRANSACTION, 7, 0, True, joined)
        yield Case(f"AddPartitionsToTxn {name} of brokers", always(k24.AddPartitionsToTxnRequest([of_broker])), 5)
        topic = k28.TxnOffsetCommitRequestTopic(name, bytes(16), [k28.TxnOffsetCommitRequestPartition(0, 1)])
        yield Case(
            f"TxnOffsetCommit {name}",
            always(k28.TxnOffsetCommitRequest(TRANSACTION, GROUP, 7, 0, topics=[topic])),
            3,
        )
    yield Case("AddOffsetsToTxn", lambda _: k25.AddOffsetsToTxnRequest(TRANSACTION, 7, 0, GROUP), 4)
    yield Case("EndTxn", lambda _: k26.EndTxnRequest(TRANSACTION, 7, 0, True), 4)
    yield Case("DescribeTransactions", lambda _: k65.DescribeTransactionsRequest([TRANSACTION]), 0)
    yield Case("ListTransactions", lambda _: k66.ListTransactionsRequest(), 0)


def _configs() -> Iterator[Case]:
    settings = {
        (TOPIC_CONFIG, HELD): "retention.ms",
        (TOPIC_CONFIG, ABSENT): "retention.ms",
        (BROKER_CONFIG, "1"): "log.retention.ms",
        (BROKER_CONFIG, ""): "log.retention.ms",
        (GROUP_CONFIG, GROUP): "consumer.session.timeout.ms",
        (METRICS_CONFIG, "m"): "interval.ms",
        (LOGGER_CONFIG, "1"): "root",
    }
    for (kind, name), setting in settings.items():
        described = k32.DescribeConfigsResource(kind, name, [setting])
        yield Case(f"DescribeConfigs {kind} {name}", always(k32.DescribeConfigsRequest([described])), 4)
        value = "INFO" if kind == LOGGER_CONFIG else "50000"
        one = k44.AlterConfigsResource(kind, name, [k44.AlterableConfig(setting, 0, value)])
        yield Case(
            f"IncrementalAlterConfigs {kind} {name}",
            always(k44.IncrementalAlterConfigsRequest([one], True)),
            1,
        )
        if kind != LOGGER_CONFIG:
            whole = k33.AlterConfigsResource(kind, name, [k33.AlterableConfig(setting, value)])
            yield Case(f"AlterConfigs {kind} {name}", always(k33.AlterConfigsRequest([whole], True)), 2)
    yield Case("ListConfigResources", lambda _: k74.ListConfigResourcesRequest(), 1)


def _cluster() -> Iterator[Case]:
    yield Case("DescribeAcls", lambda _: k29.DescribeAclsRequest(7, "none", 1, None, None, 1, 1), 3)
    yield Case("CreateAcls", lambda _: k30.CreateAclsRequest([_acl(ResourceType.TOPIC, ALL, OWNER)]), 3)
    found = k31.DeleteAclsFilter(7, "none", 1, None, None, 1, 1)
    yield Case("DeleteAcls", lambda _: k31.DeleteAclsRequest([found, found]), 3)
    nobody = k50.UserName("nobody")  # Kafka never answers a refused request for all of them
    yield Case("DescribeUserScramCredentials", always(k50.DescribeUserScramCredentialsRequest([nobody])), 0)
    deleted = k51.ScramCredentialDeletion("nobody", 1)
    yield Case("AlterUserScramCredentials", always(k51.AlterUserScramCredentialsRequest([deleted], [])), 0)
    yield Case("DescribeLogDirs", lambda _: k35.DescribeLogDirsRequest([]), 4)
    elected = [k43.TopicPartitions(HELD, [0]), k43.TopicPartitions(ABSENT, [0])]
    yield Case("ElectLeaders", lambda _: k43.ElectLeadersRequest(0, elected), 2)
    moved = k45.ReassignableTopic(ABSENT, [k45.ReassignablePartition(0, [1])])
    yield Case("AlterPartitionReassignments", lambda _: k45.AlterPartitionReassignmentsRequest(topics=[moved]), 0)
    yield Case("ListPartitionReassignments", lambda _: k46.ListPartitionReassignmentsRequest(), 0)
    quorum = k55.TopicData("__cluster_metadata", [k55.PartitionData(0)])
    yield Case("DescribeQuorum", lambda _: k55.DescribeQuorumRequest([quorum]), 2)
    raised = k57.FeatureUpdateKey("no.feature", 3)
    yield Case("UpdateFeatures", lambda _: k57.UpdateFeaturesRequest(5000, [raised], True), 1)
    yield Case("DescribeCluster", lambda _: k60.DescribeClusterRequest(True), 1)
    yield Case("UnregisterBroker", lambda _: k64.UnregisterBrokerRequest(99), 0)


# --- what is compared


NAMES = ("name", "topic_name", "group_id", "transactional_id", "resource_name")
BITS = ("cluster_authorized_operations", "topic_authorized_operations", "authorized_operations")


def _is_new(found: tuple[Any, ...]) -> bool:
    return any(
        field in NAMES and value.startswith(NEW) for field, value in found if isinstance(value, str)
    ) and not any(field == "error_code" for field, _ in found)


def seen(answer: Any) -> tuple[Any, ...]:
    """The error codes, names and authorized operations of an answer; the elements of a list in an order of ours.

    What is of no right is left out: topics that are made by being asked for, at the pace of each broker, and settings.
    """
    if isinstance(answer, list):
        return tuple(sorted(inside for each in answer if (inside := seen(each)) and not _is_new(inside)))
    if not hasattr(type(answer), "__match_args__"):
        return ()
    found: list[tuple[str, Any]] = []
    for field in type(answer).__match_args__:
        value = getattr(answer, field)
        if field == "configs":
            continue
        if field in NAMES or field in BITS or (field.endswith("error_code") and value):
            found.append((field, "" if value is None else value))
        elif inner := seen(value):
            found.append((field, inner))
    return tuple(found)
