"""AllocateProducerIds (67), version 0: assigns the next block of producer ids to a broker. Source: KIP-730."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.registry import handles
from headrace.controller.producer_ids import AllocateProducerIds
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.ALLOCATE_PRODUCER_IDS)
async def handle(
    broker: NodeServices, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    """Returns a block that no other broker has."""
    if not is_node(context):
        return AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        block = await broker.local_controller.ask(AllocateProducerIds(request.broker_id, request.broker_epoch))
    except ControllerError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(
        error_code=block.error, producer_id_start=block.first, producer_id_len=block.end - block.first
    )
