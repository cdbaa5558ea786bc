"""DeleteGroups (42), versions 0-3: removes empty groups with their offsets. v3: error messages (KIP-1043)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import PART_THINGS, Steps, in_parts, in_turn, parts_of
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion, when_known
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
def handle(broker: Services, request: DeleteGroupsRequest, context: RequestContext) -> Any:
    """Deletes empty groups; the answer leaves when the last partition's tombstones are committed."""
    if len(request.groups_names) <= PART_THINGS:
        return _delete_some(broker, request, context)
    return _delete_many(broker, request, context)


async def _delete_many(broker: Services, request: DeleteGroupsRequest, context: RequestContext) -> Any:
    names = await in_turn(broker, context, _distinct(request.groups_names))
    parts = (DeleteGroupsRequest(list(some)) for some in parts_of(names, PART_THINGS))
    return await in_parts(broker, context, parts, _delete_some, _join)


def _distinct(names: list[str]) -> Steps[list[str]]:
    found: dict[str, None] = {}
    for some in parts_of(names, PART_THINGS):
        found.update(dict.fromkeys(some))
        yield 1
    return list(found)


def _join(whole: DeleteGroupsResponse, part: DeleteGroupsResponse) -> None:
    whole.results += part.results


def _delete_some(
    broker: Services, request: DeleteGroupsRequest, context: RequestContext
) -> Completion[DeleteGroupsResponse]:
    results = {group_id: DeletableGroupResult(group_id=group_id) for group_id in request.groups_names}
    by_partition: dict[int, list[str]] = {}
    for group_id, result in results.items():
        if context.authorize(Operation.DELETE, ResourceType.GROUP, group_id):
            by_partition.setdefault(broker.groups.partition_for(group_id), []).append(group_id)
        else:
            result.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    gathered = _Gathered(broker, results)
    for group_ids in by_partition.values():
        gathered.add(_delete(broker, group_ids))
    return gathered.finish()


def _delete(broker: Services, group_ids: list[str]) -> Completion[list[DeletableGroupResult]]:
    """Deletes groups of one partition."""
    deleted: Completion[list[DeletableGroupResult]] = broker.groups.write(
        group_ids[0],
        lambda shard, _: shard.delete_groups(group_ids),
        lambda error: [DeletableGroupResult(group_id=group_id, error_code=error) for group_id in group_ids],
    )
    return deleted


class _Gathered:
    """Collects the results of each partition, and answers after the last one."""

    def __init__(self, broker: Services, results: dict[str, DeletableGroupResult]) -> None:
        self._answer: Completion[DeleteGroupsResponse] = Completion(broker.node.completions)
        self._results = results
        self._left = 1

    def add(self, deleted: Completion[list[DeletableGroupResult]]) -> None:
        """Adds the results of one more partition to wait for."""
        self._left += 1
        when_known(deleted, self._deleted)

    def _deleted(self, results: list[DeletableGroupResult]) -> None:
        for result in results:
            self._results[result.group_id].error_code = result.error_code
        self._one_less()

    def finish(self) -> Completion[DeleteGroupsResponse]:
        """Returns the completion of the response, after the last `add`."""
        self._one_less()
        return self._answer

    def _one_less(self) -> None:
        self._left -= 1
        if self._left:
            return
        for result in self._results.values():
            if result.error_code:
                result.error_message = message_of(ErrorCode(result.error_code))
        self._answer.complete(DeleteGroupsResponse(results=list(self._results.values())))
