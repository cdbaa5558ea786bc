"""Settings of authentication and authorization; while listeners are PLAINTEXT and open, most of them are refused."""

from __future__ import annotations

from typing import Final

from .setting import Family, Setting, Type, Value

PLAINTEXT: Final = "PLAINTEXT"
SERVED_PROTOCOLS: Final = (PLAINTEXT, "SSL")
"""What listeners may speak so far."""
UNPROTECTED: Final = "this release serves only PLAINTEXT listeners without authentication: data would go unprotected"
_OPEN: Final = "there is no authorizer yet, and everything would be open"
_NO_SECURITY: Final = "this release serves only PLAINTEXT listeners"


def _served_check(value: Value) -> str:
    return "" if value in SERVED_PROTOCOLS else UNPROTECTED


SECURITY_ROWS: Final[tuple[Setting, ...]] = (
    Setting(
        "security.inter.broker.protocol",
        Type.STRING,
        PLAINTEXT,
        "The protocol that brokers use among themselves; `PLAINTEXT` or `SSL` so far.",
        choices=(PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        check=_served_check,
    ),
    Setting(
        "early.start.listeners",
        Type.LIST,
        None,
        "Listeners that open before an authorizer is ready.",
        refused=UNPROTECTED,
    ),
    Setting(
        "authorizer.class.name",
        Type.STRING,
        "",
        "Class that decides the rights of each principal; empty: everything is open.",
        refused=_OPEN,
    ),
    Setting(
        "super.users",
        Type.STRING,
        None,
        "Principals that may do everything: `User:name;...`.",
        internal=True,
        refused=_OPEN,
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        Type.BOOLEAN,
        False,
        "Whether everyone may use a resource that no ACL names.",
        internal=True,
        refused=_OPEN,
    ),
    Setting(
        "principal.builder.class",
        Type.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Class that names the principal of a connection.",
        update="per-broker",
        refused=UNPROTECTED,
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        Type.INT,
        100,
        "How long the broker keeps a connection that failed to authenticate before it closes it.",
        at_least=0,
        unserved=_NO_SECURITY,
    ),
    Setting(
        "connections.max.reauth.ms",
        Type.LONG,
        0,
        "How long an authenticated session lives; 0: without end.",
        refused=UNPROTECTED,
    ),
    Setting("security.providers", Type.STRING, None, "Java security providers.", refused=UNPROTECTED),
)

SECURITY_FAMILIES: Final[tuple[Family, ...]] = (
    Family("sasl.", "Authentication with SASL.", UNPROTECTED),
    Family("delegation.token.", "Authentication with delegation tokens.", UNPROTECTED),
)
