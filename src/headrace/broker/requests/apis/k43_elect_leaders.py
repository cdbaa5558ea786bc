"""ElectLeaders (43), versions 0-2: makes preferred replicas the leaders again, or any replica where there is none.

Source: KIP-460.
v1 types of elections. v2 flexible.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.registry import handles
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
        return _all(context, wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kind = request.election_type if context.api_version >= 1 else PREFERRED_ELECTION
    if kind not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        return _all(context, wanted, ErrorCode.INVALID_REQUEST)
    try:
        answers = await broker.controller.ask(ElectLeaders(kind, wanted))
    except ControllerError as error:
        return _all(context, wanted, error.code)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=name,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    for index, error in partitions
                ],
            )
            for name, partitions in answers
        ]
    )


def _all(context: RequestContext, wanted: list[tuple[str, list[int]]] | None, error: ErrorCode) -> ElectLeadersResponse:
    """An error of every partition, and from version 1 on the answer's own."""
    results = [
        ReplicaElectionResult(
            topic=name,
            partition_result=[PartitionResult(partition_id=i, error_code=error, error_message=None) for i in indexes],
        )
        for name, indexes in wanted or ()
    ]
    whole = error if context.api_version >= _OWN_ERROR_FROM else ErrorCode.NONE
    return ElectLeadersResponse(error_code=whole, replica_election_results=results)
