"""CreateAcls (30), versions 1-3: the controller stores ACLs; one that is stored already counts as done.

Source: KIP-140, KIP-290.
v1 pattern types. v2 flexible. v3 resources of type USER.
Not done: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.pieces import listed
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.requests import CreateAcls
from headrace.metadata.acls import UNKNOWN, AclBinding
from headrace.security.acls import AclAuthorizer
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k30_create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices

NO_AUTHORIZER = ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


@handles(ApiKey.CREATE_ACLS)
async def handle(broker: NodeServices, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Each ACL has a result of its own."""
    acls = await listed(broker, context, request.creations, _binding)
    refused = may_alter_acls(context)
    if refused is not None:
        results = [refused] * len(acls)
    else:
        try:
            results = await broker.controller.ask(CreateAcls(acls))
            done = [acl for acl, result in zip(acls, results, strict=True) if not result.code]
            broker.audit.acls_altered("created", context.principal, context.client_host, done)
        except ControllerError as error:
            results = [ApiError(error.code, str(error))] * len(acls)
    return CreateAclsResponse(
        results=await listed(broker, context, results, lambda each: AclCreationResult(each.code, each.message))
    )


def _binding(each: AclCreation) -> AclBinding:
    if UNKNOWN in (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type):
        raise CloseConnectionError("ACLs with UNKNOWN elements")
    return AclBinding(
        each.resource_type,
        each.resource_name,
        each.resource_pattern_type,
        each.principal,
        each.host,
        each.operation,
        each.permission_type,
    )


def may_alter_acls(context: RequestContext) -> ApiError | None:
    """Why a client may not alter ACLs, or None."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ApiError(denied, message_of(denied))
    return None if isinstance(context.authorizer, AclAuthorizer) else NO_AUTHORIZER
