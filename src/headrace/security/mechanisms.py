"""The mechanisms that a server can offer, each made for one listener."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.metadata.scram_credentials import MECHANISMS, Random, ScramMechanism
from headrace.security.gssapi import GSSAPI
from headrace.security.jaas import (
    KERBEROS_MODULE,
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasError,
    LoginModule,
    parse_jaas,
)
from headrace.security.login import ServerLogin
from headrace.security.oauthbearer.server import OAUTHBEARER
from headrace.security.plain import PLAIN, PlainServer, PlainUsers
from headrace.security.scram import ScramServer, ScramUsers

MODULE_OF: Final[Mapping[str, str]] = {
    PLAIN: PLAIN_MODULE,
    **dict.fromkeys(MECHANISMS, SCRAM_MODULE),
    OAUTHBEARER: OAUTHBEARER_MODULE,
    GSSAPI: KERBEROS_MODULE,
}
"""The login module of each mechanism that is served."""


def login_module(mechanism: str, line: str) -> LoginModule:
    """The login module of a JAAS line for a mechanism. Raises JaasError, also for that of another."""
    module = parse_jaas(line)
    if module.name != MODULE_OF[mechanism]:
        raise JaasError(f"the login module of {mechanism} is {MODULE_OF[mechanism]}")
    return module


@dataclass(frozen=True, slots=True)
class PlainMechanism:
    """See login.ServerMechanism."""

    users: PlainUsers
    max_reauth_ms: int = 0
    name: str = PLAIN

    def begin(self) -> ServerLogin:
        """See login.ServerMechanism."""
        return PlainServer(self.users)


@dataclass(frozen=True, slots=True)
class ScramServerMechanism:
    """See login.ServerMechanism."""

    mechanism: ScramMechanism
    users: ScramUsers
    random: Random = field(repr=False)
    max_reauth_ms: int = 0

    @property
    def name(self) -> str:
        """See login.ServerMechanism."""
        return self.mechanism.name

    def begin(self) -> ServerLogin:
        """See login.ServerMechanism."""
        return ScramServer(self.mechanism, self.users, self.random)
