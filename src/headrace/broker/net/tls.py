"""TLS of a listener: its key stores, the context of new connections, and the principal of a certificate.

Protocol versions, and whether clients show a certificate, change with the settings. The stores are read when the
listener is bound, and again when settings change, as in Kafka: also if only a file is newer. Stores that may not
replace those in use are ignored. Open connections keep the context that they were opened with. Source: KIP-226,
KIP-978, KIP-371 (rules).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.client.stores import KEY_STORE, Stores, check_renewal, open_stores
from headrace.config import ConfigError
from headrace.config.tls import tls_of
from headrace.env.posix_tls import suites_allow
from headrace.env.tls import TlsFailure, TlsStream
from headrace.security.login import ANONYMOUS

if TYPE_CHECKING:
    import ssl

    from headrace.config import BrokerConfig
    from headrace.config.tls import StoreConfig, TlsConfig
    from headrace.env.disk import Disk
    from headrace.security.principal_rules import PrincipalRules

RULES: Final = "ssl.principal.mapping.rules"


class _Opened(NamedTuple):
    """The opened stores of a listener, with their settings and modification times."""

    config: TlsConfig
    modified_ms: tuple[int, int]
    stores: Stores
    context: ssl.SSLContext


class ListenerTls:
    """The TLS state of one listener."""

    def __init__(self, listener: str, protocol: str, config: BrokerConfig, disk: Disk) -> None:
        """`listener` is its name; `protocol` is `SSL` or `SASL_SSL`. Raises ConfigError, with a text of one line, if
        the stores or rules cannot be used."""
        self._is_of_nodes = listener in config.node_listeners
        self._listener = listener
        self._protocol = protocol
        self._disk = disk
        self._prefix = config.of_listener(listener).prefix
        self._in_use = self._open(self._settings(config))
        self._names = self._mapping(self._in_use.config) if protocol == "SSL" else None

    @property
    def context(self) -> ssl.SSLContext:
        """Context of new connections."""
        return self._in_use.context

    def opened(self, stream: TlsStream) -> str | None:
        """Returns the principal of a client whose handshake has succeeded; None if SASL will set it. Raises TlsFailure
        if the connection may not go on."""
        if not suites_allow(self._in_use.stores.rules, stream.cipher):
            raise TlsFailure(f"the TLS handshake failed: {stream.cipher} is not among ssl.cipher.suites")
        if self._names is None:
            return None
        certificate = stream.peer_certificate
        return ANONYMOUS if certificate is None else _principal(certificate, self._names)

    # --- stores that change

    def refusal(self, config: BrokerConfig) -> str:
        """Returns in one line why the listener cannot use the key stores of these settings; empty if it can, or has
        them."""
        try:
            self._next(self._settings(config))
        except ConfigError as error:
            return str(error)
        return ""

    def follow(self, config: BrokerConfig) -> bool:
        """Takes the key stores of these settings; returns whether they are new or newer. If it raises ConfigError,
        those in use stay."""
        found = self._next(self._settings(config))
        if found is None:
            return False
        self._in_use = found
        return True

    def _next(self, settings: TlsConfig) -> _Opened | None:
        """Opens the key stores of these settings; returns None if they are those in use. Raises ConfigError."""
        now = self._in_use
        if settings == now.config and self._modified_ms(settings) == now.modified_ms:
            return None
        found = self._open(settings)
        check_renewal(now.stores, found.stores, of_nodes=self._is_of_nodes)
        return found

    def _settings(self, config: BrokerConfig) -> TlsConfig:
        return tls_of(config.of_listener(self._listener), self._protocol)

    def _open(self, settings: TlsConfig) -> _Opened:
        modified_ms = self._modified_ms(settings)  # before reading: a later change is newer
        stores = open_stores(settings, self._disk.read_file, self._prefix)
        if stores.key is None:
            why = f"listener {self._listener} speaks {self._protocol} and needs a key store"
            raise ConfigError(self._prefix + KEY_STORE, "", why)
        return _Opened(settings, modified_ms, stores, stores.server())

    def _modified_ms(self, settings: TlsConfig) -> tuple[int, int]:
        return self._modified(settings.key_store), self._modified(settings.trust_store)

    def _modified(self, store: StoreConfig) -> int:
        if store.location is None:
            return 0
        try:
            return self._disk.modified_ms(store.location)
        except OSError:
            return -1  # the next read raises why

    def _mapping(self, settings: TlsConfig) -> PrincipalRules:
        from headrace.security.principal_rules import PrincipalRulesError, parsed

        try:
            return parsed(settings.principal_mapping_rules)
        except PrincipalRulesError as error:
            raise ConfigError(self._prefix + RULES, settings.principal_mapping_rules, str(error)) from None


def _principal(certificate: bytes, rules: PrincipalRules) -> str:
    from headrace.security.der import DerError
    from headrace.security.names import subject

    try:
        named = subject(certificate)
    except DerError as error:
        raise TlsFailure(f"the client's certificate cannot be read: {error}") from None
    name = rules.principal_name(named)
    if name is None:
        raise TlsFailure(f"no rule of {RULES} names the client's certificate")
    return f"User:{name}"
