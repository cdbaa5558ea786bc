"""The audit: who was refused what, whose login failed and why, who altered ACLs. The logger is `headrace.authorizer`.

Kafka's `kafka.authorizer.logger` says the same: denials at INFO, and what is allowed at DEBUG, which is off here until
`audit.allowed`. Strangers make lines as fast as they like: each gets a few a second, all of them together some more,
and the next line says how many were left out. What a client has named is cut, and the log escapes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.metadata.acls import ALL_OPERATIONS, AclBinding, PatternType, Permission
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import APIS

if TYPE_CHECKING:
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import LogSink

ASKER_LINES_PER_S: Final = 10
"""Of one principal at one address, or of one address where nobody logs in: others are to be seen beside it."""
NAME_CHARS_MAX: Final = 256
"""What a line shows of a name that a client has given."""
ACLS_SAID_MAX: Final = 100
"""So many ACLs of one request have a line each; then one line says how many more there were."""


class AuditLog:
    """Of one node."""

    def __init__(
        self,
        log: LogSink,
        monotonic: Callable[[], float],
        metrics: Registry,
        *,
        lines_per_s: int,
        wants_allowed: bool = False,
    ) -> None:
        """`lines_per_s`: of denials, and as many of failed logins. `wants_allowed`: what is allowed is told too, at
        DEBUG, and is not counted among them."""
        self._log = log
        self.wants_allowed = wants_allowed
        self._denials = _Pace(monotonic, lines_per_s)
        self._failures = _Pace(monotonic, lines_per_s)
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
        """See security.authorizer.Audit."""
        if not allowed:
            self._denied.value += 1
            if not self._denials.has_room(principal, host):
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
        """A client that calls itself `principal` (empty: it said nothing yet) did not prove it."""
        if not self._failures.has_room("", host):
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
        """`done` is `created` or `deleted`."""
        for acl in acls[:ACLS_SAID_MAX]:
            self._log.info(f"ACL {done}", by=shown(principal), host=host, acl=_acl_text(acl))
        if len(acls) > ACLS_SAID_MAX:
            self._log.info(f"more ACLs {done}", by=shown(principal), host=host, count=len(acls) - ACLS_SAID_MAX)


class _Pace:
    """So many lines a second, and a part of them of each asker."""

    def __init__(self, monotonic: Callable[[], float], lines_per_s: int) -> None:
        self._monotonic = monotonic
        self._lines_per_s = lines_per_s
        self._since = float("-inf")
        self._said = 0
        self._askers: dict[tuple[str, str], int] = {}
        """Of this second; no more than lines."""
        self._unsaid = 0

    def has_room(self, principal: str, host: str) -> bool:
        """Whether a line may be written; it is counted either way."""
        now = self._monotonic()
        if now - self._since >= 1:
            self._since, self._said, self._askers = now, 0, {}
        asker = principal, host
        of_asker = self._askers.get(asker, 0)
        if self._said >= self._lines_per_s or of_asker >= ASKER_LINES_PER_S:
            self._unsaid += 1
            return False
        self._said += 1
        self._askers[asker] = of_asker + 1
        return True

    def left_out(self) -> dict[str, int]:
        """What the line that is written now says of those before it that were not."""
        unsaid, self._unsaid = self._unsaid, 0
        return {"left_out": unsaid} if unsaid else {}


def shown(text: str) -> str:
    """What a line shows of a text that somebody else has written."""
    return text if len(text) <= NAME_CHARS_MAX else text[:NAME_CHARS_MAX] + "..."


def _acl_text(acl: AclBinding) -> str:
    def named(kinds: type[Operation | ResourceType | PatternType | Permission], code: int) -> str:
        return kinds(code).name if code in [int(each) for each in kinds] else str(code)

    operation = "ALL" if acl.operation == ALL_OPERATIONS else named(Operation, acl.operation)
    where = f"{named(ResourceType, acl.resource_type)}:{named(PatternType, acl.pattern_type)}:{shown(acl.name)}"
    return f"{named(Permission, acl.permission)} {shown(acl.principal)} from {shown(acl.host)} {operation} on {where}"
