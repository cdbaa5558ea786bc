"""DescribeQuorum (55), versions 0-2: the leader of the metadata quorum, and the progress of voters and observers.

Source: KIP-595, KIP-836, KIP-853.
v1 times of fetches. v2 directory ids and voters' endpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.controller.names import METADATA_TOPIC
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from headrace.wire.uuids import ZERO

if TYPE_CHECKING:
    from headrace.broker.quorum.progress import ReplicaProgress
    from headrace.broker.requests.services import Services


@handles(ApiKey.DESCRIBE_QUORUM)
def handle(broker: Services, request: DescribeQuorumRequest, context: RequestContext) -> Any:
    """Describes `__cluster_metadata-0`; any other partition is unknown."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=denied, error_message=message_of(denied))
    topics = request.topics
    asked = [(topics[0].topic_name, each.partition_index) for each in topics[0].partitions[:2]] if topics else []
    if len(topics) != 1 or asked != [(METADATA_TOPIC, 0)]:
        return in_pieces(broker, context, _unknown(request))
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[_partition(broker, context.api_version)])],
        nodes=[
            Node(node_id=voter.id, listeners=[Listener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints])
            for voter in broker.quorum.voters
            if context.api_version >= 2
        ],
    )


def _unknown(request: DescribeQuorumRequest) -> Steps[DescribeQuorumResponse]:
    """Returns the response to a request that names any partition other than the metadata log's."""
    response = DescribeQuorumResponse()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for topic in request.topics:
        answered = ResponseTopicData(topic_name=topic.topic_name)
        response.topics.append(answered)
        yield 1
        for partition in topic.partitions:
            index = partition.partition_index
            answered.partitions.append(
                ResponsePartitionData(partition_index=index, error_code=unknown, error_message=message_of(unknown))
            )
            yield 1
    return response


def _partition(broker: Services, version: int) -> ResponsePartitionData:
    quorum = broker.quorum
    voters = quorum.progress()
    if not voters:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ResponsePartitionData(partition_index=0, error_code=error, error_message=message_of(error))
    return ResponsePartitionData(
        partition_index=0,
        leader_id=broker.node_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.raft.high_watermark,
        current_voters=[_state(voter, version) for voter in voters],
        observers=[_state(observer, version) for observer in quorum.observers()],
    )


def _state(replica: ReplicaProgress, version: int) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id if version >= 2 else ZERO,
        log_end_offset=replica.end_offset,
        last_fetch_timestamp=replica.fetched_ms,
        last_caught_up_timestamp=replica.caught_up_ms,
    )
