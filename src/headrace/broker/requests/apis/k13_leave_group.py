"""LeaveGroup (13), versions 0-5: members leave, or an administrator takes static members out.

v3: batched, static members by their instance id (KIP-345). v4: flexible. v5: reasons (KIP-800).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.answers import Pending
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import PART_THINGS, in_parts, parts_of
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_BATCHED_FROM = 3


@handles(ApiKey.LEAVE_GROUP)
def handle(broker: Services, request: LeaveGroupRequest, context: RequestContext) -> Any:
    """Takes the members out, very many in several steps; the others rebalance."""
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
) -> LeaveGroupResponse | Pending[LeaveGroupResponse]:
    group_id = request.group_id
    if not context.authorize(Operation.READ, ResourceType.GROUP, group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    batched = context.api_version >= _BATCHED_FROM
    members = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    answer: Pending[LeaveGroupResponse] = Pending() if batched else _OlderLeave()
    broker.groups.write(group_id, lambda shard, now_ms: shard.leave(group_id, members, now_ms), answer, _refuse)
    return answer


class _OlderLeave(Pending[LeaveGroupResponse]):
    """The answer to a LeaveGroup before v3: the one member's error is its own."""

    __slots__ = ()

    def resolve(self, value: LeaveGroupResponse | None) -> None:
        if value is not None and value.members:
            value = LeaveGroupResponse(error_code=value.error_code or value.members[0].error_code)
        super().resolve(value)


def _refuse(error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)
