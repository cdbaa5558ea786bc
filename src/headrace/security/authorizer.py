"""The one question that every handler asks before it acts: may this principal do this to that resource?

The codes are those of Kafka's AclOperation and ResourceType, which go over the wire in authorized-operations bit fields
and in ACL records. Until ACLs are served the answer is always yes (`OpenAuthorizer`), or, where there are some all the
same, no (`ClosedAuthorizer`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class Operation(IntEnum):
    """What is to be done (Kafka's AclOperation codes)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What it is done to (Kafka's ResourceType codes)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
}
"""The operations that exist for a resource, as the authorized-operations bit fields report them."""


class Authorizer(Protocol):
    """Answers whether a principal may do an operation to a resource."""

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """True when `principal`, connected from `client_host`, may do `operation` to the `resource` called `name`."""
        ...


class OpenAuthorizer:
    """Everyone may do everything: a broker without an authorizer, as Kafka is by default."""

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Always true."""
        return True


class ClosedAuthorizer:
    """Nobody may do anything, apart from what the nodes of a cluster do to one another."""

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """True for a node's own business."""
        return operation is Operation.CLUSTER_ACTION
