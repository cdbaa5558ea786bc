"""PKCS12: new and old files, their chains, and files that are no keystore or no truststore."""

from __future__ import annotations

import re

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from peers.certificates import PASSWORD, Authority, der_of, trust_pkcs12

from headrace.security.stores.entries import ITERATIONS_MAX, StoreError
from headrace.security.stores.iterations import check_iterations
from headrace.security.stores.store import load_keystore, load_truststore

from .made import authority, chain_of, root_der, server


def refused(data: bytes, what: str, password: str = PASSWORD, key_password: str | None = None) -> None:
    with pytest.raises(StoreError, match=what) as told:
        load_keystore("PKCS12", data, password, key_password)
    assert "\n" not in str(told.value)
    assert password not in str(told.value)
    assert not key_password or key_password not in str(told.value)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", "pkcs12", "jks"])
@pytest.mark.parametrize("old", [False, True])
def test_key_and_chain_by_either_name_of_the_kind(kind: str, old: bool) -> None:
    data = server().pkcs12_old() if old else server().pkcs12()
    entry = load_keystore(kind, data, PASSWORD, None)
    assert entry.private_key_pem.decode() == server().key_pem()
    assert (entry.chain, entry.others) == (chain_of(server()), ())


def test_the_chain_follows_the_issuers_whatever_the_order_of_the_file() -> None:
    one = authority().intermediate("a").intermediate("b").server()
    stranger = Authority.new().root  # of the same name as the root
    pile = [stranger, authority().root, *reversed(one.between)]
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    data = pkcs12.serialize_key_and_certificates(b"own", one.key, one.certificate, pile, encryption)
    entry = load_keystore("PKCS12", data, PASSWORD, None)
    assert entry.chain == (*chain_of(one), root_der())
    assert entry.others == (der_of(stranger),)


def test_passwords() -> None:
    data = server().pkcs12()
    assert load_keystore("PKCS12", data, PASSWORD, PASSWORD).chain == chain_of(server())
    refused(data, "leave ssl.key.password out", key_password="another-one")
    refused(data, "its password is another one", "a wrong one")
    with pytest.raises(StoreError, match=r"set ssl\.keystore\.password"):
        load_keystore("PKCS12", data, None, None)
    with pytest.raises(StoreError, match="set the store's password"):
        load_truststore("PKCS12", trust_pkcs12([authority()]), None)
    odd = "pässwörd \U0001f512"
    assert load_keystore("PKCS12", server().pkcs12(odd), odd, None).chain == chain_of(server())


def test_trusted_certificates_with_and_without_javas_mark() -> None:
    roots = [authority(), Authority.new()]
    both = {der_of(each.root) for each in roots}
    assert set(load_truststore("PKCS12", trust_pkcs12(roots), PASSWORD).certificates) == both
    plain = pkcs12.serialize_key_and_certificates(
        None, None, roots[0].root, [roots[1].root], serialization.BestAvailableEncryption(PASSWORD.encode())
    )
    assert set(load_truststore("PKCS12", plain, PASSWORD).certificates) == both
    with pytest.raises(StoreError, match="its password is another one"):
        load_truststore("PKCS12", plain, "a wrong one")


def test_a_keystore_is_no_truststore_and_the_other_way_round() -> None:
    with pytest.raises(StoreError, match="holds a private key"):
        load_truststore("PKCS12", server().pkcs12(), PASSWORD)
    refused(trust_pkcs12([authority()]), "holds no private key")


def test_a_key_without_its_certificate_is_refused() -> None:
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    lone = pkcs12.serialize_key_and_certificates(b"own", server().key, None, None, encryption)
    refused(lone, "no certificate for its private key")
    strange = pkcs12.serialize_key_and_certificates(b"own", server().key, None, [authority().root], encryption)
    refused(strange, "no certificate for its private key")


@pytest.mark.parametrize("place", ["key", "certificates", "digest"])
def test_a_file_that_asks_for_too_much_work_is_refused_at_once(place: str) -> None:
    rounds = (ITERATIONS_MAX + 1).to_bytes(4, "big")
    encryption = serialization.PrivateFormat.PKCS12.encryption_builder().kdf_rounds(3).build(PASSWORD.encode())
    data = pkcs12.serialize_key_and_certificates(b"own", server().key, server().certificate, None, encryption)
    check_iterations(data)
    asked = {each.start(): 13 for each in re.finditer(rb"\x04\x10.{16}\x02\x01\x03", data, re.DOTALL)}
    asked |= {each.start(): 6 for each in re.finditer(rb"\x04\x08.{8}\x02\x02\x08\x00\Z", data, re.DOTALL)}
    assert len(asked) == 3
    at, salt = sorted(asked.items())[["certificates", "key", "digest"].index(place)]
    lying = b"\x04" + bytes([salt]) + bytes(salt) + b"\x02\x04" + rounds
    refused(data[:at] + lying + data[at + len(lying) :], "rounds of key derivation")


def test_files_of_other_kinds_are_named() -> None:
    refused(b"\xce\xce\xce\xce" + bytes(50), "JCEKS")
    refused(b"garbage", "damaged")
    refused(b"", "empty")
    refused(bytes(5 << 20), "no store of keys")
    with pytest.raises(StoreError, match="the types are JKS, PKCS12, PEM"):
        load_keystore("BKS", b"x", PASSWORD, None)
    with pytest.raises(StoreError, match="the types are JKS, PKCS12, PEM"):
        load_truststore("pem", b"x", None)
