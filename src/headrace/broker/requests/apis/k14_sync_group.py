"""SyncGroup (14), versions 0-5: the leader sends the assignment, and each member gets its part.

The answer comes when the leader's assignment is stored. v3: static members. v5: protocol type and name, which a member
must then send (KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_PROTOCOL_FROM = 5


@handles(ApiKey.SYNC_GROUP)
def handle(
    broker: Services, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Completion[SyncGroupResponse]:
    """Syncs the member; the answer may wait for the leader."""
    if context.api_version >= _PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    answer: Completion[SyncGroupResponse] = Completion(broker.node.completions)
    broker.groups.write(request.group_id, lambda shard, now_ms: shard.sync(request, answer, now_ms), _refuse, answer)
    return answer


def _refuse(error: ErrorCode) -> SyncGroupResponse:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # While a coordinator loads, this error makes a member join again, as in Kafka (KAFKA-6266).
        error = ErrorCode.REBALANCE_IN_PROGRESS
    return SyncGroupResponse(error_code=error)
