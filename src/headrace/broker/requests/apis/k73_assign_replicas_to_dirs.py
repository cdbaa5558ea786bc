"""AssignReplicasToDirs (73), version 0: a broker reports the log directories of its replicas. Source: KIP-858."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.node_requests import assigned_response, read_assignments
from headrace.broker.requests.pieces import in_turn
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k73_assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
async def handle(
    broker: NodeServices, request: AssignReplicasToDirsRequest, context: RequestContext
) -> AssignReplicasToDirsResponse:
    """Stores the directories; each replica has its own result."""
    if not is_node(context):
        return AssignReplicasToDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = await in_turn(broker, context, read_assignments(request))
    try:
        reply = await broker.local_controller.ask(asked)
    except ControllerError as error:
        return AssignReplicasToDirsResponse(error_code=error.code)
    return await in_turn(broker, context, assigned_response(asked, reply))
