"""ConsumerGroupHeartbeat (68), versions 0-1: members of consumer groups join, stay and leave (KIP-848).

v1: a subscription by regular expression, and member ids chosen by clients. The expression never matches topics that the
member may not Describe. It is compiled on a worker before the group uses it, and matched on one afterwards. A classic
group of consumers becomes a consumer group when the first member joins.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import PIECE_STEPS, Steps, at_once, in_turn
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion
from headrace.groups.consumer.heartbeat import Sender, what_is_wrong
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


Answer = ConsumerGroupHeartbeatResponse | Completion[ConsumerGroupHeartbeatResponse]


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def handle(
    broker: Services, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Answer | Coroutine[Any, Any, Answer]:
    """Joins, stays or leaves; the answer comes when its changes are committed."""
    names, pattern = request.subscribed_topic_names or (), request.subscribed_topic_regex
    if (not pattern and len(names) <= PIECE_STEPS) or not _may_read(request, context):
        return _heartbeat(broker, request, context, "", None)
    return _looked_at(broker, request, context, names, pattern)


def _may_read(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> bool:
    # Not audited here: the decision on the heartbeat itself is.
    return context.may(Operation.READ, ResourceType.GROUP, request.group_id)


async def _looked_at(
    broker: Services,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    names: Sequence[str],
    pattern: str | None,
) -> Answer:
    described = await in_turn(broker, context, _may_describe(context, names))
    fault = await broker.groups.matching.what_is_wrong(context.principal, pattern) if pattern else ""
    return _heartbeat(broker, request, context, fault, described)


def _may_describe(context: RequestContext, names: Sequence[str]) -> Steps[bool]:
    for name in names:
        yield 1
        if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return False
    return True


def _heartbeat(
    broker: Services,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    regex_fault: str,
    described: bool | None,
) -> Answer:
    """Handles the heartbeat. `described` is whether the client may describe the topics that it names; None if they are
    few, and are still to be checked."""
    version = context.api_version

    def may_describe_all() -> bool:
        names = request.subscribed_topic_names or ()
        return at_once(_may_describe(context, names)) if described is None else described

    def may_mean(topic: str) -> bool:
        # The client has not named the topic: its pattern does not match it, which is no denial.
        return context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def refuse(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
        # Every broker refuses invalid requests, even if another broker coordinates the group.
        wrong = what_is_wrong(request, version)
        if wrong:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=wrong)
        return _refused(error)

    if not broker.groups.serves_consumer_groups:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not may_describe_all():
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not request.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    host = f"/{context.client_host}"
    sender = Sender(context.client_id or "", host, version, may_mean, context.holder, regex_fault)
    answer: Completion[ConsumerGroupHeartbeatResponse] = broker.groups.write(
        request.group_id, lambda shard, now_ms: shard.consumer_heartbeat(request, sender, now_ms), refuse
    )
    return answer


def _refused(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message_of(error))
