"""ElectLeaders (43), versions 0-2: elects preferred replicas as leaders, or any replica of partitions without a leader.

Source: KIP-460.
v1 types of elections. v2 flexible.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.pieces import Steps, in_turn, listed
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.leaders import PREFERRED_ELECTION, UNCLEAN_ELECTION, ElectLeaders
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_OWN_ERROR_FROM: Final = 1


@handles(ApiKey.ELECT_LEADERS)
async def handle(broker: Services, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elects leaders of the named partitions, or of all."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return await _all(broker, request, context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kind = request.election_type if context.api_version >= 1 else PREFERRED_ELECTION
    if kind not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        return await _all(broker, request, context, ErrorCode.INVALID_REQUEST)
    wanted = None
    if request.topic_partitions is not None:
        wanted = await listed(broker, context, request.topic_partitions, lambda topic: (topic.topic, topic.partitions))
    try:
        answers = await broker.controller.ask(ElectLeaders(kind, wanted))
    except ControllerError as error:
        return await _all(broker, request, context, error.code)
    context.keep(answers)
    return ElectLeadersResponse(replica_election_results=await in_turn(broker, context, _results(answers)))


def _results(answers: Iterable[tuple[str, Iterable[tuple[int, ApiError]]]]) -> Steps[list[ReplicaElectionResult]]:
    results: list[ReplicaElectionResult] = []
    for name, partitions in answers:
        result = ReplicaElectionResult(topic=name)
        results.append(result)
        yield 1
        for index, error in partitions:
            result.partition_result.append(
                PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
            )
            yield 1
    return results


async def _all(
    broker: Services, request: ElectLeadersRequest, context: RequestContext, error: ErrorCode
) -> ElectLeadersResponse:
    """Returns the response with one error for every partition, and from version 1 on at the top level too."""
    refused = ApiError(error)
    each = ((topic.topic, ((index, refused) for index in topic.partitions)) for topic in request.topic_partitions or ())
    results = await in_turn(broker, context, _results(each))
    whole = error if context.api_version >= _OWN_ERROR_FROM else ErrorCode.NONE
    return ElectLeadersResponse(error_code=whole, replica_election_results=results)
