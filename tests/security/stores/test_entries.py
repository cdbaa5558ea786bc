"""A machine without `cryptography` is told which extra it needs, whatever the kind of the store."""

from __future__ import annotations

import sys

import pytest

from headrace.security.stores.entries import StoreError
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
