"""JoinGroup (11), versions 0-9: become a member, or take part in the next generation.

The answer comes when the rebalance is over. v0: the rebalance timeout is the session timeout. v4: MEMBER_ID_REQUIRED
(KIP-394). v5: static members (KIP-345). v7: protocol type in the answer (KIP-559). v8: reasons. v9: SkipAssignment
(KIP-814).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.answers import Pending
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
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


class _OlderJoin(Pending[JoinGroupResponse]):
    """The answer to a JoinGroup before v7, which cannot say that there is no protocol."""

    __slots__ = ()

    def resolve(self, value: JoinGroupResponse | None) -> None:
        if value is not None and value.protocol_name is None:
            value.protocol_name = ""
        super().resolve(value)


@handles(ApiKey.JOIN_GROUP)
def handle(broker: Services, request: JoinGroupRequest, context: RequestContext) -> Pending[JoinGroupResponse]:
    """Joins; the answer may wait for every other member."""
    member_id = request.member_id

    def refuse(error: ErrorCode) -> JoinGroupResponse:
        return join_error(member_id, error)

    waiter: Pending[JoinGroupResponse] = Pending() if context.api_version >= _NULL_PROTOCOL_FROM else _OlderJoin()
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        waiter.resolve(refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return waiter
    if not request.group_id:
        waiter.resolve(refuse(ErrorCode.INVALID_GROUP_ID))
        return waiter
    if context.api_version < _OWN_REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    client = GroupClient(context.client_id or "", f"/{context.client_host}", context.api_version, context.holder)
    broker.groups.write(
        request.group_id, lambda shard, now_ms: shard.join(request, client, waiter, now_ms), waiter, refuse
    )
    return waiter
