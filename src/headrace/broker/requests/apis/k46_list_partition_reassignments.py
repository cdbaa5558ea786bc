"""ListPartitionReassignments (46), version 0: which partitions have replicas on the move. Source: KIP-455.

Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.controller.reassignments import list_reassignments
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
def handle(
    broker: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """The moves under way, of the partitions named or of all."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(error_code=denied, error_message=message_of(denied))
    wanted = None if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(
                name=name,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=partition.index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                    for partition in partitions
                ],
            )
            for name, partitions in list_reassignments(broker.image, wanted)
        ],
    )
