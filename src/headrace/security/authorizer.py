"""The one question that every handler asks before it acts: may this principal do this to that resource?

The codes are those of Kafka's AclOperation and ResourceType, which go over the wire in authorized-operations bit fields
and in ACL records. Without an authorizer the answer is always yes (`OpenAuthorizer`), or, where there are ACLs all the
same, no (`ClosedAuthorizer`); `security.acls` has the one that goes by ACLs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

from headrace.metadata import acls

CLUSTER_NAME: Final = acls.CLUSTER_NAME
"""The name of the one resource of type CLUSTER."""


class Operation(IntEnum):
    """The operation (Kafka's AclOperation codes)."""

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


UNCACHED: Final = -1
OPEN_GENERATION: Final = 0
FIRST_GENERATION: Final = 1
"""Generations of authorizers, see `Authorizer.generation`: of one whose answers hold for one request only, of one that
allows everything, and the first of one that goes by rules.
"""


class AuthorizerNotReadyError(Exception):
    """The ACLs are not loaded yet: the client has to retry. It is neither allowed nor refused."""


class Audit(Protocol):
    """Receives the decisions on requested operations."""

    wants_allowed: bool
    """Whether of those that allow it too."""

    def decided(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        api_key: int,
        *,
        allowed: bool,
    ) -> None:
        """A request of this API (-1: none) asked for an operation."""
        ...


class Authorizer(Protocol):
    """Answers whether a principal may do an operation to a resource. Both questions raise AuthorizerNotReadyError."""

    generation: int
    """Every answer is valid for as long as this number stays the same: a cache compares it.

    `UNCACHED`: none may be remembered.
    """

    @property
    def audit(self) -> Audit | None:
        """Who hears what it decided, from those who ask it; None: nobody."""
        ...

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """True when `principal`, connected from `client_host`, may do `operation` to the `resource` called `name`."""
        ...

    def authorize_any(self, principal: str, client_host: str, operation: Operation, resource: ResourceType) -> bool:
        """True when it may do `operation` to at least one `resource`, whether there is one of that name or not."""
        ...


class OpenAuthorizer:
    """Everyone may do everything: a broker without an authorizer, as Kafka is by default."""

    generation = OPEN_GENERATION
    audit: Audit | None = None

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Always true."""
        return True

    def authorize_any(self, principal: str, client_host: str, operation: Operation, resource: ResourceType) -> bool:
        """Always true."""
        return True


class ClosedAuthorizer:
    """Nobody may do anything, apart from what the nodes of a cluster do to one another."""

    generation = UNCACHED
    audit: Audit | None = None

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """True for a node's own business."""
        return operation is Operation.CLUSTER_ACTION

    def authorize_any(self, principal: str, client_host: str, operation: Operation, resource: ResourceType) -> bool:
        """Never."""
        return False
