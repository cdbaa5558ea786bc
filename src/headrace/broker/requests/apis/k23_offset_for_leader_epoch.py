"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of a leader epoch in the leader's log.

A consumer uses it to find the offset at which its log and the leader's diverge (KIP-320).
v3 the replica that asks. v4 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.partitions.replica import Replica
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.readiness import keys_in, once_ready
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def handle(broker: Services, request: OffsetForLeaderEpochRequest, context: RequestContext) -> Any:
    keys = keys_in((topic.topic, (each.partition for each in topic.partitions)) for topic in request.topics)
    return once_ready(broker, keys, lambda: in_pieces(broker, context, _answer(broker, request, context)))


def _answer(
    broker: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    # Brokers of the cluster may ask too, by their ClusterAction permission.
    is_broker = context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    for topic in request.topics:
        answer = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        allowed = is_broker or context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        yield 1
        for partition in topic.partitions:
            yield 1
            if allowed:
                answer.partitions.append(_find(broker, topic.topic, partition))
            else:
                answer.partitions.append(_error(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return response


def _find(broker: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    replica = broker.replicas.find(topic, asked.partition)
    if not isinstance(replica, Replica):
        return _error(asked, replica)
    fenced = replica.state.check_epoch(asked.current_leader_epoch)
    if fenced:
        return _error(asked, fenced)
    epoch, end_offset = replica.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def _error(asked: OffsetForLeaderPartition, error: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=error, partition=asked.partition, leader_epoch=-1, end_offset=-1)
