"""Computes the authorized-operations fields of responses: a bit for each operation that the client may do. KIP-430."""

from __future__ import annotations

from headrace.broker.net.context import RequestContext
from headrace.security.authorizer import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType

NOT_REQUESTED = -(2**31)
"""The field's value if the client did not ask."""


def authorized_operations(context: RequestContext, resource: ResourceType, name: str) -> int:
    """Returns a bit for each operation (by its AclOperation code) that the client may do to a resource."""
    bits = 0
    for operation in OPERATIONS_OF[resource]:
        if context.may(operation, resource, name):
            bits |= 1 << operation
    return bits


def cluster_operations(context: RequestContext) -> int:
    """Returns the bits of the cluster: none for a client that may not describe it."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
