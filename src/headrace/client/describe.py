"""What a cluster is made of: brokers, quorum, log directories, features, producers. All of it only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.client.conversation import Steps
from headrace.client.errors import BrokerError
from headrace.client.metadata import Node, TopicPartition
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.uuids import ZERO, to_text

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as one of its brokers describes it."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Node, ...]
    fenced: frozenset[int]


@operation
def describe_cluster(router: Router) -> Steps[ClusterDescription]:
    """Id, controller and brokers, sorted by id. Brokers without DescribeCluster are asked for their metadata."""
    if not (yield from router.supports(ApiKey.DESCRIBE_CLUSTER)):
        yield from router.refresh([])
        brokers = tuple(router.brokers.nodes[node_id] for node_id in sorted(router.brokers.nodes))
        return ClusterDescription(router.cluster_id, router.controller_id, brokers, frozenset())
    from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse

    with_fenced = yield from router.supports(ApiKey.DESCRIBE_CLUSTER, 2)
    request = DescribeClusterRequest(include_fenced_brokers=with_fenced)
    response = yield from router.checked(
        request, DescribeClusterResponse, lambda r: (r.error_code, r.error_message), "the cluster"
    )
    ordered = sorted(response.brokers, key=lambda broker: broker.broker_id)
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        tuple(Node(b.broker_id, b.host, b.port, b.rack) for b in ordered),
        frozenset(b.broker_id for b in ordered if b.is_fenced),
    )


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer of the metadata log. Times are ms since 1970, -1 where unknown; the directory id is zeros
    where it does not count."""

    id: int
    voter: bool
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    directory_id: bytes = ZERO

    def __repr__(self) -> str:
        kind = "voter" if self.voter else "observer"
        where = "" if self.directory_id == ZERO else f", directory {to_text(self.directory_id)}"
        fetched = f"last fetch {self.last_fetch_ms} ms, last caught up {self.last_caught_up_ms} ms"
        return f"<QuorumReplica {self.id}, {kind}{where}, log end {self.log_end_offset}, {fetched}>"


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]

    def lag(self, replica: QuorumReplica) -> int | None:
        """How many records a replica lacks of those that the leader has; None where its end is unknown."""
        ends = {each.id: each.log_end_offset for each in self.replicas}
        if replica.log_end_offset < 0:
            return None
        return max(0, ends.get(self.leader_id, self.high_watermark) - replica.log_end_offset)


@operation
def describe_quorum(router: Router) -> Steps[QuorumDescription]:
    """Leader, epoch and replicas of the metadata log. Raises `BrokerError`, `ProtocolMismatchError`."""
    from headrace.wire.messages import k55_describe_quorum as k55

    topic = k55.TopicData(topic_name=METADATA_TOPIC, partitions=[k55.PartitionData(partition_index=0)])
    request = k55.DescribeQuorumRequest(topics=[topic])

    def error_of(response: k55.DescribeQuorumResponse) -> tuple[int, str | None]:
        if response.error_code:
            return response.error_code, response.error_message
        partition = response.topics[0].partitions[0]
        return partition.error_code, partition.error_message

    response = yield from router.checked(request, k55.DescribeQuorumResponse, error_of, "the quorum")
    partition = response.topics[0].partitions[0]
    replicas = tuple(
        QuorumReplica(
            r.replica_id,
            voter,
            r.log_end_offset,
            r.last_fetch_timestamp,
            r.last_caught_up_timestamp,
            r.replica_directory_id,
        )
        for voter, group in ((True, partition.current_voters), (False, partition.observers))
        for r in sorted(group, key=lambda r: r.replica_id)
    )
    return QuorumDescription(partition.leader_id, partition.leader_epoch, partition.high_watermark, replicas)


@dataclass(frozen=True, slots=True)
class EligibleLeaders:
    """Replicas that may lead a partition though they are not in sync, and the last ones known to have led it."""

    eligible: tuple[int, ...]
    last_known: tuple[int, ...]


@operation
def eligible_leaders(router: Router, topics: Iterable[str]) -> Steps[dict[TopicPartition, EligibleLeaders]]:
    """Who else may lead each partition of these topics; nothing from brokers that do not say. Raises `BrokerError`."""
    if not (yield from router.supports(ApiKey.DESCRIBE_TOPIC_PARTITIONS)):
        return {}
    from headrace.wire.messages import k75_describe_topic_partitions as k75

    request = k75.DescribeTopicPartitionsRequest(topics=[k75.TopicRequest(name) for name in sorted(set(topics))])
    found: dict[TopicPartition, EligibleLeaders] = {}
    while request.topics:
        response = yield from router.call(request, k75.DescribeTopicPartitionsResponse)
        for topic in response.topics:
            if topic.error_code != ErrorCode.NONE:
                raise BrokerError(topic.error_code, f"topic {topic.name}")
            for p in topic.partitions:
                found[str(topic.name), p.partition_index] = EligibleLeaders(
                    tuple(p.eligible_leader_replicas or ()), tuple(p.last_known_elr or ())
                )
        if response.next_cursor is None:
            break
        # The page that follows begins at the cursor, and is not to name the topics before it.
        request.cursor = k75.Cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)
        request.topics = [topic for topic in request.topics if topic.name >= request.cursor.topic_name]
    return found


@dataclass(frozen=True, slots=True)
class ReplicaDir:
    """One replica in a log directory: its size in bytes and how far it lags behind, in records."""

    topic: str
    partition: int
    size: int
    lag: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker; sizes are bytes, -1 where the broker does not say."""

    broker: int
    path: str
    error: int
    total: int
    usable: int
    replicas: tuple[ReplicaDir, ...]


@operation
def describe_log_dirs(
    router: Router,
    topics: Iterable[str] | None = None,
    *,
    brokers: Iterable[int] | None = None,
    timeout_s: float | None = None,
) -> Steps[list[LogDir]]:
    """The log directories of these brokers (all where None), with the replicas of these topics (all where None).

    `timeout_s` bounds the time that one broker may take.
    """
    from headrace.wire.messages.k35_describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

    wanted = None
    if topics is not None:
        wanted = []
        for name in topics:
            indexes = [p.index for p in (yield from router.topic(name)).partitions]
            wanted.append(DescribableLogDirTopic(topic=name, partitions=indexes))
    yield from router.refresh([])
    found = []
    for node_id in sorted(router.brokers.nodes if brokers is None else brokers):
        response = yield from router.checked(
            DescribeLogDirsRequest(topics=wanted),
            DescribeLogDirsResponse,
            lambda r: (r.error_code, None),
            f"log directories of broker {node_id}",
            node_id=node_id,
            timeout_s=timeout_s,
        )
        for result in sorted(response.results, key=lambda result: result.log_dir):
            replicas = tuple(
                ReplicaDir(topic.name, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
                for topic in sorted(result.topics, key=lambda topic: topic.name)
                for p in sorted(topic.partitions, key=lambda p: p.partition_index)
            )
            found.append(
                LogDir(node_id, result.log_dir, result.error_code, result.total_bytes, result.usable_bytes, replicas)
            )
    return found


@operation
def partition_sizes(router: Router, partitions: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, int]]:
    """The bytes that each partition's log takes at its leader.

    Raises `BrokerError`, where the broker refuses (CLUSTER_AUTHORIZATION_FAILED) or a topic is gone,
    and `ProtocolMismatchError` where it says nothing of a partition.
    """
    from headrace.wire.messages.k35_describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

    def request_of(part: dict[TopicPartition, None]) -> DescribeLogDirsRequest:
        topics: dict[str, DescribableLogDirTopic] = {}
        for name, index in part:
            topics.setdefault(name, DescribableLogDirTopic(topic=name)).partitions.append(index)
        return DescribeLogDirsRequest(topics=list(topics.values()))

    def results_of(response: DescribeLogDirsResponse) -> Iterator[tuple[TopicPartition, int, int]]:
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(response.error_code, "log directories")
        for result in response.results:
            for topic in result.topics:
                for p in topic.partitions:
                    if not p.is_future_key:
                        yield (topic.name, p.partition_index), ErrorCode.NONE, p.partition_size

    return (yield from router.at_leaders(dict.fromkeys(partitions), request_of, DescribeLogDirsResponse, results_of))


@operation
def describe_features(router: Router) -> Steps[dict[str, int]]:
    """The finalized feature levels, such as {"metadata.version": 29}."""
    from headrace.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

    response = yield from router.call(
        ApiVersionsRequest(client_software_name="headrace", client_software_version="0"), ApiVersionsResponse
    )
    if response.error_code != ErrorCode.NONE:
        return {}
    return {feature.name: feature.max_version_level for feature in response.finalized_features}
