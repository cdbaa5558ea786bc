"""What the clients of a broker ask, in every version of every API: requests that show what a right allows, and change
nothing but what belongs to the one who asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.security.authorizer import ResourceType
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
from headrace.wire.messages import k17_sasl_handshake as k17
from headrace.wire.messages import k18_api_versions as k18
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages import k20_delete_topics as k20
from headrace.wire.messages import k21_delete_records as k21
from headrace.wire.messages import k22_init_producer_id as k22
from headrace.wire.messages import k23_offset_for_leader_epoch as k23
from headrace.wire.messages import k24_add_partitions_to_txn as k24
from headrace.wire.messages import k25_add_offsets_to_txn as k25
from headrace.wire.messages import k26_end_txn as k26
from headrace.wire.messages import k27_write_txn_markers as k27
from headrace.wire.messages import k28_txn_offset_commit as k28
from headrace.wire.messages import k29_describe_acls as k29
from headrace.wire.messages import k30_create_acls as k30
from headrace.wire.messages import k31_delete_acls as k31
from headrace.wire.messages import k32_describe_configs as k32
from headrace.wire.messages import k33_alter_configs as k33
from headrace.wire.messages import k34_alter_replica_log_dirs as k34
from headrace.wire.messages import k35_describe_log_dirs as k35
from headrace.wire.messages import k36_sasl_authenticate as k36
from headrace.wire.messages import k37_create_partitions as k37
from headrace.wire.messages import k38_create_delegation_token as k38
from headrace.wire.messages import k39_renew_delegation_token as k39
from headrace.wire.messages import k40_expire_delegation_token as k40
from headrace.wire.messages import k41_describe_delegation_token as k41
from headrace.wire.messages import k42_delete_groups as k42
from headrace.wire.messages import k43_elect_leaders as k43
from headrace.wire.messages import k44_incremental_alter_configs as k44
from headrace.wire.messages import k45_alter_partition_reassignments as k45
from headrace.wire.messages import k46_list_partition_reassignments as k46
from headrace.wire.messages import k47_offset_delete as k47
from headrace.wire.messages import k48_describe_client_quotas as k48
from headrace.wire.messages import k49_alter_client_quotas as k49
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
from headrace.wire.messages import k80_add_raft_voter as k80
from headrace.wire.messages import k81_remove_raft_voter as k81
from headrace.wire.records import Record, build_batch

from .rights import (
    ABSENT,
    ABSENT_ID,
    ALL,
    BROKER_CONFIG,
    GROUP,
    GROUP_CONFIG,
    HELD,
    LOGGER_CONFIG,
    METRICS_CONFIG,
    NEW,
    OTHER_CLUSTER,
    OWNER,
    ROOT,
    TOPIC_CONFIG,
    TRANSACTION,
    Case,
    World,
    acl,
    always,
    now_ms,
)

REPLICA = 99
"""A broker that does not exist."""
PRODUCER = 7
"""A producer id that nobody was given in a transaction."""


def cases() -> Iterator[Case]:
    """Of all APIs of a broker's listener."""
    for name in (HELD, ABSENT):
        yield from _records(name)
        yield from _topics(name)
        yield from _groups(name)
        yield from _transactions(name)
    yield from _batches()
    yield from _every_group()
    yield from _every_transaction()
    yield from _configs()
    yield from _acls()
    yield from _users()
    yield from _tokens()
    yield from _replicas()
    yield from _cluster()
    yield from _voters()
    yield from _every_topic()
    yield from _deletions()


def _records(name: str) -> Iterator[Case]:
    data = memoryview(bytes(build_batch([Record(0, now_ms(), None, b"x")])))

    def produce(world: World) -> Any:
        topic = k00.TopicProduceData(name, world.id_of(name), [k00.PartitionProduceData(0, data)])
        return k00.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic])

    def fetch(world: World) -> Any:
        part = [k01.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
        read = [k01.FetchTopic(name, world.id_of(name), part)]
        return k01.FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=read)

    def follow(world: World) -> Any:
        request = fetch(world)
        request.replica_id = REPLICA
        return request

    def follow_by_state(world: World) -> Any:
        request = fetch(world)
        request.replica_state = k01.ReplicaState(REPLICA, 1)
        return request

    yield Case(f"Produce {name}", produce)
    yield Case(f"Fetch {name}", fetch)
    yield Case(f"Fetch {name} as a follower", follow, last=14)
    yield Case(f"Fetch {name} as a follower", follow_by_state, first=15)
    for asker in (-1, REPLICA):
        listed = k02.ListOffsetsTopic(name, [k02.ListOffsetsPartition(0, timestamp=-1)])
        request = k02.ListOffsetsRequest(replica_id=asker, topics=[listed])
        yield Case(f"ListOffsets {name} of {asker}", always(request))
    deleted = k21.DeleteRecordsTopic(name, [k21.DeleteRecordsPartition(0, 0)])
    yield Case(f"DeleteRecords {name}", always(k21.DeleteRecordsRequest([deleted], 5000)))
    ended = k23.OffsetForLeaderTopic(name, [k23.OffsetForLeaderPartition(0)])
    yield Case(f"Epochs {name}", always(k23.OffsetForLeaderEpochRequest(topics=[ended])))
    of_replica = k23.OffsetForLeaderEpochRequest(replica_id=REPLICA, topics=[ended])
    yield Case(f"Epochs {name} of a follower", always(of_replica), first=3)
    yield Case(f"DescribeProducers {name}", always(k61.DescribeProducersRequest([k61.TopicRequest(name, [0])])))


def _batches() -> Iterator[Case]:
    """Batches of transactions, which nobody began."""
    record = [Record(0, now_ms(), None, b"x")]
    batch = build_batch(record, producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
    part = [k00.PartitionProduceData(0, memoryview(batch))]
    for transaction in (TRANSACTION, None):

        def produce(world: World, transaction: str | None = transaction) -> Any:
            data = [k00.TopicProduceData(HELD, world.topic_id, part)]
            return k00.ProduceRequest(transaction, -1, 5000, data)

        yield Case(f"Produce of transaction {transaction}", produce)


def _topics(name: str) -> Iterator[Case]:
    named = [k03.MetadataRequestTopic(name=name)]
    if name == HELD:  # others would be made by being asked for, before version 4
        yield Case(f"Metadata {name}", always(k03.MetadataRequest(named)), last=7)
    yield Case(f"Metadata {name} without making it", always(k03.MetadataRequest(named, False)), first=4)
    with_bits = k03.MetadataRequest(named, False, False, True)
    yield Case(f"Metadata {name} with rights", always(with_bits), first=8)
    with_all = k03.MetadataRequest(named, False, True, True)
    yield Case(f"Metadata {name} with all rights", always(with_all), first=8, last=10)
    part = k75.TopicRequest(name)
    yield Case(f"DescribeTopicPartitions {name}", always(k75.DescribeTopicPartitionsRequest([part])))
    grown = k37.CreatePartitionsTopic(name, 5, None)
    yield Case(f"CreatePartitions {name}", always(k37.CreatePartitionsRequest([grown], 5000, True)))
    made = k19.CreatableTopic(name, 1, 1)
    yield Case(f"CreateTopics {name}", always(k19.CreateTopicsRequest([made], 5000, True)))


def _every_topic() -> Iterator[Case]:
    def new(world: World) -> Any:
        return k03.MetadataRequest([k03.MetadataRequestTopic(name=world.fresh(NEW))])

    for version in (0, 3, 4, 13):  # each makes topics; what differs between versions is asked of topics that are there
        yield Case("Metadata new", new, first=version, last=version)
    yield Case("Metadata all", always(k03.MetadataRequest([])), last=0)
    yield Case("Metadata all", always(k03.MetadataRequest(None)), first=1, last=3)
    yield Case("Metadata all", always(k03.MetadataRequest(None, False)), first=4)
    absent = [k03.MetadataRequestTopic(ABSENT_ID, None)]
    yield Case("Metadata absent id", always(k03.MetadataRequest(absent, False)), first=12)

    def by_id(world: World) -> Any:
        return k03.MetadataRequest([k03.MetadataRequestTopic(world.topic_id, None)], False)

    yield Case("Metadata by id", by_id, first=12)
    yield Case("DescribeTopicPartitions all", always(k75.DescribeTopicPartitionsRequest()))


def _deletions() -> Iterator[Case]:
    def by_names(world: World) -> Any:
        return k20.DeleteTopicsRequest(topic_names=[world.topic()[0]], timeout_ms=5000)

    def by_name(world: World) -> Any:
        return k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name=world.topic()[0])], timeout_ms=5000)

    def by_id(world: World) -> Any:
        state = k20.DeleteTopicState(name=None, topic_id=world.topic()[1])
        return k20.DeleteTopicsRequest(topics=[state], timeout_ms=5000)

    yield Case("DeleteTopics by name", by_names, last=5)
    yield Case("DeleteTopics by name", by_name, first=6)
    yield Case("DeleteTopics by id", by_id, first=6)
    yield Case("DeleteTopics absent", always(k20.DeleteTopicsRequest(topic_names=[ABSENT], timeout_ms=5000)), last=5)
    for state in (k20.DeleteTopicState(name=ABSENT), k20.DeleteTopicState(name=None, topic_id=ABSENT_ID)):
        request = k20.DeleteTopicsRequest(topics=[state], timeout_ms=5000)
        yield Case(f"DeleteTopics absent {state.name}", always(request), first=6)


def _groups(name: str) -> Iterator[Case]:
    def commit(world: World) -> Any:
        done = k08.OffsetCommitRequestTopic(name, world.id_of(name), [k08.OffsetCommitRequestPartition(0, 1)])
        return k08.OffsetCommitRequest(GROUP, topics=[done])

    def fetch(world: World) -> Any:
        topics = [k09.OffsetFetchRequestTopics(name, world.id_of(name), [0])]
        return k09.OffsetFetchRequest(groups=[k09.OffsetFetchRequestGroup(GROUP, topics=topics)])

    def join(world: World, regex: str | None = None) -> Any:
        """A new member of a new group, with a subscription."""
        request = k68.ConsumerGroupHeartbeatRequest(world.fresh("group"), "AAAAAAAAAAAAAAAAAAAAAQ", 0)
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = [name]
        request.subscribed_topic_regex = regex
        request.topic_partitions = []
        return request

    yield Case(f"OffsetCommit {name}", commit)
    one = k09.OffsetFetchRequest(GROUP, [k09.OffsetFetchRequestTopic(name, [0])])
    yield Case(f"OffsetFetch {name}", always(one), last=7)
    yield Case(f"OffsetFetch {name}", fetch, first=8)
    gone = k47.OffsetDeleteRequestTopic(name, [k47.OffsetDeleteRequestPartition(7)])
    yield Case(f"OffsetDelete {name}", always(k47.OffsetDeleteRequest(GROUP, [gone])))
    yield Case(f"ConsumerGroupHeartbeat {name}", join)
    yield Case(f"ConsumerGroupHeartbeat {name} and others", lambda world: join(world, "h.*"), first=1)


def _every_group() -> Iterator[Case]:
    yield Case("OffsetFetch all", always(k09.OffsetFetchRequest(GROUP, None)), first=2, last=7)
    every = k09.OffsetFetchRequestGroup(GROUP, topics=None)
    yield Case("OffsetFetch all", always(k09.OffsetFetchRequest(groups=[every])), first=8)
    yield Case("FindCoordinator", always(k10.FindCoordinatorRequest(GROUP)), last=3)
    yield Case("FindCoordinator", always(k10.FindCoordinatorRequest("", 0, [GROUP])), first=4)
    transaction = "FindCoordinator of a transaction"
    yield Case(transaction, always(k10.FindCoordinatorRequest(TRANSACTION, 1)), first=1, last=3)
    yield Case(transaction, always(k10.FindCoordinatorRequest("", 1, [TRANSACTION])), first=4)
    protocol = [k11.JoinGroupRequestProtocol("range", b"")]
    yield Case(
        "JoinGroup",
        lambda world: k11.JoinGroupRequest(world.fresh("joined"), 10_000, -1, "", None, "consumer", protocol),
        last=0,
    )
    yield Case(
        "JoinGroup",
        lambda world: k11.JoinGroupRequest(world.fresh("joined"), 10_000, 10_000, "", None, "consumer", protocol),
        first=1,
    )
    yield Case("Heartbeat", always(k12.HeartbeatRequest(GROUP, 1, "m")))
    yield Case("LeaveGroup", always(k13.LeaveGroupRequest(GROUP, "m")), last=2)
    yield Case("LeaveGroup", always(k13.LeaveGroupRequest(GROUP, members=[k13.MemberIdentity("m")])), first=3)
    yield Case("SyncGroup", always(k14.SyncGroupRequest(GROUP, 1, "m")), last=4)
    yield Case("SyncGroup", always(k14.SyncGroupRequest(GROUP, 1, "m", None, "consumer", "range")), first=5)
    yield Case("DescribeGroups", always(k15.DescribeGroupsRequest([GROUP])))
    yield Case("DescribeGroups with rights", always(k15.DescribeGroupsRequest([GROUP], True)), first=3)
    yield Case("ListGroups", always(k16.ListGroupsRequest()))
    yield Case("DeleteGroups", always(k42.DeleteGroupsRequest(["no-group"])))
    yield Case("ConsumerGroupDescribe", always(k69.ConsumerGroupDescribeRequest(["no-group"], True)))


def _transactions(name: str) -> Iterator[Case]:
    joined = [k24.AddPartitionsToTxnTopic(name, [0])]
    request = k24.AddPartitionsToTxnRequest([], TRANSACTION, PRODUCER, 0, joined)
    yield Case(f"AddPartitionsToTxn {name}", always(request), last=3)
    of_broker = k24.AddPartitionsToTxnTransaction(TRANSACTION, PRODUCER, 0, True, joined)
    of_brokers = k24.AddPartitionsToTxnRequest([of_broker])
    yield Case(f"AddPartitionsToTxn {name} of brokers", always(of_brokers), first=4)

    def commit(world: World) -> Any:
        part = [k28.TxnOffsetCommitRequestPartition(0, 1)]
        topic = k28.TxnOffsetCommitRequestTopic(name, world.id_of(name), part)
        return k28.TxnOffsetCommitRequest(TRANSACTION, GROUP, PRODUCER, 0, topics=[topic])

    yield Case(f"TxnOffsetCommit {name}", commit)


def _every_transaction() -> Iterator[Case]:
    yield Case("InitProducerId", always(k22.InitProducerIdRequest(None, 60_000)))
    yield Case("InitProducerId of a transaction", always(k22.InitProducerIdRequest(TRANSACTION, 60_000)))
    yield Case("AddOffsetsToTxn", always(k25.AddOffsetsToTxnRequest(TRANSACTION, PRODUCER, 0, GROUP)))
    yield Case("EndTxn", always(k26.EndTxnRequest(TRANSACTION, PRODUCER, 0, True)))
    yield Case("DescribeTransactions", always(k65.DescribeTransactionsRequest([TRANSACTION])))
    yield Case("ListTransactions", always(k66.ListTransactionsRequest()))
    marker = k27.WritableTxnMarker(PRODUCER, 0, False, [k27.WritableTxnMarkerTopic(ABSENT, [0])])
    yield Case("WriteTxnMarkers", always(k27.WriteTxnMarkersRequest([marker])))


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
        yield Case(f"DescribeConfigs {kind} {name}", always(k32.DescribeConfigsRequest([described])))
        value = "INFO" if kind == LOGGER_CONFIG else "50000"
        one = k44.AlterConfigsResource(kind, name, [k44.AlterableConfig(setting, 0, value)])
        request = k44.IncrementalAlterConfigsRequest([one], True)
        yield Case(f"IncrementalAlterConfigs {kind} {name}", always(request))
        if kind != LOGGER_CONFIG:
            whole = k33.AlterConfigsResource(kind, name, [k33.AlterableConfig(setting, value)])
            yield Case(f"AlterConfigs {kind} {name}", always(k33.AlterConfigsRequest([whole], True)))
    yield Case("ListConfigResources", always(k74.ListConfigResourcesRequest()))


def _acls() -> Iterator[Case]:
    yield Case("DescribeAcls", always(k29.DescribeAclsRequest(7, "none", 1, None, None, 1, 1)))
    yield Case("CreateAcls", always(k30.CreateAclsRequest([acl(ResourceType.TOPIC, ALL, OWNER)])))
    found = k31.DeleteAclsFilter(7, "none", 1, None, None, 1, 1)
    yield Case("DeleteAcls", always(k31.DeleteAclsRequest([found, found])))


def _users() -> Iterator[Case]:
    nobody = k50.UserName("nobody")  # Kafka never answers a refused request for all of them
    yield Case("DescribeUserScramCredentials", always(k50.DescribeUserScramCredentialsRequest([nobody])))
    deleted = k51.ScramCredentialDeletion("nobody", 1)
    yield Case("AlterUserScramCredentials", always(k51.AlterUserScramCredentialsRequest([deleted], [])))
    yield Case("DescribeClientQuotas", always(k48.DescribeClientQuotasRequest()))
    quota = k49.EntryData([k49.EntityData("user", "nobody")], [k49.OpData("request_percentage", 1.0)])
    yield Case("AlterClientQuotas", always(k49.AlterClientQuotasRequest([quota], True)))


def _tokens() -> Iterator[Case]:
    for hmac in (b"", b"none"):

        def renew(world: World, hmac: bytes = hmac) -> Any:
            return k39.RenewDelegationTokenRequest(hmac or world.token, -1)

        def expire(world: World, hmac: bytes = hmac) -> Any:
            return k40.ExpireDelegationTokenRequest(hmac or world.token, 3_600_000)

        yield Case(f"RenewDelegationToken {hmac!r}", renew)
        yield Case(f"ExpireDelegationToken {hmac!r}", expire)
    yield Case("DescribeDelegationToken all", always(k41.DescribeDelegationTokenRequest(None)))
    owners = [k41.DescribeDelegationTokenOwner("User", ROOT)]
    yield Case("DescribeDelegationToken", always(k41.DescribeDelegationTokenRequest(owners)))
    # After the tokens are described: Kafka's broker hears of a new one a moment after it was told that it is made.
    yield Case("CreateDelegationToken", always(k38.CreateDelegationTokenRequest(max_lifetime_ms=-1)), last=2)
    own = k38.CreateDelegationTokenRequest("", "", max_lifetime_ms=-1)
    yield Case("CreateDelegationToken", always(own), first=3)
    of_root = k38.CreateDelegationTokenRequest("User", ROOT, max_lifetime_ms=-1)
    yield Case("CreateDelegationToken of another", always(of_root), first=3)
    yield Case("SaslHandshake", always(k17.SaslHandshakeRequest("PLAIN")))
    yield Case("SaslAuthenticate", always(k36.SaslAuthenticateRequest(b"")))
    yield Case("ApiVersions", always(k18.ApiVersionsRequest()), last=2)
    yield Case("ApiVersions", always(k18.ApiVersionsRequest("tests", "1")), first=3)


def _replicas() -> Iterator[Case]:
    moved_to = k34.AlterReplicaLogDir("/nowhere", [k34.AlterReplicaLogDirTopic(HELD, [0])])
    yield Case("AlterReplicaLogDirs", always(k34.AlterReplicaLogDirsRequest([moved_to])))
    yield Case("DescribeLogDirs", always(k35.DescribeLogDirsRequest([])))
    elected = [k43.TopicPartitions(HELD, [0]), k43.TopicPartitions(ABSENT, [0])]
    yield Case("ElectLeaders", always(k43.ElectLeadersRequest(0, elected)))
    moved = k45.ReassignableTopic(ABSENT, [k45.ReassignablePartition(0, [1])])
    yield Case("AlterPartitionReassignments", always(k45.AlterPartitionReassignmentsRequest(topics=[moved])))
    yield Case("ListPartitionReassignments", always(k46.ListPartitionReassignmentsRequest()))


def _cluster() -> Iterator[Case]:
    quorum = k55.TopicData("__cluster_metadata", [k55.PartitionData(0)])
    yield Case("DescribeQuorum", always(k55.DescribeQuorumRequest([quorum])))
    raised = k57.FeatureUpdateKey("no.feature", 3)
    yield Case("UpdateFeatures", always(k57.UpdateFeaturesRequest(5000, [raised])), last=0)
    yield Case("UpdateFeatures", always(k57.UpdateFeaturesRequest(5000, [raised], True)), first=1)
    yield Case("DescribeCluster", always(k60.DescribeClusterRequest(True)))
    yield Case("UnregisterBroker", always(k64.UnregisterBrokerRequest(REPLICA)))


def _voters() -> Iterator[Case]:
    """Of another cluster: nothing changes."""
    added = k80.AddRaftVoterRequest(OTHER_CLUSTER, 1000, REPLICA, b"\x01" * 16)
    yield Case("AddRaftVoter", always(added))
    removed = k81.RemoveRaftVoterRequest(OTHER_CLUSTER, REPLICA, b"\x01" * 16)
    yield Case("RemoveRaftVoter", always(removed))
