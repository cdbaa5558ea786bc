"""UnregisterBroker (64), version 0: removes the registration of a broker that will not return. Source: KIP-631."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.registry import handles
from headrace.controller.membership import UnregisterBroker
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.UNREGISTER_BROKER)
async def handle(
    broker: NodeServices, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    """Removes the registration, even of a broker that is up. The answer has a code and no message. Both as in Kafka."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return UnregisterBrokerResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        error = await broker.controller.ask(UnregisterBroker(request.broker_id))
    except ControllerError as failure:
        return UnregisterBrokerResponse(error_code=failure.code)
    return UnregisterBrokerResponse(error_code=error.code)
