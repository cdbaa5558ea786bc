"""OffsetCommit (8), versions 2-10: stores the offsets that a group has read.

Each partition succeeds or fails alone: unknown topics and partitions, metadata beyond offset.metadata.max.bytes.
v2-4: a retention set by the client. v6: leader epochs (KIP-320). v7: static members. v9: GROUP_ID_NOT_FOUND and the
errors of KIP-848. v10: topics by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import are_many, in_parts, join_topics, requests_in_parts
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion
from headrace.groups.offsets import commit_error
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.uuids import ZERO

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_TOPIC_IDS_FROM = 10
_NO_RETENTION_FROM = 5


@handles(ApiKey.OFFSET_COMMIT)
def handle(broker: Services, request: OffsetCommitRequest, context: RequestContext) -> Any:
    """Commits offsets; those of very many partitions in several steps."""
    if not are_many(request.topics, "partitions"):
        return _commit(broker, request, context)
    parts = requests_in_parts(request, "topics", "partitions")
    return in_parts(broker, context, parts, _commit, _join)


def _join(whole: OffsetCommitResponse, part: OffsetCommitResponse) -> None:
    join_topics(whole.topics, part.topics, "partitions")


def _commit(
    broker: Services, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Completion[OffsetCommitResponse]:
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return commit_error(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = _keep_known(broker, request, context)
    if refused and not request.topics:
        return OffsetCommitResponse(topics=refused)
    version = context.api_version
    if version >= _NO_RETENTION_FROM:
        request.retention_time_ms = -1
    answer: Completion[OffsetCommitResponse] = broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.commit(request, version, now_ms, context.holder),
        lambda error: commit_error(request, error),
    )
    return answer.mapped(lambda response: _merge(response, refused)) if refused else answer


def _keep_known(
    broker: Services, request: OffsetCommitRequest, context: RequestContext
) -> list[OffsetCommitResponseTopic]:
    """Removes partitions from the request that do not exist or may not be read, and fills in names and ids; returns
    their errors."""
    topics = broker.image.topics
    by_id = context.api_version >= _TOPIC_IDS_FROM
    kept: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for asked in request.topics:
        topic = topics.by_id(asked.topic_id) if by_id else topics.by_name(asked.name)
        name = asked.name if topic is None else topic.name
        error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if topic is None else len(topic.partitions)
        # A topic that the client may not read gets the same error whether or not a topic of that name exists.
        if not (by_id and topic is None) and not context.authorize(Operation.READ, ResourceType.TOPIC, name):
            error, count = ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
        bad = [p for p in asked.partitions if not 0 <= p.partition_index < count]
        if bad:
            answers = [OffsetCommitResponsePartition(p.partition_index, error) for p in bad]
            refused.append(OffsetCommitResponseTopic(asked.name, asked.topic_id, answers))
            asked.partitions = [p for p in asked.partitions if 0 <= p.partition_index < count]
            if not asked.partitions:
                continue
        if topic is not None:
            asked.name, asked.topic_id = topic.name, topic.id
        kept.append(asked)
    request.topics = kept
    return refused


def _merge(response: OffsetCommitResponse, refused: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    """Adds the refused partitions to the response, to the topic's own entry if there is one."""
    by_name = {topic.name: topic for topic in response.topics}
    by_id = {topic.topic_id: topic for topic in response.topics if topic.topic_id != ZERO}
    for topic in refused:
        entry = by_name.get(topic.name) if topic.name else by_id.get(topic.topic_id)
        if entry is None:
            response.topics.append(topic)
        else:
            entry.partitions.extend(topic.partitions)
    return response
