"""Key and trust stores as settings name them, opened, and the check of new ones that replace those in use.

A cluster's certificates change node by node: for a while some nodes have the new stores and some the old ones. So a
new store is accepted only if a node that has it and one that has the old store shake hands, each as the server once.
Apache Kafka checks the same. Source: KIP-226 and Kafka's behaviour.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.config import ConfigError
from headrace.env.posix_tls import (
    TlsMaterial,
    TlsMaterialError,
    TlsRules,
    client_context,
    handshake_failure,
    server_context,
)

if TYPE_CHECKING:
    import ssl

    from headrace.config.tls import TlsConfig
    from headrace.security.stores.entries import KeyEntry, TrustedCertificates
    from headrace.security.stores.opening import Read

KEY_STORE: Final = "ssl.keystore.location"
TRUST_STORE: Final = "ssl.truststore.location"
TRIALS_MAX: Final = 4
"""Successful handshakes that are remembered: a node has two listeners of its own."""
CONTEXTS_MAX: Final = 16
"""Contexts of a kind that are remembered: those in use, and those of the stores that come next."""


class _TrialError(Exception):
    """The old and the new stores do not shake hands; the text says why."""


class Stores(NamedTuple):
    """The stores that settings of TLS name, read; errors put `prefix` before the names of the settings."""

    config: TlsConfig
    prefix: str
    key: KeyEntry | None
    trusted: TrustedCertificates | None

    def server(self, *, checks_time: bool = True) -> ssl.SSLContext:
        """What connections are accepted with. Raises ConfigError."""
        try:
            return _server_context(self.material, self.rules, self.config.client_auth, checks_time)
        except TlsMaterialError as error:
            raise self._error(error) from None

    def client(self, *, checks_name: bool, checks_time: bool = True) -> ssl.SSLContext:
        """What connections are made with. Raises ConfigError."""
        try:
            return _client_context(self.material, self.rules, checks_name, checks_time)
        except TlsMaterialError as error:
            raise self._error(error) from None

    @property
    def material(self) -> TlsMaterial:
        """What OpenSSL is given of them."""
        trusted = None if self.trusted is None else self.trusted.certificates
        if self.key is None:
            return TlsMaterial(trusted=trusted)
        return TlsMaterial(self.key.private_key_pem, self.key.chain, trusted)

    @property
    def rules(self) -> TlsRules:
        """What may be spoken."""
        return TlsRules(self.config.versions, self.config.cipher_suites)

    def _error(self, error: TlsMaterialError) -> ConfigError:
        return ConfigError(self.prefix + KEY_STORE, self.config.key_store.location, str(error))


@lru_cache(maxsize=CONTEXTS_MAX)
def _server_context(material: TlsMaterial, rules: TlsRules, client_auth: str, checks_time: bool) -> ssl.SSLContext:
    """It costs a ms, and a new store is checked, and then used, in several places."""
    return server_context(material, rules, client_auth, checks_time=checks_time)


@lru_cache(maxsize=CONTEXTS_MAX)
def _client_context(material: TlsMaterial, rules: TlsRules, checks_name: bool, checks_time: bool) -> ssl.SSLContext:
    return client_context(material, rules, checks_name=checks_name, checks_time=checks_time)


def open_stores(config: TlsConfig, read: Read, prefix: str) -> Stores:
    """Raises ConfigError, one line, where a store cannot be used."""
    from headrace.security.stores.opening import open_key_store, open_trust_store

    key = open_key_store(config.key_store, read, prefix + KEY_STORE)
    return Stores(config, prefix, key, open_trust_store(config.trust_store, read, prefix + TRUST_STORE))


def check_renewal(old: Stores, new: Stores, *, of_nodes: bool) -> None:
    """Raises ConfigError, one line, if `new` may not replace `old`; `of_nodes`: nodes connect to each other by them."""
    from headrace.security.reload import keystore_refusal, truststore_refusal

    dn, san = new.config.allow_dn_changes, new.config.allow_san_changes
    why = keystore_refusal(old.key, new.key, allow_dn_changes=dn, allow_san_changes=san)
    if why:
        raise ConfigError(new.prefix + KEY_STORE, new.config.key_store.location, why)
    why = truststore_refusal(old.trusted, new.trusted)
    if why:
        raise ConfigError(new.prefix + TRUST_STORE, new.config.trust_store.location, why)
    if not of_nodes or old.key is None:
        return
    try:
        _trial(old, new)
    except _TrialError as error:
        is_key = new.key != old.key
        name, store = (KEY_STORE, new.config.key_store) if is_key else (TRUST_STORE, new.config.trust_store)
        raise ConfigError(new.prefix + name, store.location, str(error)) from None


@lru_cache(maxsize=TRIALS_MAX)
def _trial(old: Stores, new: Stores) -> None:
    """Raises _TrialError if a node with the old stores and one with the new ones could not connect to each other. It
    takes some ms; an alteration repeats the check when it takes effect, at the listener and for own connections.

    Kafka cannot replace an expired certificate without a restart. The new stores skip the expiry check of the old
    certificate here, so that it can be replaced.

    A failure is not remembered: a certificate that is not valid yet is valid a moment later.
    """
    for server, client, which in (
        (old.server(), new.client(checks_name=False, checks_time=False), "the stores in use"),
        (new.server(checks_time=False), old.client(checks_name=False), "the new stores"),
    ):
        why = handshake_failure(server, client)
        if why:
            raise _TrialError(
                f"no node would come to one that has {which}: {why}; every node has to believe both authorities first"
            )
