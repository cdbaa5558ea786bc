"""A machine without `cryptography` is told which extra it needs, whatever the kind of the store."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from headrace.config import ConfigError
from headrace.config.tls import StoreConfig
from headrace.security.stores.entries import StoreError
from headrace.security.stores.opening import open_key_store, open_trust_store
from headrace.security.stores.store import load_keystore, load_truststore

from .made import keystores, truststores


@pytest.fixture(autouse=True)
def without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    keystores()
    truststores()
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("name", ["pem", "encrypted pem", "pkcs12", "jks"])
def test_a_keystore(name: str) -> None:
    with pytest.raises(StoreError, match=r"needs the package cryptography: install headrace\[security\]"):
        load_keystore(*keystores()[name])


@pytest.mark.parametrize("name", ["pem", "pkcs12", "jks"])
def test_a_truststore(name: str) -> None:
    with pytest.raises(StoreError, match=r"needs the package cryptography: install headrace\[security\]"):
        load_truststore(*truststores()[name])


@pytest.mark.parametrize(("setting", "opened"), [("keystore", open_key_store), ("truststore", open_trust_store)])
def test_the_error_does_not_blame_the_file(setting: str, opened: Callable[..., object]) -> None:
    data, *_ = (keystores() if setting == "keystore" else truststores())["pkcs12"][1:]
    assert isinstance(data, bytes)
    store = StoreConfig("PKCS12", "/stores/own.p12", "password", None)
    with pytest.raises(ConfigError) as refused:
        opened(store, lambda _path: data, f"ssl.{setting}.location")
    assert str(refused.value) == (
        f"ssl.{setting}.location cannot be used: TLS needs the package cryptography: install headrace[security]"
    )
