"""A broker with an authorizer, and rules by address: on PLAINTEXT every client is User:ANONYMOUS."""

from __future__ import annotations

from typing import Any

from broker.raw import Raw

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.metadata.acls import EVERY_ACL
from headrace.security.authorizer import CLUSTER_NAME, ResourceType
from headrace.testing.running import SettingValue
from headrace.wire.messages import k29_describe_acls as k29
from headrace.wire.messages import k30_create_acls as k30
from headrace.wire.messages import k31_delete_acls as k31

OWNER, CLIENT = "127.0.0.1", "127.0.0.2"
"""Who may do everything, and who what a test says."""
ALL, DENY, ALLOW, MATCH, LITERAL, PREFIXED = 2, 2, 3, 2, 3, 4
OPEN_WITHOUT_ACLS: dict[str, SettingValue] = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": True,
}
"""Settings: the first client makes the rules."""


def acl(
    resource: int,
    name: str,
    operation: int,
    *,
    host: str = CLIENT,
    pattern: int = LITERAL,
    permission: int = ALLOW,
    principal: str = "User:ANONYMOUS",
) -> k30.AclCreation:
    return k30.AclCreation(resource, name, pattern, principal, host, operation, permission)


def everything(host: str) -> list[k30.AclCreation]:
    """All rights of a host."""
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER)
    return [acl(kind, CLUSTER_NAME if kind == ResourceType.CLUSTER else "*", ALL, host=host) for kind in kinds]


def create(raw: Raw, *acls: k30.AclCreation, version: int = 3) -> list[int]:
    """The error code of each."""
    return [each.error_code for each in raw.ask(k30.CreateAclsRequest(list(acls)), version).results]


def _filter(fields: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(EVERY_ACL._replace(**fields))


def delete(raw: Raw, version: int = 3, **fields: Any) -> Any:
    """The result of one filter, whose fields are as in `AclFilter`."""
    (result,) = raw.ask(k31.DeleteAclsRequest([k31.DeleteAclsFilter(*_filter(fields))]), version).filter_results
    return result


def describe(raw: Raw, version: int = 3, **fields: Any) -> Any:
    """The answer to one filter."""
    return raw.ask(k29.DescribeAclsRequest(*_filter(fields)), version)
