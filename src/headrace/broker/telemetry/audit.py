"""The audit log: denials, failed logins, and changes of ACLs, users, quotas and tokens. The logger is
`headrace.authorizer`.

Like Kafka's `kafka.authorizer.logger`, it logs denials at INFO and allowed requests at DEBUG; the latter are off here
unless `audit.allowed` is set. Unauthenticated clients can cause lines at any rate: each address and all together are
limited to some lines a second, and the next line counts those left out. Names from clients are truncated, and the log
escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.telemetry.pace import LineLimit
from headrace.metadata.acls import ALL_OPERATIONS, AclBinding, PatternType, Permission
from headrace.metadata.client_quotas import names_of
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import APIS

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry
    from headrace.controller.quotas import QuotaAlteration
    from headrace.env import LogSink
    from headrace.wire.messages.metadata_records import DelegationTokenRecord

NAME_CHARS_MAX: Final = 256
"""Longest part of a client's name that a line shows."""
CHANGES_LOGGED_MAX: Final = 100
"""Bound on the changes of one request that are logged one by one; one more line counts the rest."""
DEFAULT_NAME: Final = "<default>"
"""Name for quotas of all users, client ids or addresses without their own, as in Kafka's tools."""


class AuditLog:
    """The audit log of one node."""

    def __init__(
        self,
        log: LogSink,
        monotonic: Callable[[], float],
        metrics: Registry,
        *,
        lines_per_s: int,
        wants_allowed: bool = False,
    ) -> None:
        """`lines_per_s` limits denials, failed logins and changes of tokens, each separately.

        `wants_allowed`: allowed requests are logged too, at DEBUG, and do not count towards the limit.
        """
        self._log = log
        self.wants_allowed = wants_allowed
        self._denials = LineLimit(monotonic, lines_per_s)
        self._failures = LineLimit(monotonic, lines_per_s)
        self._tokens = LineLimit(monotonic, lines_per_s)
        self._denied = metrics.counter("authorizer.denied")
        self._left_out = metrics.counter("audit.lines_left_out")

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
        """Logs a decision of the authorizer (see `security.authorizer.Audit`)."""
        if not allowed:
            self._denied.value += 1
            if not self._denials.has_room((principal, host)):
                self._left_out.value += 1
                return
        api = APIS[api_key].name if api_key in APIS else ""
        tell = self._log.debug if allowed else self._log.info
        tell(
            "allowed" if allowed else "denied",
            principal=shown(principal),
            host=host,
            operation=operation.name,
            resource=resource.name,
            name=shown(name),
            api=api,
            **({} if allowed else self._denials.left_out()),
        )

    def login_failed(self, principal: str, mechanism: str, host: str, why: str) -> None:
        """Logs the failed login of a client that claims to be `principal` (empty: it has not named one yet)."""
        if not self._failures.has_room(host):
            self._left_out.value += 1
            return
        self._log.info(
            "login failed",
            principal=shown(principal),
            mechanism=shown(mechanism),
            host=host,
            why=shown(why),
            **self._failures.left_out(),
        )

    def acls_altered(self, done: str, principal: str, host: str, acls: Sequence[AclBinding]) -> None:
        """Logs altered ACLs; `done` is `created` or `deleted`."""
        changes = [{"acl": _acl_text(acl)} for acl in acls[:CHANGES_LOGGED_MAX]]
        self._altered("ACL", done, principal, host, changes, more=len(acls) - len(changes))

    def users_altered(self, done: str, principal: str, host: str, users: Sequence[tuple[str, str]]) -> None:
        """Logs altered credentials, each with its mechanism; `done` is `set` or `deleted`."""
        changes = [{"user": shown(name), "mechanism": mechanism} for name, mechanism in users[:CHANGES_LOGGED_MAX]]
        self._altered("user", done, principal, host, changes, more=len(users) - len(changes))

    def quotas_altered(self, principal: str, host: str, alterations: Sequence[QuotaAlteration]) -> None:
        """Logs the new quotas of each altered entity."""
        changes = [{**_entity_fields(each), "quotas": _quotas_text(each)} for each in alterations[:CHANGES_LOGGED_MAX]]
        self._altered("quota", "set", principal, host, changes, more=len(alterations) - len(changes))

    def token_altered(self, done: str, principal: str, host: str, token: DelegationTokenRecord) -> None:
        """Logs a change of a token; `done` is `created`, `renewed` or `expired` (it ends sooner).

        Any authenticated client may cause such lines, at any rate, so they are limited.
        """
        if not self._tokens.has_room((principal, host)):
            self._left_out.value += 1
            return
        renewers = shown(" ".join(token.renewers))
        fields = {"token": shown(token.token_id), "owner": shown(token.owner), "renewers": renewers}
        until_ms = token.expiration_timestamp
        self._altered("token", done, principal, host, [{**fields, "until_ms": until_ms, **self._tokens.left_out()}])

    def _altered(
        self, what: str, done: str, principal: str, host: str, changes: Sequence[Mapping[str, str | int]], more: int = 0
    ) -> None:
        """Logs changes; `more` is the number of changes beyond these."""
        for fields in changes[:CHANGES_LOGGED_MAX]:
            self._log.info(f"{what} {done}", by=shown(principal), host=host, **fields)
        more += max(0, len(changes) - CHANGES_LOGGED_MAX)
        if more:
            self._log.info(f"more {what}s {done}", by=shown(principal), host=host, count=more)


def shown(text: str) -> str:
    """Returns a text from elsewhere as a line shows it."""
    return text if len(text) <= NAME_CHARS_MAX else text[:NAME_CHARS_MAX] + "..."


def _entity_fields(alteration: QuotaAlteration) -> dict[str, str]:
    return {
        kind.replace("-", "_"): DEFAULT_NAME if name is None else shown(name)
        for kind, name in names_of(alteration.entity).items()
    }


def _quotas_text(alteration: QuotaAlteration) -> str:
    return " ".join(f"{shown(key)}={'none' if value is None else value}" for key, value in alteration.changes)


def _acl_text(acl: AclBinding) -> str:
    def named(kinds: type[Operation | ResourceType | PatternType | Permission], code: int) -> str:
        return kinds(code).name if code in [int(each) for each in kinds] else str(code)

    operation = "ALL" if acl.operation == ALL_OPERATIONS else named(Operation, acl.operation)
    where = f"{named(ResourceType, acl.resource_type)}:{named(PatternType, acl.pattern_type)}:{shown(acl.name)}"
    return f"{named(Permission, acl.permission)} {shown(acl.principal)} from {shown(acl.host)} {operation} on {where}"
