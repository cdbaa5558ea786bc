"""BrokerHeartbeat (63), versions 0-2: a broker renews its session, and requests a state.

Source: KIP-631, KIP-858, KIP-1066.
v1 directories that failed. v2 cordoned directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.node_requests import names_many, read_heartbeat
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.BROKER_HEARTBEAT)
async def handle(
    broker: NodeServices, request: BrokerHeartbeatRequest, context: RequestContext
) -> BrokerHeartbeatResponse:
    """Returns the broker's current state."""
    if not is_node(context):
        return BrokerHeartbeatResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if names_many(request):
        return BrokerHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    if broker.controller_tasks is not None:
        broker.controller_tasks.heard(request.broker_id, request.broker_epoch, context.client)
    try:
        reply = await broker.local_controller.ask(read_heartbeat(request))
    except ControllerError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        error_code=reply.error,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )
