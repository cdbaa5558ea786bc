"""AlterPartitionReassignments (45), versions 0-1: other replicas for partitions.

Source: KIP-455, KIP-860.
v1 replication factors that may change.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.pieces import listed
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.requests import ReassignPartitions
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def handle(
    broker: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Begins or calls off moves; each partition has a result of its own."""
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response.error_code, response.error_message = denied, message_of(denied)
        refused = ApiError(denied, message_of(denied))
        response.responses = await listed(
            broker,
            context,
            request.topics,
            lambda topic: _told((topic.name, [(each.partition_index, refused) for each in topic.partitions])),
        )
        return response
    wanted = [
        (topic.name, [(partition.partition_index, partition.replicas) for partition in topic.partitions])
        for topic in request.topics
    ]
    try:
        answers = await broker.controller.ask(ReassignPartitions(wanted, request.allow_replication_factor_change))
    except ControllerError as error:
        response.error_code, response.error_message = error.code, str(error)
        return response
    response.responses = await listed(broker, context, answers, _told)
    return response


def _told(answered: tuple[str, list[tuple[int, ApiError]]]) -> ReassignableTopicResponse:
    name, partitions = answered
    return ReassignableTopicResponse(
        name=name,
        partitions=[
            ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
            for index, error in partitions
        ],
    )
