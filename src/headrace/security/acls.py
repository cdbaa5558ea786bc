"""Decides by ACLs what a principal may do, as Kafka's StandardAuthorizer does. Source: KIP-11, KIP-290, KIP-801.

ACLs are found by a resource's type and name, and prefixes of names by their lengths, so that a decision looks at those
of one principal on one resource alone. Decisions are remembered until an ACL changes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from headrace.metadata.acls import (
    ALL_OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
    binding_of,
)
from headrace.security.authorizer import (
    FIRST_GENERATION,
    UNCACHED,
    Audit,
    AuthorizerNotReadyError,
    Operation,
    ResourceType,
)
from headrace.wire.messages.metadata_records import AccessControlEntryRecord

DECISIONS_MAX: Final = 65_536
"""So many decisions are remembered; then all are forgotten."""
REMEMBERED_NAME_MAX: Final = 255
"""Nothing is remembered of what has a longer name: requests may name anything, and topics are no longer than 249."""
ANY_NAME: Final = "hardcode"
"""Kafka asks for a resource of this name first where any will do: a super user may use it, whatever ACLs say."""

_IMPLY_DESCRIBE: Final = frozenset(
    {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
)
_IMPLY_DESCRIBE_CONFIGS: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS})

_OfPrincipal = dict[str, dict[bytes, AclBinding]]
"""The ACLs of one pattern: by principal, then by id."""


def java_host(host: str) -> str:
    """A client's address as ACLs name it: IPv6 without `::`, and an IPv4 address that travels in IPv6 as itself."""
    if ":" not in host:
        return host
    text, percent, scope = host.partition("%")
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")) + percent + scope


def applies(acl: AclBinding, host: str, operation: int) -> bool:
    """Whether an ACL, of the right principal and resource, is about an operation from a host (as `java_host`)."""
    if acl.host not in (WILDCARD, host):
        return False
    if acl.operation in (ALL_OPERATIONS, operation):
        return True
    if acl.permission != Permission.ALLOW:
        return False
    if operation == Operation.DESCRIBE:
        return acl.operation in _IMPLY_DESCRIBE
    return operation == Operation.DESCRIBE_CONFIGS and acl.operation in _IMPLY_DESCRIBE_CONFIGS


class AclAuthorizer:
    """See `Authorizer`. It knows ACLs from `follow` on; before that it answers for super users alone.

    `super_users` are principals (`User:name`) that may do everything, whatever ACLs say. `allow_if_no_acl`: what no
    ACL at all is about, everyone may use.
    """

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False, audit: Audit | None = None
    ) -> None:
        self.audit = audit
        # Audited decisions are made each time; and so are those that are not known yet.
        self._stays = audit is not None and audit.wants_allowed
        self.generation = UNCACHED
        self.super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._loaded = False
        self.look_for_acls: Callable[[], None] = lambda: None
        """Called where somebody asks and no ACLs are known: `follow` may be called by then."""
        self._records: Mapping[bytes, AccessControlEntryRecord] = {}
        self._acls: dict[bytes, AclBinding] = {}
        self._literal: dict[tuple[int, str], _OfPrincipal] = {}
        self._prefixed: dict[tuple[int, str], _OfPrincipal] = {}
        self._lengths: dict[int, dict[int, int]] = {}
        """How many prefixes there are, by resource type and length."""
        self._decisions: dict[tuple[str, str, int, str | None], bool] = {}
        """By principal, address, resource type and operation, and name; None for `authorize_any`."""

    # --- what it goes by

    def follow(self, records: Mapping[bytes, AccessControlEntryRecord]) -> None:
        """Goes by these ACLs (records by id) from now on. Costs what changed, and a look at all."""
        old = self._records
        if records is old and self._loaded:
            return
        gone = [acl_id for acl_id in old if acl_id not in records]
        come = [(acl_id, record) for acl_id, record in records.items() if old.get(acl_id) is not record]
        for acl_id in gone:
            self._take_out(acl_id)
        for acl_id, record in come:
            self._take_out(acl_id)
            self._put_in(acl_id, binding_of(record))
        self._records = records
        if gone or come or not self._loaded:
            self._loaded = True
            if not self._stays:
                self.generation = max(self.generation + 1, FIRST_GENERATION)
            self._decisions = {}

    def _patterns(self, acl: AclBinding) -> dict[tuple[int, str], _OfPrincipal]:
        return self._literal if acl.pattern_type == PatternType.LITERAL else self._prefixed

    def _put_in(self, acl_id: bytes, acl: AclBinding) -> None:
        self._acls[acl_id] = acl
        patterns = self._patterns(acl)
        key = (acl.resource_type, acl.name)
        if key not in patterns:
            patterns[key] = {}
            if patterns is self._prefixed:
                lengths = self._lengths.setdefault(acl.resource_type, {})
                lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1
        patterns[key].setdefault(acl.principal, {})[acl_id] = acl

    def _take_out(self, acl_id: bytes) -> None:
        acl = self._acls.pop(acl_id, None)
        if acl is None:
            return
        patterns = self._patterns(acl)
        key = (acl.resource_type, acl.name)
        of_principal = patterns[key]
        del of_principal[acl.principal][acl_id]
        if of_principal[acl.principal]:
            return
        del of_principal[acl.principal]
        if of_principal:
            return
        del patterns[key]
        if patterns is self._prefixed:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    # --- what it says

    def authorize(
        self, principal: str, client_host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """See Authorizer."""
        key = (principal, client_host, resource << 8 | operation, name)
        known = self._decisions.get(key)
        if known is not None:
            return known
        allowed = self._decide(principal, java_host(client_host), operation, resource, name)
        return allowed if len(name) > REMEMBERED_NAME_MAX else self._remember(key, allowed)

    def _remember(self, key: tuple[str, str, int, str | None], allowed: bool) -> bool:
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions = {}
        self._decisions[key] = allowed
        return allowed

    def _decide(self, principal: str, host: str, operation: int, resource: int, name: str) -> bool:
        if principal in self.super_users:
            return True
        self._must_be_loaded()
        allowed = False
        is_named = False
        for of_principal in self._about(resource, name):
            is_named = True
            for who in (principal, WILDCARD_PRINCIPAL):
                for acl in of_principal.get(who, {}).values():
                    if applies(acl, host, operation):
                        if acl.permission != Permission.ALLOW:
                            return False
                        allowed = True
        return allowed if is_named else self._allow_if_no_acl

    def _must_be_loaded(self) -> None:
        if not self._loaded:
            self.look_for_acls()
            if not self._loaded:
                raise AuthorizerNotReadyError

    def _about(self, resource: int, name: str) -> Iterator[_OfPrincipal]:
        """Returns the ACLs of a resource, of all principals."""
        for key in (name, WILDCARD) if name != WILDCARD else (WILDCARD,):
            found = self._literal.get((resource, key))
            if found is not None:
                yield found
        for length in self._lengths.get(resource, ()):
            if length <= len(name):
                found = self._prefixed.get((resource, name[:length]))
                if found is not None:
                    yield found

    def authorize_any(self, principal: str, client_host: str, operation: Operation, resource: ResourceType) -> bool:
        """See Authorizer. As in Kafka only what names the operation or ALL counts, and nothing that implies it."""
        if self.authorize(principal, client_host, operation, resource, ANY_NAME):
            return True
        self._must_be_loaded()
        key = (principal, client_host, resource << 8 | operation, None)
        known = self._decisions.get(key)
        # All ACLs are searched: repeated requests must not keep the node busy with that.
        return (
            self._remember(key, self._decide_any(principal, client_host, operation, resource))
            if known is None
            else known
        )

    def _decide_any(self, principal: str, client_host: str, operation: int, resource: int) -> bool:
        host = java_host(client_host)
        allowed: list[AclBinding] = []
        denied: set[tuple[int, str]] = set()
        for acl in self._acls.values():
            if (
                acl.resource_type != resource
                or acl.principal not in (principal, WILDCARD_PRINCIPAL)
                or acl.host not in (WILDCARD, host)
                or acl.operation not in (ALL_OPERATIONS, operation)
            ):
                continue
            if acl.permission == Permission.ALLOW:
                allowed.append(acl)
            else:
                denied.add((acl.pattern_type, acl.name))
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        if (literal, WILDCARD) in denied:
            return False
        for acl in allowed:
            is_literal = acl.pattern_type == literal
            if is_literal and acl.name == WILDCARD:
                return True
            if is_literal and (literal, acl.name) in denied:
                continue
            if not any((prefixed, acl.name[:end]) in denied for end in range(1, len(acl.name) + 1)):
                return True
        return False

    def acls(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that a filter finds."""
        return [acl for acl in self._acls.values() if wanted.finds(acl)]
