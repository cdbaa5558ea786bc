"""What a client asks that may do nothing, for every API that is served, and the error codes that it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
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

TOPIC, GROUP = "held", "held-group"
"""What is there already; the client learns nothing of it."""
LATEST = 1 << 15
BROKER_CONFIG, TOPIC_CONFIG, GROUP_CONFIG = 4, 2, 32

NO_TOPIC = (ErrorCode.TOPIC_AUTHORIZATION_FAILED,)
NO_GROUP = (ErrorCode.GROUP_AUTHORIZATION_FAILED,)
NO_CLUSTER = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED,)
NO_TRANSACTION = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,)
LEFT_OUT: tuple[ErrorCode, ...] = ()
"""No error: what the client may not see is not in the answer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request, in the versions from `first` to `last`, and every error code of its answer, in their order."""

    request: Any
    codes: tuple[ErrorCode, ...]
    first: int = 0
    last: int = LATEST

    def versions(self) -> range:
        api = APIS[self.request.API_KEY]
        return range(max(self.first, api.min_version), min(self.last, api.max_version) + 1)


def refusals(topic_id: bytes) -> list[Refusal]:
    """`topic_id` is that of `TOPIC`."""
    return [
        *_records(topic_id),
        *_transactions(),
        *_groups(topic_id),
        *_topics(topic_id),
        *_configs(),
        *_acls(),
        *_cluster(),
    ]


def _records(topic_id: bytes) -> Iterator[Refusal]:
    data = memoryview(bytes(build_batch([Record(0, 1_700_000_000_000, None, b"x")])))
    produced = k00.TopicProduceData(TOPIC, topic_id, [k00.PartitionProduceData(0, data)])
    for acks in (1, -1):
        yield Refusal(k00.ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[produced]), NO_TOPIC, first=3)
    fetched = k01.FetchTopic(TOPIC, topic_id, [k01.FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    for epoch in (-1, 0):
        request = k01.FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=1 << 20, session_epoch=epoch)
        request.topics = [fetched]
        yield Refusal(request, NO_TOPIC)
    for timestamp in (-1, 0):
        listed = k02.ListOffsetsTopic(TOPIC, [k02.ListOffsetsPartition(0, timestamp=timestamp)])
        yield Refusal(k02.ListOffsetsRequest(replica_id=-1, topics=[listed]), NO_TOPIC)
    deleted = k21.DeleteRecordsTopic(TOPIC, [k21.DeleteRecordsPartition(0, -1)])
    yield Refusal(k21.DeleteRecordsRequest([deleted], 5000), NO_TOPIC)
    ended = k23.OffsetForLeaderTopic(TOPIC, [k23.OffsetForLeaderPartition(0)])
    yield Refusal(k23.OffsetForLeaderEpochRequest(topics=[ended]), NO_TOPIC)
    yield Refusal(k61.DescribeProducersRequest([k61.TopicRequest(TOPIC, [0])]), NO_TOPIC)
    ends = k27.WritableTxnMarker(7, 0, True, [k27.WritableTxnMarkerTopic(TOPIC, [0])])
    yield Refusal(k27.WriteTxnMarkersRequest([ends]), NO_CLUSTER)
    yield Refusal(k22.InitProducerIdRequest(None, 60_000), NO_CLUSTER)
    yield Refusal(k22.InitProducerIdRequest("t", 60_000), NO_TRANSACTION)


def _transactions() -> Iterator[Refusal]:
    joined = [k24.AddPartitionsToTxnTopic(TOPIC, [0, 1])]
    yield Refusal(k24.AddPartitionsToTxnRequest([], "t", 7, 0, joined), 2 * NO_TRANSACTION, last=3)
    of_broker = k24.AddPartitionsToTxnTransaction("t", 7, 0, False, joined)
    yield Refusal(k24.AddPartitionsToTxnRequest([of_broker]), NO_CLUSTER, first=4)
    yield Refusal(k25.AddOffsetsToTxnRequest("t", 7, 0, GROUP), NO_TRANSACTION)
    yield Refusal(k26.EndTxnRequest("t", 7, 0, True), NO_TRANSACTION)
    yield Refusal(k65.DescribeTransactionsRequest(["t"]), NO_TRANSACTION)
    yield Refusal(k66.ListTransactionsRequest(), LEFT_OUT)


def _groups(topic_id: bytes) -> Iterator[Refusal]:
    committed = k08.OffsetCommitRequestTopic(TOPIC, topic_id, [k08.OffsetCommitRequestPartition(0, 1)])
    yield Refusal(k08.OffsetCommitRequest(GROUP, topics=[committed]), NO_GROUP)
    pending = k28.TxnOffsetCommitRequestTopic(TOPIC, topic_id, [k28.TxnOffsetCommitRequestPartition(0, 1)])
    yield Refusal(k28.TxnOffsetCommitRequest("t", GROUP, 7, 0, topics=[pending]), NO_TRANSACTION)
    asked = k09.OffsetFetchRequestGroup(GROUP, topics=[k09.OffsetFetchRequestTopics(TOPIC, topic_id, [0])])
    yield Refusal(k09.OffsetFetchRequest(GROUP, [k09.OffsetFetchRequestTopic(TOPIC, [0])]), NO_GROUP, last=7)
    yield Refusal(k09.OffsetFetchRequest(groups=[asked]), NO_GROUP, first=8)
    yield Refusal(k10.FindCoordinatorRequest(GROUP), NO_GROUP, last=3)
    yield Refusal(k10.FindCoordinatorRequest("t", 1), NO_TRANSACTION, first=1, last=3)
    yield Refusal(k10.FindCoordinatorRequest("", 0, [GROUP, "other"]), 2 * NO_GROUP, first=4)
    yield Refusal(k10.FindCoordinatorRequest("", 1, ["t"]), NO_TRANSACTION, first=4)
    shared = f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAQ:0"
    yield Refusal(k10.FindCoordinatorRequest("", 2, [shared]), (ErrorCode.INVALID_REQUEST,), first=4, last=5)
    yield Refusal(k10.FindCoordinatorRequest("", 2, [shared]), NO_CLUSTER, first=6)
    protocol = k11.JoinGroupRequestProtocol("range", b"")
    yield Refusal(k11.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", [protocol]), NO_GROUP)
    yield Refusal(k12.HeartbeatRequest(GROUP, 1, "m"), NO_GROUP)
    yield Refusal(k13.LeaveGroupRequest(GROUP, "m"), NO_GROUP, last=2)
    yield Refusal(k13.LeaveGroupRequest(GROUP, members=[k13.MemberIdentity("m")]), NO_GROUP, first=3)
    yield Refusal(k14.SyncGroupRequest(GROUP, 1, "m"), NO_GROUP, last=4)
    yield Refusal(k14.SyncGroupRequest(GROUP, 1, "m", None, "consumer", "range"), NO_GROUP, first=5)
    yield Refusal(k15.DescribeGroupsRequest([GROUP, "other"]), 2 * NO_GROUP)
    yield Refusal(k16.ListGroupsRequest(), LEFT_OUT)
    yield Refusal(k42.DeleteGroupsRequest([GROUP, "other"]), 2 * NO_GROUP)
    offset = k47.OffsetDeleteRequestTopic(TOPIC, [k47.OffsetDeleteRequestPartition(0)])
    yield Refusal(k47.OffsetDeleteRequest(GROUP, [offset]), NO_GROUP)
    yield Refusal(k68.ConsumerGroupHeartbeatRequest(GROUP, "m", 0, subscribed_topic_names=[TOPIC]), NO_GROUP)
    yield Refusal(k69.ConsumerGroupDescribeRequest([GROUP, "other"]), 2 * NO_GROUP)


def _topics(topic_id: bytes) -> Iterator[Refusal]:
    yield Refusal(k03.MetadataRequest([k03.MetadataRequestTopic(name=TOPIC)]), NO_TOPIC)
    yield Refusal(k03.MetadataRequest([k03.MetadataRequestTopic(name="new")], True), NO_TOPIC)
    yield Refusal(k03.MetadataRequest(None), LEFT_OUT, first=1)
    yield Refusal(k03.MetadataRequest([k03.MetadataRequestTopic(topic_id, None)]), NO_TOPIC, first=12)
    yield Refusal(k75.DescribeTopicPartitionsRequest([k75.TopicRequest(TOPIC)]), NO_TOPIC)
    yield Refusal(k75.DescribeTopicPartitionsRequest(), LEFT_OUT)
    yield Refusal(k19.CreateTopicsRequest([k19.CreatableTopic("new", 1, 1)]), NO_TOPIC)
    yield Refusal(k20.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5000), NO_TOPIC, last=5)
    for state in (k20.DeleteTopicState(name=TOPIC), k20.DeleteTopicState(name=None, topic_id=topic_id)):
        yield Refusal(k20.DeleteTopicsRequest(topics=[state], timeout_ms=5000), NO_TOPIC, first=6)
    grown = k37.CreatePartitionsTopic(TOPIC, 3, None)
    yield Refusal(k37.CreatePartitionsRequest([grown], 5000), NO_TOPIC)


def _configs() -> Iterator[Refusal]:
    kinds = ((TOPIC_CONFIG, TOPIC, NO_TOPIC), (BROKER_CONFIG, "1", NO_CLUSTER), (GROUP_CONFIG, GROUP, NO_GROUP))
    for kind, name, codes in kinds:
        yield Refusal(k32.DescribeConfigsRequest([k32.DescribeConfigsResource(kind, name, None)]), codes)
        yield Refusal(k33.AlterConfigsRequest([k33.AlterConfigsResource(kind, name)]), codes)
        setting = k44.AlterableConfig("retention.ms", 0, "1")
        one = k44.AlterConfigsResource(kind, name, [setting])
        yield Refusal(k44.IncrementalAlterConfigsRequest([one]), codes)
    yield Refusal(k74.ListConfigResourcesRequest(), NO_CLUSTER)


def _acls() -> Iterator[Refusal]:
    yield Refusal(k29.DescribeAclsRequest(1, None, 1, None, None, 1, 1), NO_CLUSTER)
    stored = k30.AclCreation(2, TOPIC, 3, "User:ANONYMOUS", "*", 2, 3)
    yield Refusal(k30.CreateAclsRequest([stored, stored]), 2 * NO_CLUSTER)
    found = k31.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    yield Refusal(k31.DeleteAclsRequest([found, found]), 2 * NO_CLUSTER)


def _cluster() -> Iterator[Refusal]:
    moved = k34.AlterReplicaLogDir("/tmp", [k34.AlterReplicaLogDirTopic(TOPIC, [0, 1])])
    yield Refusal(k34.AlterReplicaLogDirsRequest([moved]), 2 * NO_CLUSTER)
    yield Refusal(k35.DescribeLogDirsRequest(None), LEFT_OUT, last=2)
    yield Refusal(k35.DescribeLogDirsRequest(None), NO_CLUSTER, first=3)
    elected = k43.ElectLeadersRequest(0, [k43.TopicPartitions(TOPIC, [0])])
    yield Refusal(elected, NO_CLUSTER, last=0)
    yield Refusal(elected, 2 * NO_CLUSTER, first=1)
    reassigned = k45.ReassignableTopic(TOPIC, [k45.ReassignablePartition(0, [1])])
    yield Refusal(k45.AlterPartitionReassignmentsRequest(topics=[reassigned]), 2 * NO_CLUSTER)
    yield Refusal(k46.ListPartitionReassignmentsRequest(), NO_CLUSTER)
    yield Refusal(k48.DescribeClientQuotasRequest(), NO_CLUSTER)
    entity = [k49.EntityData("user", "ann")]
    yield Refusal(
        k49.AlterClientQuotasRequest([k49.EntryData(entity, [k49.OpData("request_percentage", 1.0)])]), NO_CLUSTER
    )
    quorum = k55.TopicData("__cluster_metadata", [k55.PartitionData(0)])
    yield Refusal(k50.DescribeUserScramCredentialsRequest([k50.UserName("ann")]), 2 * NO_CLUSTER)
    gone, made = k51.ScramCredentialDeletion("ann", 1), k51.ScramCredentialUpsertion("bob", 1, 4096, b"s", bytes(32))
    yield Refusal(k51.AlterUserScramCredentialsRequest([gone], [made]), 2 * NO_CLUSTER)
    yield Refusal(k55.DescribeQuorumRequest([quorum]), NO_CLUSTER)
    yield Refusal(k57.UpdateFeaturesRequest(feature_updates=[k57.FeatureUpdateKey("metadata.version", 30)]), NO_CLUSTER)
    yield Refusal(k64.UnregisterBrokerRequest(1), NO_CLUSTER)
    yield Refusal(k80.AddRaftVoterRequest(voter_id=1, voter_directory_id=bytes(16)), NO_CLUSTER)
    yield Refusal(k81.RemoveRaftVoterRequest(voter_id=1, voter_directory_id=bytes(16)), NO_CLUSTER)
    yield Refusal(k60.DescribeClusterRequest(include_cluster_authorized_operations=True), LEFT_OUT)
    yield Refusal(k18.ApiVersionsRequest("t", "1"), LEFT_OUT)
    no_login = (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,)
    yield Refusal(k38.CreateDelegationTokenRequest(max_lifetime_ms=-1), no_login)
    yield Refusal(k39.RenewDelegationTokenRequest(b"hmac", -1), no_login)
    yield Refusal(k40.ExpireDelegationTokenRequest(b"hmac", -1), no_login)
    yield Refusal(k41.DescribeDelegationTokenRequest(None), no_login)
    no_time = (ErrorCode.ILLEGAL_SASL_STATE,)
    yield Refusal(k17.SaslHandshakeRequest("PLAIN"), no_time)
    yield Refusal(k36.SaslAuthenticateRequest(b""), no_time)


def codes_of(answer: Any) -> tuple[int, ...]:
    """The error codes of an answer other than NONE, in their order."""
    if isinstance(answer, list):
        return tuple(code for each in answer for code in codes_of(each))
    if not hasattr(type(answer), "__match_args__"):
        return ()
    found: tuple[int, ...] = ()
    for field in type(answer).__match_args__:
        value = getattr(answer, field)
        if field not in ("error_code", "partition_error_code"):
            found += codes_of(value)
        elif value:
            found += (value,)
    return found


SERVED_KEYS = frozenset(ApiKey(refusal.request.API_KEY) for refusal in refusals(bytes(16)))
"""The APIs that the requests are of."""
