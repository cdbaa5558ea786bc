"""ConsumerGroupDescribe (69), versions 0-1: members of consumer groups, with current and target assignments (KIP-848).

A group of another type gets GROUP_ID_NOT_FOUND. A group with a topic that the client may not Describe gets an error.
v1: types of members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.authorized_operations import authorized_operations
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE)
def handle(broker: Services, request: ConsumerGroupDescribeRequest, context: RequestContext) -> Any:
    """Describes each group once, in request order."""
    return in_pieces(broker, context, _described(broker, request, context))


def _described(
    broker: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Steps[ConsumerGroupDescribeResponse]:
    described: dict[str, DescribedGroup] = {}
    for group_id in request.group_ids:
        yield 1
        if group_id in described:
            continue
        group = yield from _describe(broker, context, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group.group_id)
        described[group_id] = yield from _without_hidden(group, context)
    return ConsumerGroupDescribeResponse(groups=list(described.values()))


def _describe(broker: Services, context: RequestContext, group_id: str) -> Steps[DescribedGroup]:
    error: ErrorCode
    if not broker.groups.serves_consumer_groups:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif not group_id:
        error = ErrorCode.INVALID_GROUP_ID
    else:
        shard = broker.groups.read(group_id)
        if not isinstance(shard, ErrorCode):
            return (yield from shard.describing_consumer_group(group_id))
        error = shard
    return DescribedGroup(error_code=error, error_message=message_of(error), group_id=group_id)


def _without_hidden(group: DescribedGroup, context: RequestContext) -> Steps[DescribedGroup]:
    names: set[str] = set()
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            names.update(topic.topic_name for topic in assignment.topic_partitions)
        yield 1
    for name in sorted(names):
        if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return DescribedGroup(error_code=denied, error_message=HIDDEN, group_id=group.group_id)
        yield 1
    return group
