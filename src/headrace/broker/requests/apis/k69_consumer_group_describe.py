"""ConsumerGroupDescribe (69), versions 0-1: the members of consumer groups, what they have and shall have (KIP-848).

A group of another type is GROUP_ID_NOT_FOUND. A group with a topic that the client may not Describe tells nothing.
v1: types of members.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.authorized_operations import authorized_operations
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
def handle(
    broker: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describes each group in the order asked for."""
    described = [_describe(broker, context, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=[_without_hidden(group, context) for group in described])


def _describe(broker: Services, context: RequestContext, group_id: str) -> DescribedGroup:
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
            return shard.describe_consumer_group(group_id)
        error = shard
    return DescribedGroup(error_code=error, error_message=message_of(error), group_id=group_id)


def _without_hidden(group: DescribedGroup, context: RequestContext) -> DescribedGroup:
    names = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if all(context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
        return group
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribedGroup(error_code=denied, error_message=HIDDEN, group_id=group.group_id)
