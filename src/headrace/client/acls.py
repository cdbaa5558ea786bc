"""ACLs: who may do what to which topics, groups and other things of a cluster.

Functions over a `Client`, one a task. Every broker answers and has the controller decide. Names are Kafka's, in small
letters with hyphens as commands write them. Source: KIP-11, KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.client.conversation import Steps
from headrace.client.errors import BrokerError
from headrace.client.operations import operation
from headrace.client.routing import Router

if TYPE_CHECKING:
    from headrace.wire.messages.k31_delete_acls import DeleteAclsResponse

ANY: Final = 1
"""In a filter: whatever an ACL says there."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type `cluster`."""
ACLS_PER_REQUEST: Final = 1000
"""A controller takes no more than ten times as many at once."""

RESOURCES: Final[Mapping[str, int]] = {
    "topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7,
}  # fmt: skip
PATTERNS: Final[Mapping[str, int]] = {"match": 2, "literal": 3, "prefixed": 4}
"""`match` is for filters alone: every pattern that applies to a resource of that name."""
OPERATIONS: Final[Mapping[str, int]] = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8, "cluster-action": 9,
    "describe-configs": 10, "alter-configs": 11, "idempotent-write": 12, "create-tokens": 13, "describe-tokens": 14,
    "two-phase-commit": 15,
}  # fmt: skip
PERMISSIONS: Final[Mapping[str, int]] = {"deny": 2, "allow": 3}

OPERATIONS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs"),
    "group": ("read", "delete", "describe", "describe-configs", "alter-configs"),
    "cluster": (
        "create", "alter", "describe", "cluster-action", "describe-configs", "alter-configs", "idempotent-write",
    ),
    "transactional-id": ("write", "describe", "two-phase-commit"),
    "delegation-token": ("describe",),
    "user": ("create-tokens", "describe-tokens"),
}  # fmt: skip
"""What an ACL on each kind of resource can be about, beside `all`."""


class Acl(NamedTuple):
    """One ACL: `principal` (`User:ann`), from `host` (`*`: from anywhere), may or may not do `operation` to the
    resources of type `resource` that `name` names, whole or as a prefix."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


class AclFilter(NamedTuple):
    """What finds ACLs; None finds whatever an ACL says there."""

    resource: str | None = None
    name: str | None = None
    pattern: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: str | None = None
    permission: str | None = None


EVERY_ACL: Final = AclFilter()


@operation
def create_acls(router: Router, acls: Iterable[Acl]) -> Steps[None]:
    """Create ACLs; one that is there already stays. Raises `BrokerError` for the first that is refused:
    SECURITY_DISABLED where the cluster has no authorizer."""
    from headrace.wire.messages import k30_create_acls as k30

    wanted = list(acls)
    for at in range(0, len(wanted), ACLS_PER_REQUEST):
        part = wanted[at : at + ACLS_PER_REQUEST]
        creations = [k30.AclCreation(*_codes(acl)) for acl in part]

        def error_of(response: k30.CreateAclsResponse) -> tuple[int, str | None]:
            bad = next((result for result in response.results if result.error_code), None)
            return (0, None) if bad is None else (bad.error_code, bad.error_message)

        about = f"the ACL on {part[0].resource} {part[0].name}" if len(part) == 1 else f"{len(part)} ACLs"
        yield from router.checked(k30.CreateAclsRequest(creations), k30.CreateAclsResponse, error_of, about)


@operation
def find_acls(router: Router, wanted: AclFilter = EVERY_ACL) -> Steps[list[Acl]]:
    """The ACLs that a filter finds, sorted. Raises `BrokerError`, SECURITY_DISABLED where the cluster has no
    authorizer."""
    from headrace.wire.messages import k29_describe_acls as k29

    response = yield from router.checked(
        k29.DescribeAclsRequest(*_filter_codes(wanted)),
        k29.DescribeAclsResponse,
        lambda r: (r.error_code, r.error_message or None),
        "ACLs",
    )
    return sorted(
        _acl(
            resource.resource_type, resource.resource_name, resource.pattern_type,
            acl.principal, acl.host, acl.operation, acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    )  # fmt: skip


@operation
def delete_acls(router: Router, filters: Sequence[AclFilter]) -> Steps[list[Acl]]:
    """Delete what any of the filters finds; returns what was deleted, sorted. Raises `BrokerError` for the first that
    was not."""
    from headrace.wire.messages import k31_delete_acls as k31

    gone: set[Acl] = set()
    for at in range(0, len(filters), ACLS_PER_REQUEST):
        part = [k31.DeleteAclsFilter(*_filter_codes(each)) for each in filters[at : at + ACLS_PER_REQUEST]]
        request = k31.DeleteAclsRequest(part)
        response = yield from router.checked(request, k31.DeleteAclsResponse, _failure_of_deletion, "ACLs")
        for result in response.filter_results:
            for acl in result.matching_acls:
                if acl.error_code:
                    raise BrokerError(acl.error_code, f"the ACL of {acl.principal}", acl.error_message)
                gone.add(
                    _acl(
                        acl.resource_type, acl.resource_name, acl.pattern_type,
                        acl.principal, acl.host, acl.operation, acl.permission_type,
                    )
                )  # fmt: skip
    return sorted(gone)


def _failure_of_deletion(response: DeleteAclsResponse) -> tuple[int, str | None]:
    bad = next((result for result in response.filter_results if result.error_code), None)
    return (0, None) if bad is None else (bad.error_code, bad.error_message)


def _codes(acl: Acl) -> tuple[int, str, int, str, str, int, int]:
    """As the wire has it."""
    return (
        RESOURCES[acl.resource], acl.name, PATTERNS[acl.pattern],
        acl.principal, acl.host, OPERATIONS[acl.operation], PERMISSIONS[acl.permission],
    )  # fmt: skip


def _filter_codes(wanted: AclFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    def code(names: Mapping[str, int], name: str | None) -> int:
        return ANY if name is None else names[name]

    return (
        code(RESOURCES, wanted.resource), wanted.name, code(PATTERNS, wanted.pattern),
        wanted.principal, wanted.host, code(OPERATIONS, wanted.operation), code(PERMISSIONS, wanted.permission),
    )  # fmt: skip


def _acl(resource: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int) -> Acl:
    return Acl(
        _name(RESOURCES, resource), name, _name(PATTERNS, pattern),
        principal, host, _name(OPERATIONS, operation), _name(PERMISSIONS, permission),
    )  # fmt: skip


def _name(names: Mapping[str, int], code: int) -> str:
    """A newer broker may have codes that this does not know."""
    return next((name for name, each in names.items() if each == code), f"unknown-{code}")
