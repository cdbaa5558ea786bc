"""OffsetFetch (9), versions 1-10: returns the committed offsets of groups.

Unknown groups and partitions have -1 and no error. A null list of topics means all of them (v2+). v7: RequireStable
(KIP-447). v8: batched (KIP-709). v9: member id and epoch (KIP-848). v10: topics by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces, parts_of
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
def handle(broker: Services, request: OffsetFetchRequest, context: RequestContext) -> Any:
    """Returns committed offsets."""
    if context.api_version >= _BATCHED_FROM:
        return in_pieces(broker, context, _batched(broker, request, context))
    return in_pieces(broker, context, _of_one_group(broker, request, context))


def _batched(broker: Services, request: OffsetFetchRequest, context: RequestContext) -> Steps[OffsetFetchResponse]:
    groups: list[OffsetFetchResponseGroup] = []
    known = _Asked(context)
    for group in request.groups:
        yield 1
        found = yield from _fetch(broker, group, request.require_stable, context, known)
        if found is not None:
            groups.append(found)
    return OffsetFetchResponse(groups=groups)


def _of_one_group(broker: Services, request: OffsetFetchRequest, context: RequestContext) -> Steps[OffsetFetchResponse]:
    topics: list[OffsetFetchRequestTopics] | None = None
    if request.topics is not None:
        topics = []
        context.keep(topics)
        for each in request.topics:
            topics.append(OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes))
            yield 1
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = yield from _fetch(broker, asked, request.require_stable, context, _Asked(context))
    assert found is not None, "one group is asked for once"
    context.keep(found)
    if found.error_code and context.api_version < _ERROR_OF_GROUP_FROM:
        # Version 1 has no top-level error: every partition has it.
        found.topics = []
        for topic in topics or ():
            answer = OffsetFetchResponseTopics(name=topic.name)
            found.topics.append((yield from _with_errors(answer, topic.partition_indexes, found.error_code)))
    response = OffsetFetchResponse(error_code=found.error_code)
    for of_topic in found.topics:
        answered = OffsetFetchResponseTopic(name=of_topic.name)
        response.topics.append(answered)
        yield 1
        for some in parts_of(of_topic.partitions, SMALL_PER_STEP):
            answered.partitions += [
                OffsetFetchResponsePartition(
                    p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
                )
                for p in some
            ]
            yield 1
    return response


class _Asked:
    """The offsets that a request has asked for so far: repeated ones are answered once."""

    def __init__(self, context: RequestContext) -> None:
        self.groups: set[str] = set()
        """Groups of which all offsets were requested."""
        self.partitions: set[tuple[str, str, int]] = set()
        context.keep(self.partitions)

    def is_new(self, group_id: str, topic: OffsetFetchRequestTopics) -> Steps[bool]:
        """Removes repeated partitions from a topic; returns whether any are left, or none were listed at all."""
        indexes: list[int] = []
        for some in parts_of(topic.partition_indexes, SMALL_PER_STEP):
            for index in some:
                key = (group_id, topic.name, index)
                if key not in self.partitions:
                    self.partitions.add(key)
                    indexes.append(index)
            yield 1
        is_new = bool(indexes) or not topic.partition_indexes
        topic.partition_indexes = indexes
        return is_new


def _fetch(
    broker: Services, asked: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext, known: _Asked
) -> Steps[OffsetFetchResponseGroup | None]:
    """Returns the answer for a group; None if all of it was requested before."""
    group_id = asked.group_id
    if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    shard = broker.groups.read(group_id)
    if isinstance(shard, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=shard)
    by_id = context.api_version >= _TOPIC_IDS_FROM
    if asked.topics is None:
        if group_id in known.groups:
            return None
        known.groups.add(group_id)
        found = yield from shard.fetching(asked, require_stable)
        topics = []
        for topic in found.topics:
            if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                topics.append(topic)
            yield 1
        found.topics = _with_ids(broker, topics) if by_id else topics
        return found
    count = len(asked.topics)
    refused = yield from _keep_known(broker, asked, by_id, context, known)
    if count and not asked.topics and not refused:
        return None
    found = yield from shard.fetching(asked, require_stable)
    if not found.error_code:
        found.topics.extend(refused)
    return found


def _with_ids(broker: Services, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """Returns the topics that exist, with their ids; an answer by id cannot contain others."""
    known = []
    for topic in topics:
        there = broker.image.topics.by_name(topic.name)
        if there is not None:
            topic.topic_id = there.id
            known.append(topic)
    return known


def _keep_known(
    broker: Services, asked: OffsetFetchRequestGroup, by_id: bool, context: RequestContext, asked_before: _Asked
) -> Steps[list[OffsetFetchResponseTopics]]:
    """Removes partitions from the request that may not be read or are repeated, and replaces ids by names; returns
    their errors."""
    kept: list[OffsetFetchRequestTopics] = []
    refused: list[OffsetFetchResponseTopics] = []
    for topic in asked.topics or ():
        yield 1
        error = ErrorCode.NONE
        if by_id:
            known = broker.image.topics.by_id(topic.topic_id)
            if known is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic.name = known.name
        if error is ErrorCode.NONE and not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if error is not ErrorCode.NONE:
            answer = OffsetFetchResponseTopics(topic.name, topic.topic_id)
            refused.append((yield from _with_errors(answer, topic.partition_indexes, error)))
        elif (yield from asked_before.is_new(asked.group_id, topic)):
            kept.append(topic)
    asked.topics = kept
    return refused


def _with_errors(answer: OffsetFetchResponseTopics, indexes: list[int], error: int) -> Steps[OffsetFetchResponseTopics]:
    """Returns the answer for partitions of a topic that have the same error."""
    for some in parts_of(indexes, SMALL_PER_STEP):
        answer.partitions += [_error(index, error) for index in some]
        yield 1
    return answer


def _error(index: int, error: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, -1, -1, "", error)
