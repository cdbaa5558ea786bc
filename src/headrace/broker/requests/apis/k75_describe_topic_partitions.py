"""DescribeTopicPartitions (75), version 0: topics page by page, with their eligible leaders. Source: KIP-966."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.authorized_operations import authorized_operations
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.metadata.image import INTERNAL_TOPICS, ClusterImage, Partition, Topic
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_SORTED_AT_ONCE: Final = 2000
"""Names that are sorted without a pause."""


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def handle(broker: Services, request: DescribeTopicPartitionsRequest, context: RequestContext) -> Any:
    """Describes topics in order of their names, from the cursor on, up to the limit of partitions."""
    image = broker.image
    if max(len(request.topics), len(image.topics.topics_by_name)) > _SORTED_AT_ONCE:
        return _sorted_first(broker, image, request, context)
    return in_pieces(broker, context, _described(broker, image, request, context, _names(image, request)))


async def _sorted_first(
    broker: Services, image: ClusterImage, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Any:
    """Sorts many names on a worker, and then answers."""
    names = await broker.node.workers.run(lambda: _names(image, request))
    answer = in_pieces(broker, context, _described(broker, image, request, context, names))
    return await answer if isinstance(answer, Coroutine) else answer


def _names(image: ClusterImage, request: DescribeTopicPartitionsRequest) -> list[str]:
    """Returns the names of the requested topics, in order."""
    if request.topics:
        return sorted({topic.name for topic in request.topics})
    return sorted(image.topics.topics_by_name)


def _described(
    broker: Services,
    image: ClusterImage,
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
    names: list[str],
) -> Steps[DescribeTopicPartitionsResponse]:
    cursor = request.cursor
    wants_all = not request.topics
    start_name = cursor.topic_name if cursor is not None else ""
    response = DescribeTopicPartitionsResponse()
    if cursor is not None and cursor.partition_index < 0:
        for name in names:
            response.topics.append(DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name))
            yield 1
        return response
    room = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    for name in names[bisect_left(names, start_name) :]:
        yield 1
        first = cursor.partition_index if cursor is not None and name == start_name else 0
        topic = image.topics.by_name(name)
        asked = context.may if wants_all else context.authorize
        if not asked(Operation.DESCRIBE, ResourceType.TOPIC, name):
            if not wants_all:
                response.topics.append(_refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        if topic is None:
            unknown = _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            unknown.topic_authorized_operations = authorized_operations(context, ResourceType.TOPIC, name)
            response.topics.append(unknown)
            continue
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        end = min(len(topic.partitions), first + room)
        response.topics.append(_topic(image, topic, first, end, context))
        yield max(0, end - first) // SMALL_PER_STEP
        room -= max(0, end - first)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _refused(error: ErrorCode, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)


def _topic(
    image: ClusterImage, topic: Topic, first: int, end: int, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[_partition(image, partition) for partition in topic.partitions[first:end]],
        topic_authorized_operations=authorized_operations(context, ResourceType.TOPIC, topic.name),
    )


def _partition(image: ClusterImage, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
    def is_up(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.index,
        leader_id=partition.leader if is_up(partition.leader) else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leaders),
        last_known_elr=list(partition.last_known_eligible_leaders),
        offline_replicas=[replica for replica in partition.replicas if not is_up(replica)],
    )
