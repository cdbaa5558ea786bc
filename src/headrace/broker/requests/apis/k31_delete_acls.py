"""DeleteAcls (31), versions 1-3: the controller removes the ACLs that match filters, and returns them.

Source: KIP-140, KIP-290.
v1 pattern types. v2 flexible. v3 resources of type USER.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.apis.k30_create_acls import may_alter_acls, times_named
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, listed, parts_of
from headrace.broker.requests.registry import handles
from headrace.controller.acls import ACLS_MAX, DeleteAcls
from headrace.controller.context import ApiError
from headrace.metadata.acls import UNKNOWN, AclBinding, AclFilter
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


_TOO_MANY_FILTERS: Final = ApiError(
    ErrorCode.INVALID_REQUEST, f"A request may not have more than {ACLS_MAX} different filters."
)


@handles(ApiKey.DELETE_ACLS)
async def handle(broker: NodeServices, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Deletes ACLs; each filter has its own result."""
    filters = await listed(broker, context, request.filters, _filter)
    result = await _deleted(broker, context, filters)
    return DeleteAclsResponse(filter_results=await in_turn(broker, context, _results_of(filters, result)))


async def _deleted(
    broker: NodeServices, context: RequestContext, filters: Sequence[AclFilter]
) -> ApiError | dict[AclFilter, ApiError | list[AclBinding]]:
    """Returns the ACLs that each filter has deleted, or the error of all."""
    refused = may_alter_acls(context)
    if refused is not None:
        return refused
    times = await in_turn(broker, context, times_named(filters))
    if times is None:
        return _TOO_MANY_FILTERS
    try:
        results = await broker.controller.ask(DeleteAcls(times))
    except ControllerError as error:
        return ApiError(error.code, str(error))
    done = [acl for result in results if not isinstance(result, ApiError) for acl in result]
    broker.audit.acls_altered("deleted", context.principal, context.client_host, done)
    return dict(zip(times, results, strict=True))


def _filter(each: DeleteAclsFilter) -> AclFilter:
    if UNKNOWN in (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type):
        raise CloseConnectionError("filters of ACLs with UNKNOWN elements")
    return AclFilter(
        each.resource_type_filter,
        each.resource_name_filter,
        each.pattern_type_filter,
        each.principal_filter,
        each.host_filter,
        each.operation,
        each.permission_type,
    )


def _results_of(
    filters: Sequence[AclFilter], result: ApiError | dict[AclFilter, ApiError | list[AclBinding]]
) -> Steps[list[DeleteAclsFilterResult]]:
    found: list[DeleteAclsFilterResult] = []
    for each in filters:
        yield 1
        of_filter = result if isinstance(result, ApiError) else result[each]
        if isinstance(of_filter, ApiError):
            found.append(DeleteAclsFilterResult(of_filter.code, of_filter.message, []))
            continue
        found.append(DeleteAclsFilterResult(0, None, []))
        for some in parts_of(of_filter, SMALL_PER_STEP):
            found[-1].matching_acls.extend([DeleteAclsMatchingAcl(0, None, *acl) for acl in some])
            yield 1
    return found
