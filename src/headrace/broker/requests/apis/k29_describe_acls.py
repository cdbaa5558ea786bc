"""DescribeAcls (29), versions 1-3: the ACLs that match a filter, by resource.

Source: KIP-140, KIP-290.
v1 pattern types. v2 flexible. v3 resources of type USER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.metadata.acls import UNKNOWN, AclBinding, AclFilter
from headrace.security.acls import AclAuthorizer
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.DESCRIBE_ACLS)
def handle(node: NodeServices, request: DescribeAclsRequest, context: RequestContext) -> Any:
    """Returns matching ACLs from this node's metadata."""
    return in_pieces(node, context, _described(request, context))


def _described(request: DescribeAclsRequest, context: RequestContext) -> Steps[DescribeAclsResponse]:
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if UNKNOWN in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        raise CloseConnectionError("a filter of ACLs with UNKNOWN elements")
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    authorizer = context.authorizer
    if not isinstance(authorizer, AclAuthorizer):
        return _refused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    found: list[AclBinding] = []
    for acl in authorizer.acls(wanted):
        found.append(acl)
        yield 1
    for acl in sorted(found):
        yield 1
        pattern = acl.resource_type, acl.name, acl.pattern_type
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(*pattern, [])
        resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission))
    return DescribeAclsResponse(resources=list(resources.values()))


def _refused(error: ErrorCode, message: str = "") -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error, error_message=message or message_of(error))
