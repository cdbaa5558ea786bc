"""AlterPartitionReassignments (45), versions 0-1: moves partitions to other replicas.

Source: KIP-455, KIP-860.
v1 whether the replication factor may change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.pieces import Steps, in_turn
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.reassignments import ReassignPartitions
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
    """Begins or cancels reassignments; each partition has its own result."""
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response.error_code, response.error_message = denied, message_of(denied)
        refused = ApiError(denied, message_of(denied))
        each = (
            (topic.name, ((part.partition_index, refused) for part in topic.partitions)) for topic in request.topics
        )
        response.responses = await in_turn(broker, context, _responses(each))
        return response
    wanted = await in_turn(broker, context, _wanted(request))
    try:
        answers = await broker.controller.ask(ReassignPartitions(wanted, request.allow_replication_factor_change))
    except ControllerError as error:
        response.error_code, response.error_message = error.code, str(error)
        return response
    context.keep(answers)
    response.responses = await in_turn(broker, context, _responses(answers))
    return response


def _wanted(request: AlterPartitionReassignmentsRequest) -> Steps[list[tuple[str, list[tuple[int, list[int] | None]]]]]:
    wanted: list[tuple[str, list[tuple[int, list[int] | None]]]] = []
    for topic in request.topics:
        moves: list[tuple[int, list[int] | None]] = []
        wanted.append((topic.name, moves))
        yield 1
        for partition in topic.partitions:
            moves.append((partition.partition_index, partition.replicas))
            yield 1
    return wanted


def _responses(answers: Iterable[tuple[str, Iterable[tuple[int, ApiError]]]]) -> Steps[list[ReassignableTopicResponse]]:
    answered: list[ReassignableTopicResponse] = []
    for name, partitions in answers:
        topic = ReassignableTopicResponse(name=name)
        answered.append(topic)
        yield 1
        for index, error in partitions:
            topic.partitions.append(
                ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
            )
            yield 1
    return answered
