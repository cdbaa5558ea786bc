"""LeaveGroup (13), versions 0-5: members leave, or an administrator removes static members.

v3: batched, static members by their instance id (KIP-345). v4: flexible. v5: reasons (KIP-800).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import PART_THINGS, in_parts, parts_of
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_BATCHED_FROM = 3


@handles(ApiKey.LEAVE_GROUP)
def handle(broker: Services, request: LeaveGroupRequest, context: RequestContext) -> Any:
    """Removes the members, very many in several steps; the others rebalance."""
    if len(request.members) <= PART_THINGS:
        return _leave(broker, request, context)
    parts = (
        LeaveGroupRequest(request.group_id, request.member_id, list(some))
        for some in parts_of(request.members, PART_THINGS)
    )
    return in_parts(broker, context, parts, _leave, _join)


def _join(whole: LeaveGroupResponse, part: LeaveGroupResponse) -> None:
    whole.error_code = whole.error_code or part.error_code
    whole.members += part.members


def _leave(
    broker: Services, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Completion[LeaveGroupResponse]:
    group_id = request.group_id
    if not context.authorize(Operation.READ, ResourceType.GROUP, group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    batched = context.api_version >= _BATCHED_FROM
    members = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    answer: Completion[LeaveGroupResponse] = broker.groups.write(
        group_id, lambda shard, now_ms: shard.leave(group_id, members, now_ms), _refuse
    )
    return answer if batched else answer.mapped(_of_one_member)


def _of_one_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Returns the response for a version before 3, whose error is that of its only member."""
    if not response.members:
        return response
    return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)


def _refuse(error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)
