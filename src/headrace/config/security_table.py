"""Settings of authentication and authorization; those of unserved features are refused."""

from __future__ import annotations

from typing import Final

from .kerberos import KERBEROS_RULES, KERBEROS_SERVICE
from .setting import Family, Setting, Type, Value

PLAINTEXT: Final = "PLAINTEXT"
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS: Final = (PLAINTEXT, "SSL", *SASL_PROTOCOLS)
"""What listeners may speak."""
UNPROTECTED: Final = "this release does not serve that, and data would go unprotected"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The one class of authorizer that there is here, by Kafka's name of it."""
_RENEWED_BY_LIBRARY: Final = (
    "the Kerberos library takes new tickets from a keytab at half of their life, at the next login"
)
_TOKENS_AT_EACH_LOGIN: Final = "a node takes the token of its file, or gets one from the issuer, when it logs in"
_OPENS_IN_ORDER: Final = (
    "listeners of controllers open first in any case, and those of clients once the metadata are read, ACLs included"
)


def _authorizer_check(value: Value) -> str:
    return "" if value in ("", STANDARD_AUTHORIZER) else f"{STANDARD_AUTHORIZER} is the only one that is served"


def principals_of(text: str | None) -> tuple[str, ...]:
    """The principals that a text names, separated by semicolons."""
    return tuple(each.strip() for each in (text or "").split(";") if each.strip())


def _principals_check(value: Value) -> str:
    named = principals_of(None if value is None else str(value))
    bad = next((each for each in named if ":" not in each), None)
    return "" if bad is None else f"expected a string in format principalType:principalName but got {bad}"


def _renewal(name: str, kind: Type, default: float, about: str, least: float, most: float) -> Setting:
    return Setting(
        f"sasl.login.refresh.{name}",
        kind,
        default,
        about,
        at_least=least,
        at_most=most,
        update="per-broker",
        unserved=_TOKENS_AT_EACH_LOGIN,
        by="listener",
    )


SECURITY_ROWS: Final[tuple[Setting, ...]] = (
    Setting(
        "security.inter.broker.protocol",
        Type.STRING,
        PLAINTEXT,
        "The protocol that brokers use among themselves.",
        choices=SERVED_PROTOCOLS,
    ),
    Setting(
        "security.strict",
        Type.BOOLEAN,
        False,
        "Whether a node refuses to start if a listener that other machines can reach lets in clients without a "
        "login; false: it logs a warning.",
        ours=True,
    ),
    Setting(
        "audit.lines.per.second",
        Type.INT,
        100,
        "The most lines per second of the log `headrace.authorizer` about denials, and the most about failed logins "
        "and changes of tokens; the next line says how many were left out. Changes of ACLs, users and quotas are "
        "always logged.",
        at_least=0,
        at_most=100_000,
        ours=True,
    ),
    Setting(
        "audit.allowed",
        Type.BOOLEAN,
        False,
        "Whether the log `headrace.authorizer` also has what is allowed, at DEBUG. Each request is then decided by "
        "itself, without the fast paths of Produce and Fetch.",
        ours=True,
    ),
    Setting(
        "early.start.listeners",
        Type.LIST,
        None,
        "Listeners that open before an authorizer is ready.",
        unserved=_OPENS_IN_ORDER,
    ),
    Setting(
        "authorizer.class.name",
        Type.STRING,
        "",
        "Class that decides the rights of each principal, `" + STANDARD_AUTHORIZER + "`; empty: everything is open.",
        check=_authorizer_check,
    ),
    Setting(
        "super.users",
        Type.STRING,
        None,
        "Principals that may do everything, whatever ACLs say: `User:name;...`. Nodes have to be among them.",
        internal=True,
        check=_principals_check,
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        Type.BOOLEAN,
        False,
        "Whether everyone may use a resource that no ACL is about.",
        internal=True,
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
        by="listener",
    ),
    Setting(
        "connections.max.reauth.ms",
        Type.LONG,
        0,
        "How long an authenticated session lives; 0: without end.",
        at_least=0,
        by="mechanism",
    ),
    Setting(
        "connection.login.timeout.ms",
        Type.INT,
        10_000,
        "How long a client may take for the TLS handshake and to log in, however it spends the time.",
        at_least=1,
        ours=True,
    ),
    Setting(
        "sasl.enabled.mechanisms",
        Type.LIST,
        ("GSSAPI",),
        "Mechanisms by which clients log in: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `GSSAPI` "
        "(Kerberos, with the extra `kerberos`).",
        by="listener",
        update="per-broker",
        opened_with=True,
    ),
    Setting(
        "sasl.jaas.config",
        Type.PASSWORD,
        None,
        "Login module of a mechanism, with its users: "
        "`listener.name.<listener>.<mechanism>.sasl.jaas.config` is what counts.",
        by="mechanism",
        update="per-broker",
        opened_with=True,
    ),
    Setting(
        "sasl.mechanism.inter.broker.protocol",
        Type.STRING,
        "GSSAPI",
        "Mechanism by which brokers log in to each other.",
        update="per-broker",
        opened_with=True,
    ),
    Setting(
        "sasl.mechanism.controller.protocol",
        Type.STRING,
        "GSSAPI",
        "Mechanism by which nodes log in to controllers.",
    ),
    Setting(
        "sasl.server.max.receive.size",
        Type.INT,
        524_288,
        "The largest request, in bytes, of a client that has not logged in.",
        at_least=0,
        by="listener",
    ),
    Setting(
        "sasl.server.callback.handler.class",
        Type.CLASS,
        None,
        "Class that checks the tokens of OAUTHBEARER, by Kafka's name: for signed tokens "
        "`org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler`; empty: unsigned tokens.",
        by="mechanism",
    ),
    Setting(
        KERBEROS_SERVICE,
        Type.STRING,
        None,
        "The first part of the name of the brokers' principals, `kafka` in `kafka/host@REALM`: nodes ask for tickets "
        "of that service.",
        by="listener",
        update="per-broker",
        opened_with=True,
    ),
    Setting(
        KERBEROS_RULES,
        Type.LIST,
        ("DEFAULT",),
        "What principals of Kerberos are called here, by the first rule that applies: `DEFAULT`, the first part of a "
        "principal of the own realm, or `RULE:[n:format](pattern)s/pattern/replacement/g/L`. Separated by commas.",
        by="listener",
        update="per-broker",
        opened_with=True,
    ),
    Setting(
        "sasl.kerberos.kinit.cmd",
        Type.STRING,
        "/usr/bin/kinit",
        "The program that renews tickets of a cache.",
        unserved="tickets in a cache are not renewed here, and those of a keytab are renewed by the library",
        update="per-broker",
        by="listener",
    ),
    Setting(
        "sasl.kerberos.ticket.renew.window.factor",
        Type.DOUBLE,
        0.8,
        "At which share of their life tickets are renewed.",
        unserved=_RENEWED_BY_LIBRARY,
        update="per-broker",
        by="listener",
    ),
    Setting(
        "sasl.kerberos.ticket.renew.jitter",
        Type.DOUBLE,
        0.05,
        "How much that moment moves at random.",
        unserved=_RENEWED_BY_LIBRARY,
        update="per-broker",
        by="listener",
    ),
    Setting(
        "sasl.kerberos.min.time.before.relogin",
        Type.LONG,
        60_000,
        "How long a node waits between two attempts to renew them, in ms.",
        unserved=_RENEWED_BY_LIBRARY,
        update="per-broker",
        by="listener",
    ),
    _renewal("window.factor", Type.DOUBLE, 0.8, "At which share of its life a token is renewed.", 0.5, 1.0),
    _renewal("window.jitter", Type.DOUBLE, 0.05, "How much that moment moves at random.", 0.0, 0.25),
    _renewal("min.period.seconds", Type.SHORT, 60, "How long a node waits between two renewals at least.", 0, 900),
    _renewal("buffer.seconds", Type.SHORT, 300, "How long before its end a token is renewed at the latest.", 0, 3600),
    Setting(
        "delegation.token.secret.key",
        Type.PASSWORD,
        None,
        "The key that delegation tokens are made with, the same on every node; not set: there are no such tokens.",
    ),
    Setting(
        "delegation.token.max.lifetime.ms",
        Type.LONG,
        604_800_000,
        "How long a delegation token lives at most, however often it is renewed.",
        at_least=1,
    ),
    Setting(
        "delegation.token.max.per.owner",
        Type.INT,
        1000,
        "How many delegation tokens one user may own; a cluster keeps 10,000 in all.",
        at_least=1,
        at_most=10_000,
        ours=True,
    ),
    Setting(
        "delegation.token.expiry.time.ms",
        Type.LONG,
        86_400_000,
        "How long a delegation token lives until it has to be renewed.",
        at_least=1,
    ),
    Setting(
        "delegation.token.expiry.check.interval.ms",
        Type.LONG,
        3_600_000,
        "How often the controller removes delegation tokens whose time is up.",
        at_least=1,
    ),
    Setting("security.providers", Type.STRING, None, "Java security providers.", refused=UNPROTECTED),
)

SECURITY_FAMILIES: Final[tuple[Family, ...]] = (
    Family("sasl.client.", "Classes that speak SASL's client side.", UNPROTECTED),
    Family("sasl.login.callback.", "Class by which a node of Kafka gets its own credentials.", UNPROTECTED),
    Family("sasl.login.class", "Class by which a node of Kafka logs in.", UNPROTECTED),
)
