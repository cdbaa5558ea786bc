"""Properties of clients that say where a cluster is and how connections to it are protected, by Kafka's names; which of
them are secrets; and how an environment variable names one.

Source: Kafka's client configuration (KIP-85, KIP-255, KIP-768, KIP-1139); variables as Kafka's docker image names them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .setting import Type
from .tls_table import TLS_ROWS

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
PROTOCOL: Final = "security.protocol"
FAMILIES: Final = ("security.", "ssl.", "sasl.")
"""What the names of properties of security begin with."""
PREFIX: Final = "HEADRACE_"
_ONLY_OF_LISTENERS: Final = ("ssl.client.auth", "ssl.principal.mapping.rules", "ssl.allow.dn.changes",
                             "ssl.allow.san.changes")  # fmt: skip
_SECRETS: Final = (
    "sasl.jaas.config", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
)  # fmt: skip
_PLAIN: Final = (
    BOOTSTRAP_SERVERS, PROTOCOL, "sasl.mechanism",
    "sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class",
    "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.allowed.urls", "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.token.variable",
)  # fmt: skip

IS_SECRET: Final[Mapping[str, bool]] = MappingProxyType(
    {
        **dict.fromkeys(_PLAIN, False),
        **dict.fromkeys(_SECRETS, True),
        **{row.name: row.type is Type.PASSWORD for row in TLS_ROWS if row.name not in _ONLY_OF_LISTENERS},
    }
)
"""Every property that is known here, and whether its value is a secret."""
HIDDEN: Final = "(hidden)"
_SERVICE: Final = re.compile(r"_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)?)$")
"""Kubernetes sets such variables for each service: for one called headrace-ssl, HEADRACE_SSL_SERVICE_HOST."""


class VariableError(ValueError):
    """A variable that looks like a property and names none; the text is one line without its value."""


def shown(name: str, value: str) -> str:
    """A property's value for people: hidden where it is a secret, or could be one."""
    return HIDDEN if IS_SECRET.get(name, True) else value


def is_kept(name: str) -> bool:
    """Whether a property says where a cluster is, or how connections to it are protected."""
    return name == BOOTSTRAP_SERVERS or name.startswith(FAMILIES)


def property_of(variable: str) -> str:
    """The name of the property that a variable says: `HEADRACE_SASL_JAAS_CONFIG` is sasl.jaas.config. Two underscores
    are one, three a hyphen."""
    name = variable.removeprefix(PREFIX).lower()
    return re.sub("_{1,3}", lambda found: {1: ".", 2: "_", 3: "-"}[len(found[0])], name)


def variable_of(name: str) -> str:
    """The variable that says a property."""
    return PREFIX + name.upper().replace("_", "__").replace("-", "___").replace(".", "_")


def properties_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties of security that variables say. Raises VariableError for one that is like one of them and is none:
    with a name misspelt, a connection might go unprotected."""
    found = {}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or _SERVICE.search(variable):
            continue
        name = property_of(variable)
        if name.startswith(FAMILIES):
            if name not in IS_SECRET:
                raise VariableError(f"{variable}: there is no property {name} of clients{_nearest(name)}")
            found[name] = value
    return found


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, IS_SECRET, n=1)
    return f"; {variable_of(near[0])} is {near[0]}" if near else ""
