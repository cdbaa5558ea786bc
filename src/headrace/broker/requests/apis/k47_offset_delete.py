"""OffsetDelete (47), version 0: removes committed offsets of topics that nobody in the group reads (KIP-496).

Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.coordinators.coordinator_partition import CoordinatorPartition
from headrace.broker.net.answers import Pending
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.OFFSET_DELETE)
def handle(
    broker: Services, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    """Deletes what can be deleted."""
    if not context.authorize(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = _keep_known(broker, request, context)
    part = broker.groups.coordinator_of(request.group_id)
    if not isinstance(part, CoordinatorPartition):
        return _refuse(part)
    out = part.shard.delete_offsets(request)
    if not out.reply.error_code:
        entries = {topic.name: topic for topic in out.reply.topics}
        for topic in refused:
            if topic.name in entries:
                entries[topic.name].partitions.extend(topic.partitions)
            else:
                out.reply.topics.append(topic)
    reply: OffsetDeleteResponse | Pending[OffsetDeleteResponse] = broker.groups.run(part, out, _refuse)
    return reply


def _refuse(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)


def _keep_known(
    broker: Services, request: OffsetDeleteRequest, context: RequestContext
) -> list[OffsetDeleteResponseTopic]:
    """Leaves in the request the partitions that exist and may be read; returns the answers to the others."""
    kept: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteResponseTopic] = []
    for asked in request.topics:
        topic = broker.image.topics.by_name(asked.name)
        error, count = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0 if topic is None else len(topic.partitions)
        if not context.authorize(Operation.READ, ResourceType.TOPIC, asked.name):
            error, count = ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
        bad = [p.partition_index for p in asked.partitions if not 0 <= p.partition_index < count]
        if bad:
            refused.append(
                OffsetDeleteResponseTopic(asked.name, [OffsetDeleteResponsePartition(index, error) for index in bad])
            )
            asked.partitions = [p for p in asked.partitions if 0 <= p.partition_index < count]
        if asked.partitions:
            kept.append(asked)
    request.topics = kept
    return refused
