"""JoinGroup (11), versions 0-9: a client becomes a member of a classic group, or joins its next generation.

The answer comes when the rebalance is over. v0: the rebalance timeout is the session timeout. v4: MEMBER_ID_REQUIRED
(KIP-394). v5: static members (KIP-345). v7: protocol type in the answer (KIP-559). v8: reasons. v9: SkipAssignment
(KIP-814).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion
from headrace.groups.classic.rebalance import join_error
from headrace.groups.group_client import GroupClient
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_OWN_REBALANCE_TIMEOUT_FROM = 1
_NULL_PROTOCOL_FROM = 7


@handles(ApiKey.JOIN_GROUP)
def handle(
    broker: Services, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Completion[JoinGroupResponse]:
    """Joins the group; the answer may wait for every other member."""
    member_id = request.member_id

    def refuse(error: ErrorCode) -> JoinGroupResponse:
        return join_error(member_id, error)

    shape = partial(_in_version, context.api_version)
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return shape(refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if not request.group_id:
        return shape(refuse(ErrorCode.INVALID_GROUP_ID))
    if context.api_version < _OWN_REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    client = GroupClient(context.client_id or "", f"/{context.client_host}", context.api_version, context.holder)
    answer: Completion[JoinGroupResponse] = Completion(broker.node.completions)
    broker.groups.write(
        request.group_id, lambda shard, now_ms: shard.join(request, client, answer, now_ms), refuse, answer
    )
    return answer.mapped(shape)


def _in_version(version: int, response: JoinGroupResponse) -> JoinGroupResponse:
    """Returns the response for a version: those before 7 have no null for a missing protocol."""
    if version < _NULL_PROTOCOL_FROM and response.protocol_name is None:
        response.protocol_name = ""
    return response
