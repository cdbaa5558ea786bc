"""Heartbeat (12), versions 0-4: keeps a member's session alive. With REBALANCE_IN_PROGRESS the member joins again.

v3: static members. v4: flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.HEARTBEAT)
def handle(broker: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Renews the member's session."""
    group_id = request.group_id
    if not context.authorize(Operation.READ, ResourceType.GROUP, group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    groups = broker.groups
    shard = groups.read(group_id)
    if isinstance(shard, ErrorCode):
        # No session expires while the coordinator loads: all start again afterwards (as in Kafka).
        loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else shard)
    error = shard.heartbeat(
        group_id, request.member_id, request.group_instance_id, request.generation_id, groups.now_ms()
    )
    return HeartbeatResponse(error_code=error)
