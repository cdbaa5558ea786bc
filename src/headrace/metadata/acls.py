"""ACLs as values: what one says, what a filter finds, and why one is refused. Source: KIP-11, KIP-290.

All codes are those of the wire and of the metadata records (Kafka's ResourceType, PatternType, AclOperation and
AclPermissionType). A code that Kafka does not know counts as UNKNOWN there, and so it does here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.wire.messages.metadata_records import AccessControlEntryRecord

UNKNOWN: Final = 0
ANY: Final = 1
"""In a filter: whatever an ACL says there. The code of each of the four enumerations."""
ALL_OPERATIONS: Final = 2
"""In an ACL: every operation."""
CLUSTER: Final = 4
"""The type of the one resource that is the cluster."""
CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
"""As a name: every resource of the type; as a host: every host."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""In an ACL: everyone."""


class PatternType(IntEnum):
    """What the name of an ACL's resource means. MATCH is for filters alone."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an ACL does."""

    DENY = 2
    ALLOW = 3


RESOURCE_TYPES: Final[Mapping[int, str]] = {
    ANY: "ANY",
    2: "TOPIC",
    3: "GROUP",
    CLUSTER: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
PATTERN_TYPES: Final[Mapping[int, str]] = {ANY: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
OPERATIONS: Final[Mapping[int, str]] = {
    ANY: "ANY",
    ALL_OPERATIONS: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
PERMISSIONS: Final[Mapping[int, str]] = {ANY: "ANY", 2: "DENY", 3: "ALLOW"}
"""Kafka's names of the codes; one that is not here is UNKNOWN."""


def name_of(names: Mapping[int, str], code: int) -> str:
    """Kafka's name of a code."""
    return names.get(code, "UNKNOWN")


class AclBinding(NamedTuple):
    """What one ACL says: a principal, from a host, may do (or not do) an operation to what a pattern names."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """What finds ACLs: None and ANY find all; MATCH finds whatever would apply to a resource of that name."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def finds(self, acl: AclBinding) -> bool:
        """Whether an ACL is among what this asks for."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self._finds_pattern(acl)
        )

    def _finds_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type not in (ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)


EVERY_ACL: Final = AclFilter(ANY, None, ANY, None, None, ANY, ANY)


def binding_of(record: AccessControlEntryRecord) -> AclBinding:
    """What a stored ACL says."""
    return AclBinding(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def record_of(acl_id: bytes, acl: AclBinding) -> AccessControlEntryRecord:
    """The record that stores an ACL under a 16-byte id."""
    return AccessControlEntryRecord(acl_id, *acl)


def refusal_of(acl: AclBinding) -> str:
    """Why an ACL cannot be stored, in Kafka's words (the code is INVALID_REQUEST); "" where it can."""
    if acl.resource_type == CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    for what, names, code, least in (
        ("resourceType", RESOURCE_TYPES, acl.resource_type, ANY),
        ("patternType", PATTERN_TYPES, acl.pattern_type, PatternType.MATCH),
        ("operation", OPERATIONS, acl.operation, ANY),
        ("permissionType", PERMISSIONS, acl.permission, ANY),
    ):
        if code <= least or code not in names:
            return f"Invalid {what} {name_of(names, code)}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return ""


def refusal_of_filter(found: AclFilter) -> str:
    """Why a filter cannot be used to delete, in Kafka's words (the code is INVALID_REQUEST); "" where it can."""
    if found.resource_type not in RESOURCE_TYPES or found.pattern_type not in PATTERN_TYPES:
        return "Unknown patternFilter."
    if found.operation not in OPERATIONS or found.permission not in PERMISSIONS:
        return "Unknown entryFilter."
    return ""
