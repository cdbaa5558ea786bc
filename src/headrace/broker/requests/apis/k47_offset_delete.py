"""OffsetDelete (47), version 0: deletes committed offsets of topics to which no member is subscribed (KIP-496)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import are_many, in_parts, join_topics, requests_in_parts
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion
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
def handle(broker: Services, request: OffsetDeleteRequest, context: RequestContext) -> Any:
    """Deletes offsets; those of very many partitions in several steps."""
    if not are_many(request.topics, "partitions"):
        return _delete(broker, request, context)
    parts = requests_in_parts(request, "topics", "partitions")
    return in_parts(broker, context, parts, _delete, _join)


def _join(whole: OffsetDeleteResponse, part: OffsetDeleteResponse) -> None:
    whole.error_code = whole.error_code or part.error_code
    join_topics(whole.topics, part.topics, "partitions")


def _delete(
    broker: Services, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Completion[OffsetDeleteResponse]:
    if not context.authorize(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = _keep_known(broker, request, context)
    answer: Completion[OffsetDeleteResponse] = broker.groups.write(
        request.group_id, lambda shard, _: shard.delete_offsets(request), _refuse
    )
    return answer.mapped(partial(_with, refused))


def _with(refused: list[OffsetDeleteResponseTopic], response: OffsetDeleteResponse) -> OffsetDeleteResponse:
    """Adds the refused partitions to a response without a top-level error."""
    if not response.error_code:
        entries = {topic.name: topic for topic in response.topics}
        for topic in refused:
            if topic.name in entries:
                entries[topic.name].partitions.extend(topic.partitions)
            else:
                response.topics.append(topic)
    return response


def _refuse(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)


def _keep_known(
    broker: Services, request: OffsetDeleteRequest, context: RequestContext
) -> list[OffsetDeleteResponseTopic]:
    """Removes partitions from the request that do not exist or may not be read; returns their errors."""
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
