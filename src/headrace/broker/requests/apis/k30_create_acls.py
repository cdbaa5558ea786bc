"""CreateAcls (30), versions 1-3: the controller stores ACLs; one that is stored already counts as done.

Source: KIP-140, KIP-290.
v1 pattern types. v2 flexible. v3 resources of type USER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, listed, parts_of
from headrace.broker.requests.registry import handles
from headrace.controller.acls import ACLS_MAX, CreateAcls
from headrace.controller.context import TOO_MANY_RECORDS, ApiError
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

T = TypeVar("T")

NO_AUTHORIZER = ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


@handles(ApiKey.CREATE_ACLS)
async def handle(broker: NodeServices, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Creates ACLs; each has its own result."""
    acls = await listed(broker, context, request.creations, _binding)
    result = await _created(broker, context, acls)

    def result_of(acl: AclBinding) -> AclCreationResult:
        each = result if isinstance(result, ApiError) else result[acl]
        return AclCreationResult(each.code, each.message)

    return CreateAclsResponse(results=await listed(broker, context, acls, result_of))


async def _created(
    broker: NodeServices, context: RequestContext, acls: Sequence[AclBinding]
) -> ApiError | dict[AclBinding, ApiError]:
    """Returns the result of each ACL, or the error of all."""
    refused = may_alter_acls(context)
    if refused is not None:
        return refused
    times = await in_turn(broker, context, times_named(acls))
    if times is None:
        return TOO_MANY_RECORDS
    try:
        results = await broker.controller.ask(CreateAcls(list(times)))
    except ControllerError as error:
        return ApiError(error.code, str(error))
    created = dict(zip(times, results, strict=True))
    done = [acl for acl, result in created.items() if not result.code]
    broker.audit.acls_altered("created", context.principal, context.client_host, done)
    return created


def times_named(things: Sequence[T]) -> Steps[Counter[T] | None]:
    """Returns how often a request names each ACL or filter, as the controller decides on all of them in one turn. None
    if there are more than it decides on."""
    times: Counter[T] = Counter()
    for some in parts_of(things, SMALL_PER_STEP):
        times.update(some)
        if len(times) > ACLS_MAX:
            return None
        yield 1
    return times


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
    """Returns the error if the client may not alter ACLs, else None."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ApiError(denied, message_of(denied))
    return None if isinstance(context.authorizer, AclAuthorizer) else NO_AUTHORIZER
