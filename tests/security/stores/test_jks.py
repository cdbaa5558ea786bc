"""JKS: what keytool makes is read, and a store that lies about itself is refused without harm."""

from __future__ import annotations

import base64
import hmac
import random

import pytest
from peers.certificates import PASSWORD, Authority, der_of

from headrace.security.stores.entries import CERTIFICATES_MAX, StoreError
from headrace.security.stores.store import load_keystore, load_truststore

from .made import (
    KEY_PASSWORD,
    authority,
    chain_of,
    jks,
    jks_certificate,
    jks_key,
    jks_trusted,
    key_der,
    root_der,
    sealed,
    server,
    sized,
)


def refused(data: bytes, what: str, password: str = PASSWORD, key_password: str | None = None) -> None:
    with pytest.raises(StoreError, match=what) as told:
        load_keystore("JKS", data, password, key_password)
    assert "\n" not in str(told.value)
    assert password not in str(told.value)
    assert not key_password or key_password not in str(told.value)


@pytest.mark.parametrize("version", [1, 2])
def test_a_key_its_chain_and_what_is_beside_it(version: int) -> None:
    other = der_of(Authority.new().root)
    data = jks(
        [
            jks_trusted(other, version=version),
            jks_key(server(), version=version),
            jks_trusted(root_der(), version=version),
        ],
        version=version,
    )
    entry = load_keystore("JKS", data, PASSWORD, None)
    assert entry.private_key_pem.decode() == server().key_pem()
    assert entry.chain == chain_of(server())
    assert entry.others == (other, root_der())


def test_a_key_of_rsa() -> None:
    one = authority().server(kind="rsa")
    assert load_keystore("JKS", jks([jks_key(one)]), PASSWORD, None).private_key_pem.decode() == one.key_pem()


def test_the_key_has_the_stores_password_or_its_own() -> None:
    own = jks([jks_key(server(), KEY_PASSWORD)])
    assert load_keystore("JKS", own, PASSWORD, KEY_PASSWORD).chain == chain_of(server())
    refused(own, "check ssl.key.password")
    refused(own, "check ssl.key.password", key_password="a wrong one")
    refused(own, "check ssl.key.password", key_password="")
    refused(own, "its password is another one", "a wrong one", KEY_PASSWORD)
    with pytest.raises(StoreError, match=r"set ssl\.keystore\.password"):
        load_keystore("JKS", own, None, KEY_PASSWORD)
    odd = "pässwörd \U0001f512"
    assert load_keystore("JKS", jks([jks_key(server(), odd)], odd), odd, None).chain == chain_of(server())


def test_trusted_certificates_are_read_without_a_password_too() -> None:
    data = jks([jks_trusted(root_der()), jks_trusted(root_der(), b"again")])
    assert load_truststore("JKS", data, PASSWORD).certificates == (root_der(),)
    assert load_truststore("JKS", data, None).certificates == (root_der(),)
    with pytest.raises(StoreError, match="its password is another one"):
        load_truststore("JKS", data, "a wrong one")
    changed = data[:-1] + bytes([data[-1] ^ 1])
    assert load_truststore("JKS", changed, None).certificates == (root_der(),)


def test_a_keystore_as_a_truststore_trusts_the_first_certificate_of_its_chain_alone() -> None:
    assert load_truststore("JKS", jks([jks_key(server())]), PASSWORD).certificates == chain_of(server())[:1]


def test_none_or_several_keys_are_refused() -> None:
    refused(jks([]), "holds 0 private keys")
    refused(jks([jks_trusted(root_der())]), "holds 0 private keys")
    refused(jks([jks_key(server()), jks_key(server(), alias=b"b")]), "holds 2 private keys")
    with pytest.raises(StoreError, match="holds no certificate"):
        load_truststore("JKS", jks([]), PASSWORD)


def test_numbers_that_lie_are_refused_before_anything_is_taken() -> None:
    """The digest is right in all of them: whoever makes them knows the password."""
    head = (1).to_bytes(4, "big") + sized(b"own", 2) + bytes(8)
    key = sized(sealed(key_der(server()), PASSWORD))
    good = jks([jks_key(server())])
    for data in (
        good[:-21] + good[-20:],
        jks([jks_key(server())], version=3),
        jks([jks_key(server())], count=2),
        jks([jks_key(server()), b"\0"], count=1),
        jks([b"\xff" * 50]),
        jks([head + b"\xff\xff\xff\xff" + key]),
        jks([head + b"\x7f\xff\xff\xff" + key]),
        jks([head + bytes(4)]),
        jks([head + key + (1).to_bytes(4, "big") + sized(b"X.509", 2) + b"\x7f\xff\xff\xff"]),
        jks([(3).to_bytes(4, "big") + sized(b"x", 2) + bytes(8)]),
        jks([(2).to_bytes(4, "big") + b"\xff\xff" + b"x"]),
    ):
        refused(data, "damaged")
    refused(jks([], count=0xFFFFFFFF), f"at most {CERTIFICATES_MAX}")
    refused(jks([head + key + b"\xff\xff\xff\xff"]), "longer than")
    refused(jks([head + key + (1).to_bytes(4, "big") + sized(b"PGP", 2) + sized(b"x")]), "not X.509")
    refused(jks([head + key + bytes(4)]), "no certificate for its private key")


def test_as_many_entries_as_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.security.stores.jks._ENTRIES_MAX", 2)
    entries = [jks_key(server()), jks_trusted(root_der())]
    assert load_keystore("JKS", jks(entries), PASSWORD, None).others == (root_der(),)
    refused(jks([*entries, entries[1]]), "announces 3 entries, at most 2")


def test_a_key_that_is_sealed_otherwise_is_refused() -> None:
    certificates = (1).to_bytes(4, "big") + jks_certificate(chain_of(server())[0])
    head = (1).to_bytes(4, "big") + sized(b"own", 2) + bytes(8)
    good = sealed(key_der(server()), PASSWORD)
    for key in (b"\x30\x00", b"\x30\x02\x30\x00", good[:-1], b"\x04" + good[1:], b"x"):
        refused(jks([head + sized(key) + certificates]), "damaged")
    other = good.replace(bytes.fromhex("2b060104012a02110101"), bytes.fromhex("2b060104012a02110102"))
    refused(jks([head + sized(other) + certificates]), "sealed in a way that is not JKS's")
    refused(jks([head + sized(sealed(b"no key", PASSWORD)) + certificates]), "not in PKCS#8")
    refused(jks([head + sized(sealed(key_der(authority().server()), PASSWORD)) + certificates]), "does not belong")


def test_the_digest_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    load_keystore("JKS", jks([jks_key(server())]), PASSWORD, None)
    assert len(seen) == 2


def test_every_change_of_a_byte_is_seen_by_the_digest() -> None:
    data = jks([jks_key(server())])
    for place in random.Random(7).sample(range(4, len(data)), 300):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        refused(bytes(changed), "another one, or the file is damaged")


def test_a_certificate_of_a_version_that_does_not_exist_is_damaged() -> None:
    """`cryptography` has an error of its own for it, which is no ValueError."""
    root, version = root_der(), bytes.fromhex("a003020102")
    at = root.index(version) + len(version) - 1
    refused_root = root[:at] + b"\x05" + root[at + 1 :]
    for kind, data in (("JKS", jks([jks_trusted(refused_root)])), ("PEM", pem_of_der(refused_root))):
        with pytest.raises(StoreError, match="certificate 1 of the store is damaged"):
            load_truststore(kind, data, PASSWORD if kind == "JKS" else None)


def pem_of_der(certificate: bytes) -> bytes:
    body = base64.encodebytes(certificate)
    return b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n"
