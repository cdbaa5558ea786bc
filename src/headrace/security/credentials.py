"""What a client logs in with: a mechanism, and the user and password of its JAAS line; tokens are in `oauthbearer`.

Source: Kafka's `sasl.mechanism` and `sasl.jaas.config` of clients (KIP-85).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from headrace.metadata.scram_credentials import MECHANISMS, Random
from headrace.security.gssapi import GSSAPI
from headrace.security.login import Errand
from headrace.security.mechanisms import MODULE_OF, login_module
from headrace.security.oauthbearer.server import OAUTHBEARER
from headrace.security.plain import PLAIN, PlainClient
from headrace.security.scram import ScramClient


class CredentialsError(ValueError):
    """Settings that nobody can log in by: one sentence, which shows no value of the JAAS line."""


class ClientLogin(Protocol):
    """A client's side of one login."""

    is_done: bool
    """After the last answer of the server."""

    def first(self) -> bytes | Errand[bytes]:
        """What the client says first."""
        ...

    def respond(self, token: bytes) -> bytes | Errand[bytes]:
        """Returns the answer to the server's message. Raises LoginFailedError."""
        ...


class AnyCredentials(Protocol):
    """What a client logs in with, by any mechanism."""

    @property
    def mechanism(self) -> str:
        """As a server knows it: `SCRAM-SHA-256`."""
        ...

    def begin(self, random: Random, host: str = "", /) -> ClientLogin | Errand[ClientLogin]:
        """A login begins at a host, named as it is connected to. Raises LoginFailedError where it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who logs in, and how. `repr` shows no password."""

    mechanism: str
    name: str
    password: str = field(repr=False)
    is_token: bool = False
    """The name is that of a delegation token."""

    def begin(self, random: Random, _host: str = "", /) -> ClientLogin:
        """A login begins."""
        if self.mechanism == PLAIN:
            return PlainClient(self.name, self.password)
        return ScramClient(MECHANISMS[self.mechanism], self.name, self.password, random, is_token=self.is_token)


def credentials_of(mechanism: str, jaas: str | None) -> Credentials:
    """Raises CredentialsError, and JaasError for a line that cannot be read."""
    assert mechanism not in (OAUTHBEARER, GSSAPI), "its credentials are of another kind"
    if mechanism not in MODULE_OF:
        raise CredentialsError(f"the mechanism {mechanism} is not served; there are {', '.join(MODULE_OF)}")
    if not jaas:
        raise CredentialsError(
            f'{mechanism} needs {MODULE_OF[mechanism]} required username="..." password="..."; in sasl.jaas.config'
        )
    module = login_module(mechanism, jaas)
    name, password = module.options.get("username"), module.options.get("password")
    if not name or password is None:
        raise CredentialsError("the login module needs the options username and password")
    return Credentials(mechanism, name, password, module.options.get("tokenauth", "").lower() == "true")
