"""Stores as settings name them, opened: a file or PEM text, with its passwords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.config import ConfigError
from headrace.config.tls import StoreConfig
from headrace.security.remembered import remembered

from .entries import KeyEntry, MissingPackageError, StoreError, TrustedCertificates
from .store import load_keystore, load_truststore

Read = Callable[[str], bytes]
"""Reads a file; raises OSError."""

STORES_MAX: Final = 8
"""Stores of a kind that are remembered: a new one is read when it is asked for, and again, at each place, when it is
taken. A key costs up to some tens of ms to open."""
_IN_SETTINGS: Final = "(in the settings)"

_load_keystore = remembered(STORES_MAX)(load_keystore)
_load_truststore = remembered(STORES_MAX)(load_truststore)


def open_key_store(store: StoreConfig, read: Read, setting: str) -> KeyEntry | None:
    """The key of a key store; None where no store is given. Raises ConfigError that names `setting`, one line without
    passwords."""
    if not store.is_given:
        return None
    try:
        if store.location is not None:
            return _load_keystore(store.kind, read(store.location), store.password, store.key_password)
        chain = (store.pem_certificates or "").encode()
        return _load_keystore(store.kind, (store.pem_key or "").encode(), store.password, store.key_password, chain)
    except (StoreError, OSError) as error:
        raise _refused(setting, store, error) from None


def open_trust_store(store: StoreConfig, read: Read, setting: str) -> TrustedCertificates | None:
    """Whom a trust store trusts; None where no store is given. Raises ConfigError as `open_key_store` does."""
    if not store.is_given:
        return None
    try:
        data = (store.pem_certificates or "").encode() if store.location is None else read(store.location)
        return _load_truststore(store.kind, data, store.password)
    except (StoreError, OSError) as error:
        raise _refused(setting, store, error) from None


def _refused(setting: str, store: StoreConfig, error: StoreError | OSError) -> ConfigError:
    value = store.location or _IN_SETTINGS
    why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    is_value_good = isinstance(error, MissingPackageError)
    return ConfigError(setting, value, why, line=f"{setting} cannot be used: {why}" if is_value_good else "")
