"""ElectLeaders (43), versions 0-2: makes preferred replicas the leaders again, or any replica where there is none.

Source: KIP-460.
v1 types of elections. v2 flexible.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.pieces import listed
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.leaders import PREFERRED_ELECTION, UNCLEAN_ELECTION
from headrace.controller.requests import ElectLeaders
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
    """Elects leaders of the partitions named, or of all of them."""
    wanted = None
    if request.topic_partitions is not None:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return await _all(broker, context, wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kind = request.election_type if context.api_version >= 1 else PREFERRED_ELECTION
    if kind not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        return await _all(broker, context, wanted, ErrorCode.INVALID_REQUEST)
    try:
        answers = await broker.controller.ask(ElectLeaders(kind, wanted))
    except ControllerError as error:
        return await _all(broker, context, wanted, error.code)
    return ElectLeadersResponse(replica_election_results=await listed(broker, context, answers, _result))


def _result(answered: tuple[str, list[tuple[int, ApiError]]]) -> ReplicaElectionResult:
    name, partitions = answered
    return ReplicaElectionResult(
        topic=name,
        partition_result=[
            PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
            for index, error in partitions
        ],
    )


async def _all(
    broker: Services, context: RequestContext, wanted: list[tuple[str, list[int]]] | None, error: ErrorCode
) -> ElectLeadersResponse:
    """An error of every partition, and from version 1 on the answer's own."""
    refused = ApiError(error)
    results = await listed(
        broker, context, wanted or (), lambda each: _result((each[0], [(index, refused) for index in each[1]]))
    )
    whole = error if context.api_version >= _OWN_ERROR_FROM else ErrorCode.NONE
    return ElectLeadersResponse(error_code=whole, replica_election_results=results)
