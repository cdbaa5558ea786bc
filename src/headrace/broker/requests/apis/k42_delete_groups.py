"""DeleteGroups (42), versions 0-3: removes empty groups with their offsets. v3: error messages (KIP-1043).

Not done: groups of the other protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.coordinators.coordinator_partition import CoordinatorPartition
from headrace.broker.net.answers import Pending
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.DELETE_GROUPS)
def handle(
    broker: Services, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    """Deletes each group that can be; the answer leaves when the last partition's tombstones are committed."""
    results = {group_id: DeletableGroupResult(group_id=group_id) for group_id in request.groups_names}
    by_partition: dict[int, tuple[CoordinatorPartition, list[str]]] = {}
    for group_id, result in results.items():
        if not context.authorize(Operation.DELETE, ResourceType.GROUP, group_id):
            result.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            continue
        part = broker.groups.coordinator_of(group_id)
        if isinstance(part, CoordinatorPartition):
            by_partition.setdefault(part.index, (part, []))[1].append(group_id)
        else:
            result.error_code = part
    answer: Pending[DeleteGroupsResponse] = Pending()
    waiting = len(by_partition)

    def answered(found: list[DeletableGroupResult]) -> None:
        nonlocal waiting
        for result in found:
            results[result.group_id].error_code = result.error_code
        waiting -= 1
        if waiting == 0:
            answer.resolve(_response(results))

    for part, group_ids in by_partition.values():
        _delete(broker, part, group_ids, answered)
    return answer if by_partition else _response(results)


def _delete(broker: Services, part: CoordinatorPartition, group_ids: list[str], answered: Any) -> None:
    def refuse(error: ErrorCode) -> list[DeletableGroupResult]:
        return [DeletableGroupResult(group_id=group_id, error_code=error) for group_id in group_ids]

    reply = broker.groups.run(part, part.shard.delete_groups(group_ids), refuse)
    if isinstance(reply, Pending):
        pending = reply
        pending.when_resolved(lambda: answered(pending.value))
    else:
        answered(reply)


def _response(results: dict[str, DeletableGroupResult]) -> DeleteGroupsResponse:
    for result in results.values():
        if result.error_code:
            result.error_message = message_of(ErrorCode(result.error_code))
    return DeleteGroupsResponse(results=list(results.values()))
