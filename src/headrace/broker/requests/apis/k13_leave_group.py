"""LeaveGroup (13), versions 0-5: members leave, or an administrator takes static members out.

v3: batched, static members by their instance id (KIP-345). v4: flexible. v5: reasons (KIP-800).
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.coordinators.coordinator_partition import CoordinatorPartition
from headrace.broker.net.answers import Pending
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_BATCHED_FROM = 3


@handles(ApiKey.LEAVE_GROUP)
def handle(
    broker: Services, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
    """Takes the members out; the others rebalance."""
    group_id = request.group_id
    if not context.authorize(Operation.READ, ResourceType.GROUP, group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    part = broker.groups.coordinator_of(group_id)
    if not isinstance(part, CoordinatorPartition):
        return _refuse(part)
    batched = context.api_version >= _BATCHED_FROM
    members = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    out = part.shard.leave(group_id, members, broker.groups.now_ms())
    if not batched and out.reply.members:
        # The one member's error is the answer's.
        out.reply = LeaveGroupResponse(error_code=out.reply.error_code or out.reply.members[0].error_code)
    reply: LeaveGroupResponse | Pending[LeaveGroupResponse] = broker.groups.run(part, out, _refuse)
    return reply


def _refuse(error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)
