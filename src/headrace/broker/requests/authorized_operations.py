"""The authorized-operations bit fields of responses: a bit for each operation that the client may do. KIP-430."""

from __future__ import annotations

from headrace.broker.net.context import RequestContext
from headrace.security.authorizer import OPERATIONS_OF, ResourceType

NOT_REQUESTED = -(2**31)
"""What the field says when nobody asked."""


def authorized_operations(context: RequestContext, resource: ResourceType, name: str) -> int:
    """A bit for each operation (by its AclOperation code) that the client may do to a resource."""
    bits = 0
    for operation in OPERATIONS_OF[resource]:
        if context.authorize(operation, resource, name):
            bits |= 1 << operation
    return bits
