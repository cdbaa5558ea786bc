"""ListGroups (16), versions 0-5: the groups that this broker coordinates.

v3: flexible. v4: filter by state (KIP-518). v5: type of group, and a filter by it (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.LIST_GROUPS)
def handle(broker: Services, request: ListGroupsRequest, context: RequestContext) -> Any:
    """Lists the groups of every partition that this broker coordinates; returns an error while one is loading."""
    return in_pieces(broker, context, _listed(broker, request, context))


def _listed(broker: Services, request: ListGroupsRequest, context: RequestContext) -> Steps[ListGroupsResponse]:
    states: set[str] = set()
    types: set[str] = set()
    for wanted, names in ((states, request.states_filter), (types, request.types_filter)):
        for name in names:
            wanted.add(name.lower())
            yield 1
    sees_all = context.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    shards = broker.groups.read_all()
    if isinstance(shards, ErrorCode):
        return ListGroupsResponse(error_code=shards)
    found: list[ListedGroup] = []
    for shard in shards:
        yield 1
        for group in shard.list_groups(states, types):
            if sees_all or context.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
                found.append(group)
            yield 1
    return ListGroupsResponse(groups=found)
