"""Metadata (3), versions 0-13: brokers, the controller, and topics with their leaders; may create topics.

KIP-4, KIP-516.
v4 whether topics may be created. v8 authorized operations. v9 flexible. v10 topic ids. v11 no cluster operations.
v12 topics by id. v13 a top-level error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.net.long_answers import still_open
from headrace.broker.requests.authorized_operations import NOT_REQUESTED, authorized_operations, cluster_operations
from headrace.broker.requests.pieces import parts_of
from headrace.broker.requests.registry import handles
from headrace.broker.requests.topic_creation import start_creating
from headrace.controller.names import illegal_name
from headrace.metadata.image import INTERNAL_TOPICS, Broker, ClusterImage, Partition, Topic
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.metadata_pieces import PiecewiseMetadata
from headrace.wire.uuids import ZERO

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


PIECE_PARTITIONS: Final = 1000
"""Partitions of a piece, in whole topics, of an answer that has more; other work runs between the pieces."""
TOPIC_PARTITIONS: Final = 5
"""Partitions that take as long as one topic, whether it exists or not."""
CREATED_MAX: Final = 1000
"""Most topics that are created because of one request."""
PIECE_TOPICS: Final = 1000
"""Topics whose leaders are checked without a pause."""
NAMED_AT_ONCE: Final = 2000
"""Topics of a request that are checked for repetition in one turn."""


@handles(ApiKey.METADATA)
def handle(
    broker: Services, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse | PiecewiseMetadata]:
    """Answers from the current image; topics that are created for the request appear in a later answer.

    If the image has a leader that was just lost, the answer waits for the next leader.
    """
    image = broker.image
    if _is_long(image, request, context):
        return _answer_in_pieces(broker, request, context)
    lost_leaders = broker.replicas.lost_leaders
    if lost_leaders and (lost := lost_leaders.among(_leaders(image, request, context))):
        return _later(broker, request, context, lost)
    return _answer(broker, image, request, context)


async def _later(
    broker: Services, request: MetadataRequest, context: RequestContext, lost: frozenset[int]
) -> MetadataResponse:
    await broker.replicas.lost_leaders.known(lost)
    return _answer(broker, broker.image, request, context)


def _just_lost(broker: Services, image: ClusterImage) -> Iterator[Broker]:
    """Returns the brokers that were fenced a moment ago (see `lost_leaders`)."""
    for leader in broker.replicas.lost_leaders.recent:
        known = image.brokers.get(leader)
        if known is not None and known.fenced:
            yield known


def _is_of_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _topics(image: ClusterImage, request: MetadataRequest, context: RequestContext) -> Iterable[Topic]:
    """Returns the requested topics that exist, in any order."""
    if _is_of_all(request, context):
        return image.topics.topics_by_name.values()
    found = (
        image.topics.by_id(asked.topic_id) if asked.name is None else image.topics.by_name(asked.name)
        for asked in request.topics or ()
    )
    return (topic for topic in found if topic is not None)


def _leaders(image: ClusterImage, request: MetadataRequest, context: RequestContext) -> Iterator[int]:
    """Yields the leaders of the requested partitions."""
    return (partition.leader for topic in _topics(image, request, context) for partition in topic.partitions)


def _is_long(image: ClusterImage, request: MetadataRequest, context: RequestContext) -> bool:
    partitions = 0 if request.topics is None else TOPIC_PARTITIONS * len(request.topics)
    if partitions > PIECE_PARTITIONS:
        return True
    for topic in _topics(image, request, context):
        partitions += len(topic.partitions)
        if partitions > PIECE_PARTITIONS:
            return True
    return False


async def _answer_in_pieces(broker: Services, request: MetadataRequest, context: RequestContext) -> PiecewiseMetadata:
    """Returns the answer from one image, which does not change meanwhile. Such answers are made one at a time: with a
    piece of each in every turn of the loop, a turn would take as long as a whole answer."""
    if request.topics is not None:
        request.topics = await _named_once(request.topics, context)
    lost_leaders = broker.replicas.lost_leaders
    if lost_leaders:
        lost: frozenset[int] = frozenset()
        for some in _in_pieces(broker.image, request, context):
            lost |= lost_leaders.among(_leaders(broker.image, some, context))
            await asyncio.sleep(0)
        await lost_leaders.known(lost)
    async with broker.long_answers.turn:
        image = broker.image
        await broker.long_answers.room()
        answer = PiecewiseMetadata(_without_topics(broker, image, request, context), context.api_version)
        topics = _described_topics(broker, image, request, context)
        while piece := list(_of_a_piece(topics)):
            still_open(context)
            answer.add(piece)
            broker.request_errors.look_at(ApiKey.METADATA, MetadataResponse(topics=piece))
            await asyncio.sleep(0)
        return answer


async def _named_once(topics: Sequence[MetadataRequestTopic], context: RequestContext) -> list[MetadataRequestTopic]:
    """Returns the topics of a request without repetitions, in its order."""
    first: dict[str | bytes, MetadataRequestTopic] = {}
    context.keep(topics)
    context.keep(first)
    for some in parts_of(topics, NAMED_AT_ONCE):
        for asked in some:
            first.setdefault(asked.topic_id if asked.name is None else asked.name, asked)
        await asyncio.sleep(0)
        still_open(context)
    return list(first.values())


def _in_pieces(image: ClusterImage, request: MetadataRequest, context: RequestContext) -> Iterator[MetadataRequest]:
    """Splits a request into requests for a few topics each."""
    if _is_of_all(request, context):
        names = [MetadataRequestTopic(name=name) for name in image.topics.topics_by_name]
    else:
        names = request.topics or []
    return (MetadataRequest(topics=list(some)) for some in parts_of(names, PIECE_TOPICS))


def _of_a_piece(topics: Iterator[MetadataResponseTopic]) -> Iterator[MetadataResponseTopic]:
    partitions = 0
    while partitions < PIECE_PARTITIONS and (topic := next(topics, None)) is not None:
        partitions += TOPIC_PARTITIONS + len(topic.partitions)
        yield topic


def _answer(
    broker: Services, image: ClusterImage, request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    response = _without_topics(broker, image, request, context)
    response.topics = list(_described_topics(broker, image, request, context))
    return response


def _without_topics(
    broker: Services, image: ClusterImage, request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=b.id, host=endpoint.host, port=endpoint.port, rack=b.rack)
            for b in (*image.online_brokers(), *_just_lost(broker, image))
            if (endpoint := b.endpoint(context.listener)) is not None
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
    )
    if 8 <= context.api_version <= 10 and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _described_topics(
    broker: Services, image: ClusterImage, request: MetadataRequest, context: RequestContext
) -> Iterator[MetadataResponseTopic]:
    """Yields the answer of each topic, in the order of the names or of the request; may start to create missing ones at
    the end."""
    if _is_of_all(request, context):
        for topic in image.topics:
            if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                yield _described(image, topic, request, context)
    else:
        yield from _wanted_topics(broker, image, request, context)


def _wanted_topics(
    broker: Services, image: ClusterImage, request: MetadataRequest, context: RequestContext
) -> Iterator[MetadataResponseTopic]:
    missing: list[str] = []
    seen: set[str | bytes] = set()
    context.keep(seen)
    for asked in request.topics or ():
        key = asked.topic_id if asked.name is None else asked.name
        if key in seen:
            continue
        seen.add(key)
        if asked.name is None or asked.topic_id != ZERO:
            yield _by_id(image, asked, request, context)
            continue
        topic = image.topics.by_name(asked.name)
        if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, asked.name):
            yield _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.name)
        elif topic is not None:
            yield _described(image, topic, request, context)
        elif illegal_name(asked.name) is not None:
            yield _absent(ErrorCode.INVALID_TOPIC_EXCEPTION, asked.name, request, context)
        else:
            error = _missing(broker, asked.name, request, context)
            if error is None:
                missing.append(asked.name)
            yield _absent(error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.name, request, context)
    if missing:
        start_creating(broker, missing[:CREATED_MAX])  # others are created when they are requested again


def _missing(broker: Services, name: str, request: MetadataRequest, context: RequestContext) -> ErrorCode | None:
    """Returns the error for a topic that does not exist; None if it may be created now."""
    wanted = request.allow_auto_topic_creation or context.api_version < 4
    if not wanted or not broker.config.auto_create_topics_enable:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    may = context.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or context.authorize(
        Operation.CREATE, ResourceType.TOPIC, name
    )
    return None if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _by_id(
    image: ClusterImage, asked: MetadataRequestTopic, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    if context.api_version < 12:
        return _refused(ErrorCode.INVALID_REQUEST, asked.name or "", asked.topic_id)
    topic = image.topics.by_id(asked.topic_id)
    if topic is None:
        return _refused(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
    if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        # As in Kafka: the client learns that the topic exists, but not its name.
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, asked.topic_id)
    return _described(image, topic, request, context)


def _refused(error: ErrorCode, name: str | None, topic_id: bytes = ZERO) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS)


def _absent(error: ErrorCode, name: str, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
    """Returns the answer for a topic that does not exist yet; as in Kafka it has the client's authorized operations."""
    answer = _refused(error, name)
    if error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        answer.topic_authorized_operations = _operations(name, request, context)
    return answer


def _operations(name: str, request: MetadataRequest, context: RequestContext) -> int:
    if request.include_topic_authorized_operations and context.api_version >= 8:
        return authorized_operations(context, ResourceType.TOPIC, name)
    return NOT_REQUESTED


def _described(
    image: ClusterImage, topic: Topic, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[_partition(image, partition, context) for partition in topic.partitions],
        topic_authorized_operations=_operations(topic.name, request, context),
    )


def _partition(image: ClusterImage, partition: Partition, context: RequestContext) -> MetadataResponsePartition:
    answer = MetadataResponsePartition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
    )
    brokers = image.brokers
    for replica in partition.replicas:
        broker = brokers.get(replica)
        if broker is None or broker.fenced:
            answer.offline_replicas.append(replica)
    leader = brokers.get(partition.leader)
    if leader is None or leader.fenced:
        answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        answer.leader_id = -1
    elif leader.endpoint(context.listener) is None:
        answer.error_code = ErrorCode.LISTENER_NOT_FOUND if context.api_version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        answer.leader_id = -1
    return answer
