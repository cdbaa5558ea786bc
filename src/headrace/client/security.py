"""How a client protects its connections, by Kafka's client properties: `security.protocol`, `ssl.*` and `sasl.*`.

A `Security` is a value that goes into other processes; what it opens (files, OpenSSL's context) is opened where a
connection is made, once a process. No password is kept for that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.security.remembered import remembered

if TYPE_CHECKING:
    import ssl

    from headrace.client.stores import Stores
    from headrace.config.setting import Value
    from headrace.config.tls import TlsConfig
    from headrace.security.credentials import AnyCredentials
    from headrace.security.stores.opening import Read

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
FAMILIES: Final = ("ssl.", "sasl.")
MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
USUAL_MECHANISM: Final = GSSAPI
PROTOCOL: Final = "security.protocol"
FETCHING: Final = (OAUTHBEARER, GSSAPI)
"""Mechanisms whose credentials keep what others have given them: a token, a ticket."""
OPENED_MAX: Final = 64
"""Different securities whose contexts a process keeps."""


@dataclass(frozen=True, slots=True)
class Security:
    """What a client speaks, and with which settings. `repr` shows no secret."""

    protocol: str = "PLAINTEXT"
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Whether its connections are TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def logs_in(self) -> bool:
        """Whether its connections begin with a login."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def open(self) -> ConnectionSecurity:
        """What its connections are opened with. Raises ConfigError, one line, where stores cannot be used."""
        if not self.is_encrypted and not self.logs_in:
            return PLAIN_CONNECTION
        kept = _opened(self.protocol, self.settings)
        return replace(kept, credentials=_credentials(self)) if self.logs_in and kept.credentials is None else kept


@dataclass(frozen=True, slots=True)
class Tls:
    """OpenSSL's context for connections of one kind, and whether the name of the host is checked. `stores` are those
    that it is made of."""

    context: ssl.SSLContext
    stores: Stores | None = field(default=None, repr=False)

    def name_of(self, host: str) -> str | None:
        """What a connection to `host` asks for by name, so that the certificate is checked for it."""
        return host if self.context.check_hostname else None


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """What a connection is opened with: TLS or not, and who logs in or nobody."""

    tls: Tls | None = None
    credentials: AnyCredentials | None = None


PLAINTEXT: Final = Security()
PLAIN_CONNECTION: Final = ConnectionSecurity()


Protection = Security | Mapping[str, str] | str | os.PathLike[str]
"""The forms in which a caller may give it: the value, client properties, or the path of a file of them."""


def protection_of(given: Protection) -> Security:
    """Raises ConfigError as `security_of` does, and for a file OSError, or ValueError for one that cannot be read."""
    if isinstance(given, Security):
        return given
    if isinstance(given, Mapping):
        return security_of(given)
    from headrace.config import load_properties_file

    return security_of(load_properties_file(os.fspath(given)))


def security_of(properties: Mapping[str, str]) -> Security:
    """What client properties say of security; other properties are not looked at.

    Raises ConfigError, one line without secrets, for what cannot be. Files are not opened yet.
    """
    from headrace.config import ConfigError

    protocol = properties.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(PROTOCOL, protocol, "String must be one of: " + ", ".join(PROTOCOLS))
    settings = tuple(sorted((name, text) for name, text in properties.items() if name.startswith(FAMILIES)))
    found = Security(protocol, settings)
    if settings:
        _tls_config(found)
    if found.logs_in:
        _credentials(found)
    return found


def _credentials(security: Security) -> AnyCredentials:
    given = dict(security.settings)
    return credentials(given.get(MECHANISM, USUAL_MECHANISM), given.get(JAAS), MECHANISM, JAAS, given)


def credentials(
    mechanism: str, jaas: str | None, mechanism_setting: str, jaas_setting: str, settings: Mapping[str, str]
) -> AnyCredentials:
    """Who logs in, by these settings; `settings` say where a token is, or the service of a ticket. Raises ConfigError,
    which shows nothing of the JAAS line."""
    from headrace.config import ConfigError
    from headrace.security.credentials import CredentialsError, credentials_of
    from headrace.security.jaas import JaasError

    if mechanism == OAUTHBEARER:
        from headrace.client.bearer import bearer_credentials

        return bearer_credentials(settings, jaas, jaas_setting, tls_context)
    if mechanism == GSSAPI:
        from headrace.client.kerberos import kerberos_credentials

        return kerberos_credentials(settings, jaas, mechanism_setting, jaas_setting)
    try:
        return credentials_of(mechanism, jaas)
    except CredentialsError as error:
        raise ConfigError(mechanism_setting, mechanism, str(error)) from None
    except JaasError as error:
        raise ConfigError(jaas_setting, "(hidden)", str(error)) from None


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """Opens the context of connections with TLS by these `ssl.` properties. Raises ConfigError."""
    tls = security_of({**properties, PROTOCOL: "SSL"}).open().tls
    return None if tls is None else tls.context


def _tls_config(security: Security) -> TlsConfig:
    from headrace.config import BROKER_SETTINGS, ConfigError
    from headrace.config.listener import ListenerConfig
    from headrace.config.setting import parse_value
    from headrace.config.tls import tls_of

    values: dict[str, Value] = {name: row.default for name, row in BROKER_SETTINGS.items() if name.startswith("ssl.")}
    for name, text in security.settings:
        row = BROKER_SETTINGS.get(name) if name.startswith("ssl.") else None
        if row is not None:
            if row.refused:
                raise ConfigError(name, text, row.refused)
            values[name] = parse_value(row, text)
    return tls_of(ListenerConfig("client", values, {}), "SSL")


@remembered(OPENED_MAX)
def _opened(protocol: str, settings: tuple[tuple[str, str], ...]) -> ConnectionSecurity:
    """Makes what connections share: a context, and credentials that fetch something."""
    security = Security(protocol, settings)
    tls = None
    if security.is_encrypted:
        tls = Tls(open_tls(_tls_config(security), lambda path: Path(path).read_bytes(), "").context)
    fetches = security.logs_in and dict(security.settings).get(MECHANISM, USUAL_MECHANISM) in FETCHING
    return ConnectionSecurity(tls, _credentials(security) if fetches else None)


def open_tls(config: TlsConfig, read: Read, prefix: str) -> Tls:
    """What connections are opened with under these settings. Raises ConfigError, whose setting has `prefix` before its
    name."""
    from headrace.client.stores import open_stores

    stores = open_stores(config, read, prefix)
    return Tls(stores.client(checks_name=config.checks_server_names), stores)
