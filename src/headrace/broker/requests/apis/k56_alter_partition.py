"""AlterPartition (56), versions 2-3: a leader changes the in-sync sets of its partitions. Source: KIP-497, KIP-903.

v3 the broker epoch of each member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.node_requests import altered_response, read_alter_partitions
from headrace.broker.requests.pieces import in_turn
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k56_alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.ALTER_PARTITION)
async def handle(
    broker: NodeServices, request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    """Changes in-sync sets; each partition has its own result."""
    if not is_node(context):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = await in_turn(broker, context, read_alter_partitions(request, context.api_version))
    if asked is None:
        return AlterPartitionResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        reply = await broker.local_controller.ask(asked)
    except ControllerError as error:
        return AlterPartitionResponse(error_code=error.code)
    return await in_turn(broker, context, altered_response(reply))
