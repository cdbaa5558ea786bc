"""DeleteAcls (31), versions 1-3: the controller removes the ACLs that filters find, and names them.

Source: KIP-140, KIP-290.
v1 pattern types. v2 flexible. v3 resources of type USER.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.apis.k30_create_acls import may_alter_acls
from headrace.broker.requests.registry import handles
from headrace.controller.acls import AclsDeleted
from headrace.controller.context import ApiError
from headrace.controller.requests import DeleteAcls
from headrace.metadata.acls import UNKNOWN, AclFilter
from headrace.wire.apis import ApiKey
from headrace.wire.messages.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.DELETE_ACLS)
async def handle(broker: NodeServices, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Each filter has a result of its own."""
    filters = [
        AclFilter(
            each.resource_type_filter,
            each.resource_name_filter,
            each.pattern_type_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )
        for each in request.filters
    ]
    if any(UNKNOWN in (each.resource_type, each.pattern_type, each.operation, each.permission) for each in filters):
        raise CloseConnectionError("filters of ACLs with UNKNOWN elements")
    refused = may_alter_acls(context)
    if refused is not None:
        return _answer([refused] * len(filters))
    try:
        results = await broker.controller.ask(DeleteAcls(filters))
        done = [acl for result in results if not isinstance(result, ApiError) for acl in result]
        broker.audit.acls_altered("deleted", context.principal, context.client_host, done)
        return _answer(results)
    except ControllerError as error:
        return _answer([ApiError(error.code, str(error))] * len(filters))


def _answer(results: AclsDeleted) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(result.code, result.message, [])
            if isinstance(result, ApiError)
            else DeleteAclsFilterResult(0, None, [DeleteAclsMatchingAcl(0, None, *acl) for acl in result])
            for result in results
        ]
    )
