"""DescribeGroups (15), versions 0-6: the members of classic groups and their assignments.

An unknown group is Dead: without an error up to v5, with GROUP_ID_NOT_FOUND and a message from v6 (KIP-1043). v3:
authorized operations. v4: static members. v5: flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.authorized_operations import authorized_operations
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_NOT_FOUND_FROM = 6


@handles(ApiKey.DESCRIBE_GROUPS)
def handle(broker: Services, request: DescribeGroupsRequest, context: RequestContext) -> Any:
    """Describes each group once, in request order."""
    return in_pieces(broker, context, _described(broker, request, context))


def _described(
    broker: Services, request: DescribeGroupsRequest, context: RequestContext
) -> Steps[DescribeGroupsResponse]:
    described: dict[str, DescribedGroup] = {}
    for group_id in request.groups:
        yield 1
        if group_id in described:
            continue
        group = _describe(broker, context, group_id)
        if context.api_version < _NOT_FOUND_FROM:
            group.error_message = None
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                group.error_code = ErrorCode.NONE
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group_id)
        described[group_id] = group
        yield len(group.members) // SMALL_PER_STEP
    return DescribeGroupsResponse(groups=list(described.values()))


def _describe(broker: Services, context: RequestContext, group_id: str) -> DescribedGroup:
    error: ErrorCode
    if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        shard = broker.groups.read(group_id)
        if not isinstance(shard, ErrorCode):
            return shard.describe_group(group_id)
        error = shard
    return DescribedGroup(error_code=error, error_message=message_of(error), group_id=group_id)
