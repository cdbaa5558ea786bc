"""Changed bytes in stores of every kind: what cannot be read is a StoreError, and nothing else, and soon."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from peers.certificates import PASSWORD
from peers.tried import tried

from headrace.security import names
from headrace.security.der import DerError
from headrace.security.stores.entries import StoreError
from headrace.security.stores.store import KINDS, load_keystore, load_truststore

from .made import KEY_PASSWORD, chain_of, jks, keystores, mutated, server, truststores

EACH = tried(100)
PATIENCE_S = 5.0


def told(text: str) -> None:
    """An error is one line without a password."""
    assert text and "\n" not in text
    assert PASSWORD not in text and KEY_PASSWORD not in text


@pytest.mark.parametrize("name", sorted(keystores()))
@settings(max_examples=EACH)
@given(data=st.data())
def test_a_changed_keystore(name: str, data: st.DataObject) -> None:
    kind, good, store_password, key_password = keystores()[name]
    before = time.monotonic()
    try:
        entry = load_keystore(kind, data.draw(mutated(good)), store_password, key_password)
        assert entry.private_key_pem.decode() == server().key_pem()
    except StoreError as error:
        told(str(error))
    assert time.monotonic() - before < PATIENCE_S


@pytest.mark.parametrize("name", sorted(truststores()))
@settings(max_examples=EACH)
@given(data=st.data())
def test_a_changed_truststore(name: str, data: st.DataObject) -> None:
    kind, good, password = truststores()[name]
    try:
        load_truststore(kind, data.draw(mutated(good)), password)
    except StoreError as error:
        told(str(error))


@settings(max_examples=EACH)
@given(entries=st.lists(st.binary(max_size=200), max_size=4), count=st.none() | st.integers(0, 2**32 - 1))
def test_a_jks_of_anything_under_a_right_digest(entries: list[bytes], count: int | None) -> None:
    data = jks(entries, count=count)
    for load in (lambda: load_keystore("JKS", data, PASSWORD, None), lambda: load_truststore("JKS", data, PASSWORD)):
        with pytest.raises(StoreError) as error:
            load()
        told(str(error.value))


@settings(max_examples=EACH)
@given(data=st.data())
def test_a_jks_changed_under_a_right_digest(data: st.DataObject) -> None:
    _, good, password, _ = keystores()["jks"]
    body = data.draw(mutated(good[12:-20]))
    try:
        load_keystore("JKS", jks([body], count=2), password, None)
    except StoreError as error:
        told(str(error))


@settings(max_examples=EACH)
@given(kind=st.sampled_from(KINDS), data=st.binary(max_size=300), password=st.none() | st.text(max_size=5))
@example(kind="JKS", data=b"\xfe\xed\xfe\xed", password="")
@example(kind="PKCS12", data=b"\x30\x80" * 100, password="x")
@example(kind="PEM", data=b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----", password=None)
def test_anything(kind: str, data: bytes, password: str | None) -> None:
    for load in (
        lambda: load_keystore(kind, data, password, password),
        lambda: load_truststore(kind, data, password),
    ):
        with pytest.raises(StoreError):
            load()


@settings(max_examples=4 * EACH)
@given(data=st.data())
def test_the_names_in_a_changed_certificate(data: st.DataObject) -> None:
    changed = data.draw(mutated(chain_of(server())[0]))
    try:
        assert isinstance(names.subject(changed), str)
    except DerError:
        pass
