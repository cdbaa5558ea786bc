"""ListGroups (16), versions 0-5: the groups that this broker coordinates.

v3: flexible. v4: filter by state (KIP-518). v5: type of group, and a filter by it (KIP-848).
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.LIST_GROUPS)
def handle(broker: Services, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Lists the groups of every partition that is loaded; while one is loading there is no complete answer."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    sees_all = context.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    shards = broker.groups.read_all()
    if isinstance(shards, ErrorCode):
        return ListGroupsResponse(error_code=shards)
    found = [group for shard in shards for group in shard.list_groups(states, types)]
    if not sees_all:
        found = [g for g in found if context.may(Operation.DESCRIBE, ResourceType.GROUP, g.group_id)]
    return ListGroupsResponse(groups=found)
