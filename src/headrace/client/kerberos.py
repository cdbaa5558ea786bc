"""Logins by Kerberos: tickets of a keytab or of a cache, and the library that shows them, which is an extra.

    sasl.mechanism=GSSAPI
    sasl.kerberos.service.name=kafka
    sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/x" principal="ann@R";

Nothing is asked of a KDC before somebody logs in. Source: KIP-12; Java's Krb5LoginModule for the options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.config import ConfigError
from headrace.config.kerberos import KERBEROS_SERVICE
from headrace.security.gssapi import GSSAPI, GssapiClient
from headrace.security.jaas import KERBEROS_MODULE, JaasError, LoginModule
from headrace.security.kerberos_options import KerberosOptionsError, kerberos_options, service_name
from headrace.security.login import Errand, LoginFailedError, LoginInterrupted
from headrace.security.mechanisms import login_module

if TYPE_CHECKING:
    from types import ModuleType

    from headrace.env.posix_gssapi import Context, Initiator, KerberosError
    from headrace.metadata.scram_credentials import Random

T = TypeVar("T")

NOT_INSTALLED: Final = (
    "GSSAPI (Kerberos) is an extra: pip install 'headrace[kerberos]', which needs a C compiler and the headers of MIT "
    "Kerberos (Debian's libkrb5-dev)"
)
INTERRUPTED: Final = (21, 33, 34)
"""Errors of RFC 4120 that another attempt may not meet: clocks that are apart, and a ticket that was shown before. As
in Kafka the connection breaks then, and the client tries again."""


def library(mechanism_setting: str) -> ModuleType:
    """`env.posix_gssapi`. Raises ConfigError, one line, where the extra is not installed."""
    try:
        from headrace.env import posix_gssapi
    except (ImportError, OSError):
        line = f"{mechanism_setting}: {NOT_INSTALLED}"
        raise ConfigError(mechanism_setting, GSSAPI, NOT_INSTALLED, line=line) from None
    return posix_gssapi


class LoginContext:
    """See `security.gssapi.Context`: one of the library's."""

    def __init__(self, context: Context, failure: type[KerberosError]) -> None:
        self._context = context
        self._failure = failure

    @property
    def is_complete(self) -> bool:
        """See Context."""
        return self._context.is_complete

    @property
    def is_mutual(self) -> bool:
        """See Context."""
        return self._context.is_mutual

    @property
    def initiator(self) -> str:
        """See Context."""
        return self._checked(lambda: self._context.initiator)

    def step(self, token: bytes) -> bytes:
        """See Context."""
        return self._checked(lambda: self._context.step(token))

    def wrap(self, message: bytes) -> bytes:
        """See Context."""
        return self._checked(lambda: self._context.wrap(message))

    def unwrap(self, message: bytes) -> bytes:
        """See Context."""
        return self._checked(lambda: self._context.unwrap(message))

    def _checked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except self._failure as error:
            raise failed(error) from None


def failed(error: KerberosError) -> LoginFailedError:
    """What the library's error is to a login."""
    kind = LoginInterrupted if error.code in INTERRUPTED else LoginFailedError
    return kind(f"Kerberos: {error}")


@dataclass(frozen=True, slots=True)
class KerberosCredentials:
    """Who logs in, and at which service."""

    initiator: Initiator = field(repr=False)
    failure: type[KerberosError] = field(repr=False)
    service: str
    mechanism: str = GSSAPI

    def begin(self, _random: Random, host: str = "", /) -> Errand[GssapiClient]:
        """A login begins, where a ticket is to be had."""
        return Errand(partial(self._begun, host))

    def _begun(self, host: str) -> GssapiClient:
        try:
            context = self.initiator.begin(self.service, host)
        except self.failure as error:
            raise failed(error) from None
        return GssapiClient(LoginContext(context, self.failure))


def kerberos_credentials(
    settings: Mapping[str, str], jaas: str | None, mechanism_setting: str, jaas_setting: str
) -> KerberosCredentials:
    """Who logs in by these settings. Raises ConfigError, one line, which shows nothing of the JAAS line."""
    found = library(mechanism_setting)
    module = kerberos_module(jaas, jaas_setting)
    try:
        options = kerberos_options(module, accepts=False)
    except KerberosOptionsError as error:
        raise ConfigError(jaas_setting, "(hidden)", str(error)) from None
    service = service_of(module, settings.get(KERBEROS_SERVICE))
    initiator = found.Initiator(options.principal, options.keytab, options.ticket_cache)
    return KerberosCredentials(initiator, found.KerberosError, service)


def kerberos_module(jaas: str | None, jaas_setting: str) -> LoginModule:
    """The login module of a line. Raises ConfigError."""
    if not jaas:
        raise ConfigError(jaas_setting, "", f"{GSSAPI} needs {KERBEROS_MODULE} required ...; here")
    try:
        return login_module(GSSAPI, jaas)
    except JaasError as error:
        raise ConfigError(jaas_setting, "(hidden)", str(error)) from None


def service_of(module: LoginModule, setting: str | None) -> str:
    """The name of the service. Raises ConfigError where there is none."""
    try:
        return service_name(module, setting)
    except KerberosOptionsError as error:
        raise ConfigError(KERBEROS_SERVICE, setting or "", str(error)) from None
