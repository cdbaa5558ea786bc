"""What a client logs in with: a mechanism, and the user and password of its JAAS line; tokens are in `oauthbearer`.

Source: Kafka's `sasl.mechanism` and `sasl.jaas.config` of clients (KIP-85).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from headrace.metadata.scram_credentials import MECHANISMS, Random
from headrace.security.gssapi import GSSAPI
from headrace.security.jaas import parse_jaas
from headrace.security.mechanisms import MODULE_OF
from headrace.security.oauthbearer.server import OAUTHBEARER
from headrace.security.plain import PLAIN, PlainClient
from headrace.security.scram import ScramClient


class CredentialsError(ValueError):
    """Settings that nobody can log in by: one sentence, which shows no value of the JAAS line."""


class ClientLogin(Protocol):
    """A client's side of one login."""

    is_done: bool

    def first(self) -> bytes:
        """What the client says first."""
        ...

    def respond(self, token: bytes) -> bytes:
        """The answer to what the server said. Raises LoginFailedError."""
        ...


class AnyCredentials(Protocol):
    """What a client logs in with, by any mechanism."""

    @property
    def mechanism(self) -> str:
        """As a server knows it: `SCRAM-SHA-256`."""
        ...

    @property
    def waits(self) -> bool:
        """Whether a server has to be asked for what a login shows: to be done by `ready`, before it begins."""
        ...

    def ready(self) -> AnyCredentials:
        """The same, once what a login shows is there. Raises LoginFailedError."""
        ...

    @property
    def may_wait(self) -> bool:
        """Whether each step of a login may ask a server elsewhere: not on a loop that others need."""
        ...

    def begin(self, random: Random, host: str = "", /) -> ClientLogin:
        """A login begins at a host, named as it was connected to. Raises LoginFailedError where it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who logs in, and how. `repr` shows no password."""

    mechanism: str
    name: str
    password: str = field(repr=False)
    is_token: bool = False
    """The name is that of a delegation token."""
    may_wait: bool = False

    @property
    def waits(self) -> bool:
        """See AnyCredentials."""
        return False

    def ready(self) -> Credentials:
        """See AnyCredentials."""
        return self

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
    module = parse_jaas(jaas)
    if module.name != MODULE_OF[mechanism]:
        raise CredentialsError(f"the login module of {mechanism} is {MODULE_OF[mechanism]}")
    name, password = module.options.get("username"), module.options.get("password")
    if not name or password is None:
        raise CredentialsError("the login module needs the options username and password")
    return Credentials(mechanism, name, password, module.options.get("tokenauth", "").lower() == "true")
