"""ListPartitionReassignments (46), version 0: the reassignments in progress. Source: KIP-455."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces, parts_of
from headrace.broker.requests.registry import handles
from headrace.controller.reassignments import list_reassignments
from headrace.metadata.image import Partition
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def handle(broker: Services, request: ListPartitionReassignmentsRequest, context: RequestContext) -> Any:
    """Returns the reassignments in progress, of the named partitions or of all."""
    return in_pieces(broker, context, _listed(broker, request, context))


def _listed(
    broker: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> Steps[ListPartitionReassignmentsResponse]:
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(error_code=denied, error_message=message_of(denied))
    image = broker.image
    asked: Iterable[tuple[str, Sequence[int]]] = (
        ((topic.name, range(len(topic.partitions))) for topic in image.topics)
        if request.topics is None
        else ((topic.name, topic.partition_indexes) for topic in request.topics)
    )
    found: dict[tuple[str, int], OngoingPartitionReassignment] = {}
    context.keep(found)
    for name, indexes in asked:
        yield 1
        for some in parts_of(indexes, SMALL_PER_STEP):
            yield 1
            for _, partitions in list_reassignments(image, [(name, some)]):
                found.update(((name, each.index), _ongoing(each)) for each in partitions)
    topics: dict[str, OngoingTopicReassignment] = {}
    for (name, _), ongoing in found.items():
        yield 1
        topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(ongoing)
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))


def _ongoing(partition: Partition) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
