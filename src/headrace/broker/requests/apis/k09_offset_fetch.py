"""OffsetFetch (9), versions 1-10: how far groups have come.

Unknown groups and partitions have -1 and no error. A null list of topics means all of them (v2+). v7: RequireStable
(KIP-447). v8: batched (KIP-709). v9: member id and epoch (KIP-848). v10: topics by id.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_ERROR_OF_GROUP_FROM = 2
_BATCHED_FROM = 8
_TOPIC_IDS_FROM = 10


@handles(ApiKey.OFFSET_FETCH)
def handle(broker: Services, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Reads committed offsets."""
    version = context.api_version
    if version >= _BATCHED_FROM:
        return OffsetFetchResponse(
            groups=[_fetch(broker, group, request.require_stable, context) for group in request.groups]
        )
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in request.topics]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = _fetch(broker, asked, request.require_stable, context)
    if found.error_code and version < _ERROR_OF_GROUP_FROM:
        # Version 1 has no error of its own: every partition carries it.
        found.topics = [
            OffsetFetchResponseTopics(
                name=topic.name, partitions=[_error(index, found.error_code) for index in topic.partition_indexes]
            )
            for topic in topics or []
        ]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in found.topics
        ],
        error_code=found.error_code,
    )


def _fetch(
    broker: Services, asked: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
) -> OffsetFetchResponseGroup:
    group_id = asked.group_id
    if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    shard = broker.groups.read(group_id)
    if isinstance(shard, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=shard)
    by_id = context.api_version >= _TOPIC_IDS_FROM
    if asked.topics is None:
        found = shard.fetch(asked, require_stable)
        found.topics = [t for t in found.topics if context.may(Operation.DESCRIBE, ResourceType.TOPIC, t.name)]
        if by_id:
            found.topics = _with_ids(broker, found.topics)
        return found
    refused = _keep_known(broker, asked, by_id, context)
    found = shard.fetch(asked, require_stable)
    if not found.error_code:
        found.topics.extend(refused)
    return found


def _with_ids(broker: Services, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """The topics that exist, with their ids; an answer by id cannot speak of others."""
    known = []
    for topic in topics:
        there = broker.image.topics.by_name(topic.name)
        if there is not None:
            topic.topic_id = there.id
            known.append(topic)
    return known


def _keep_known(
    broker: Services, asked: OffsetFetchRequestGroup, by_id: bool, context: RequestContext
) -> list[OffsetFetchResponseTopics]:
    """Leaves in the request what may be read, with names for ids; returns the answers to the rest."""
    kept: list[OffsetFetchRequestTopics] = []
    refused: list[OffsetFetchResponseTopics] = []
    for topic in asked.topics or ():
        error = ErrorCode.NONE
        if by_id:
            known = broker.image.topics.by_id(topic.topic_id)
            if known is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic.name = known.name
        if error is ErrorCode.NONE and not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if error is ErrorCode.NONE:
            kept.append(topic)
        else:
            answers = [_error(index, error) for index in topic.partition_indexes]
            refused.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, answers))
    asked.topics = kept
    return refused


def _error(index: int, error: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, -1, -1, "", error)
