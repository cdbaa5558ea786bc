"""PEM stores: every way in which Kafka takes them, and what is wrong with the others, in one line."""

from __future__ import annotations

import base64
import datetime as dt
from math import gcd, lcm

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ed25519, rsa
from peers.certificates import Authority, Identity, der_of, named, pem_of, trust_pem
from security.kafka_names import ask, word

from headrace.security.stores.entries import CHAIN_MAX, StoreError
from headrace.security.stores.store import load_keystore, load_truststore

from .made import KEY_PASSWORD, authority, chain_of, key_der, server


def opened(pem: str, key_password: str | None = None, chain: str | None = None) -> tuple[bytes, ...]:
    entry = load_keystore("PEM", pem.encode(), None, key_password, None if chain is None else chain.encode())
    key = serialization.load_pem_private_key(entry.private_key_pem, None)
    assert b"BEGIN PRIVATE KEY" in entry.private_key_pem
    assert key.public_key() == serialization.load_pem_private_key(server().key_pem().encode(), None).public_key()
    return entry.chain


def refused(pem: str, what: str, key_password: str | None = None, chain: str | None = None) -> None:
    with pytest.raises(StoreError, match=what) as told:
        load_keystore("PEM", pem.encode(), None, key_password, None if chain is None else chain.encode())
    assert "\n" not in str(told.value)
    assert not key_password or key_password not in str(told.value)


def one_line(pem: str) -> str:
    return " ".join(pem.split())


def test_one_text_or_two_give_key_and_chain() -> None:
    one = server()
    assert opened(one.pem()) == chain_of(one)
    assert opened(one.chain_pem() + one.key_pem()) == chain_of(one)
    assert opened(one.key_pem(), chain=one.chain_pem()) == chain_of(one)
    assert opened(one.pem(), chain=one.pem()) == chain_of(one)


def test_white_space_and_text_around_do_not_matter() -> None:
    one = server()
    pem = one.pem()
    assert opened(one_line(one.key_pem()), chain=one_line(one.chain_pem())) == chain_of(one)
    assert opened(pem.replace("\n", "\r\n")) == chain_of(one)
    assert opened(pem.rstrip("\n")) == chain_of(one)
    around = "Bag Attributes\n    friendlyName: own\n    1.2.3: <No Values>\n"
    assert opened(around + one.key_pem() + around + one.chain_pem() + "the end") == chain_of(one)
    assert opened(pem.replace("-----BEGIN CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nName: x\n\n")) == chain_of(
        one
    )
    assert opened(pem.replace("CERTIFICATE", "X509 CERTIFICATE")) == chain_of(one)


def test_an_encrypted_key_takes_its_password() -> None:
    one = server()
    assert opened(one.pem(KEY_PASSWORD), KEY_PASSWORD) == chain_of(one)
    assert opened(one.key_pem_pbes1(KEY_PASSWORD) + one.chain_pem(), KEY_PASSWORD) == chain_of(one)
    refused(one.pem(KEY_PASSWORD), "set ssl.key.password")
    refused(one.pem(KEY_PASSWORD), "check ssl.key.password", "wrong")
    refused(one.pem(KEY_PASSWORD), "ssl.key.password", "")
    refused(one.pem(), "leave ssl.key.password out", KEY_PASSWORD)


def test_keys_of_rsa_and_of_edwards_curves() -> None:
    for one in (authority().server(kind="rsa"), authority().issue(authority().root.subject)):
        assert load_keystore("PEM", one.pem().encode(), None, None).chain == chain_of(one)


def test_a_key_of_rsa_whose_numbers_are_no_key() -> None:
    """They are not looked through for primes, which takes tens of ms: what does not work is refused all the same."""
    one = authority().server(kind="rsa")
    assert isinstance(one.key, rsa.RSAPrivateKey)
    held = one.key.private_numbers()
    p, q, e = held.p, held.q, held.public_numbers.e
    for number in (held.d, p, q, held.dmp1, held.dmq1, held.iqmp):
        refused(with_another(one, number) + one.chain_pem(), "damaged")
    composite = next(p * n for n in range(3, 99, 2) if gcd(p * n, q) == 1 and gcd(e, p * n - 1) == 1)
    d = pow(e, -1, lcm(composite - 1, q - 1))
    public_numbers = rsa.RSAPublicNumbers(e, composite * q)
    parts = d % (composite - 1), d % (q - 1), pow(q, -1, composite)
    unsound = rsa.RSAPrivateNumbers(composite, q, d, *parts, public_numbers)
    broken = Identity(key := unsound.private_key(unsafe_skip_rsa_key_validation=True), certificate_of(key.public_key()))
    refused(broken.pem(), "does not belong to the first certificate")


def with_another(one: Identity, number: int) -> str:
    """The key of RSA with a number that is 2 more, or less where that is longer."""
    size = (number.bit_length() + 7) // 8
    other = number + 2 if (number + 2).bit_length() == number.bit_length() else number - 2
    changed = key_der(one).replace(number.to_bytes(size, "big"), other.to_bytes(size, "big"))
    return "-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(changed).decode() + "-----END PRIVATE KEY-----\n"


def certificate_of(public: rsa.RSAPublicKey) -> x509.Certificate:
    """A certificate of an authority for any public key."""
    now = dt.datetime.now(dt.UTC)
    above = authority()
    return (
        x509.CertificateBuilder()
        .subject_name(named("localhost"))
        .issuer_name(above.root.subject)
        .public_key(public)
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(above.own.key, hashes.SHA256())
    )


def test_a_key_in_pkcs1_or_sec1_is_told_how_to_be_converted() -> None:
    rsa = authority().server(kind="rsa")
    for one, label in ((rsa, "RSA PRIVATE KEY"), (server(), "EC PRIVATE KEY")):
        for password in (None, "secret-one"):
            pem = one.key_pem(password, pkcs1=True) + one.chain_pem()
            refused(pem, f"{label} is not taken: convert it to PKCS#8")


def test_none_or_several_keys_are_refused() -> None:
    one = server()
    refused(one.chain_pem(), "holds 0 private keys: give it exactly one")
    refused(one.key_pem() + one.pem(), "holds 2 private keys")
    refused("", "empty")
    refused("no PEM at all", "0 private keys")


def test_a_chain_must_be_the_keys_own_and_in_order() -> None:
    one = server()
    leaf, between = (pem_of([each]) for each in one.chain)
    root = trust_pem([authority()])
    assert opened(one.key_pem() + leaf) == chain_of(one)[:1]
    assert opened(one.key_pem() + leaf + between + root) == (*chain_of(one), der_of(authority().root))
    refused(one.key_pem(), "no certificate for its private key")
    refused(one.key_pem() + between + leaf, "certificate 2 of the chain is not the issuer of certificate 1")
    refused(one.key_pem() + leaf + leaf, "not the issuer")
    refused(one.key_pem() + leaf + root, "not the issuer")
    refused(authority().server().key_pem() + one.chain_pem(), "does not belong to the first certificate")
    itself = Authority.new().own
    long = Identity(itself.key, itself.certificate, (itself.certificate,) * CHAIN_MAX)
    refused(long.pem(), "longer than")


def test_damaged_texts_are_refused() -> None:
    one = server()
    pem = one.pem()
    refused(pem[: pem.rindex("-----END")], "CERTIFICATE has no end")
    refused(pem.replace("END PRIVATE", "END PUBLIC"), "PRIVATE KEY has no end")
    refused(pem.replace("MI", "M!", 1), "not base64")
    refused(pem.replace("MI", "", 1), "damaged")
    key, chain = one.key_pem(), one.chain_pem()
    refused(key + chain.replace("CERTIFICATE", "CERTIFICATE REQUEST"), "no certificate")
    refused(chain.replace("CERTIFICATE", "PRIVATE KEY"), "2 private keys")
    refused(pem_of(one.chain[:1]).replace("CERTIFICATE", "PRIVATE KEY") + chain, "not in PKCS#8")
    refused(key + key.replace("PRIVATE KEY", "CERTIFICATE"), "certificate 1 of the store is damaged")
    refused("\0" + "-" * 100_000, "0 private keys")
    refused("-----BEGIN " + " " * 1_000_000, "0 private keys")
    refused("-----BEGIN CERTIFICATE-----\n" * 100_000, "has no end")


def test_kinds_of_keys_that_tls_has_no_use_for() -> None:
    pkcs8 = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    old = dsa.generate_private_key(1024).private_bytes(*pkcs8).decode()
    refused(old + server().chain_pem(), "take an RSA or EC key")
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(*pkcs8).decode()
    refused(other + server().chain_pem(), "does not belong")


def test_a_store_password_and_texts_of_other_kinds() -> None:
    with pytest.raises(StoreError, match="leave ssl.keystore.password out") as told:
        load_keystore("PEM", server().pem().encode(), "keep-it-safe", None)
    assert "keep-it-safe" not in str(told.value)
    with pytest.raises(StoreError, match="need ssl.keystore.type=PEM"):
        load_keystore("JKS", server().key_pem().encode(), None, None, server().chain_pem().encode())
    with pytest.raises(StoreError, match="set the type to PEM"):
        load_keystore("PKCS12", server().pem().encode(), "keep-it-safe", None)
    with pytest.raises(StoreError, match="leave ssl.truststore.password out"):
        load_truststore("PEM", trust_pem([authority()]).encode(), "keep-it-safe")


def test_trusted_certificates_are_each_there_once() -> None:
    roots = [authority(), Authority.new()]
    both = tuple(der_of(each.root) for each in roots)
    assert load_truststore("PEM", trust_pem(roots).encode(), None).certificates == both
    assert load_truststore("PEM", one_line(trust_pem([*roots, *roots])).encode(), None).certificates == both
    with pytest.raises(StoreError, match="holds no certificate"):
        load_truststore("PEM", server().key_pem().encode(), None)


def test_a_key_entry_does_not_print_its_key() -> None:
    entry = load_keystore("PEM", server().pem().encode(), None, None)
    assert "PRIVATE" not in repr(entry)
    assert server().key_pem().splitlines()[2] not in repr(entry)


DIFFERENT = {"another key's certificate", "cut", "no base64", "PBES2"}
"""Kafka finds the first out when a client comes, passes a damaged block over, and has a Java that knows no PBES2."""


@pytest.mark.jvm
def test_kafka_takes_and_refuses_the_same() -> None:
    one = server()
    key, chain, secret = one.key_pem(), one.chain_pem(), KEY_PASSWORD
    leaf, between = (pem_of([each]) for each in one.chain)
    cases: dict[str, tuple[str, str, str]] = {
        "plain": (key, chain, ""),
        "one text": (one.pem(), one.pem(), ""),
        "one line": (one_line(key), one_line(chain), ""),
        "CRLF": (key.replace("\n", "\r\n"), chain.replace("\n", "\r\n"), ""),
        "without the last line end": (key.strip(), chain.strip(), ""),
        "text around": ("Bag Attributes\n a: b\n" + key + "x", "subject=/CN=x\n" + chain + "y", ""),
        "attributes within": (key, chain.replace("E-----\nM", "E-----\nName: x\nM"), ""),
        "X509": (key, chain.replace("CERTIFICATE", "X509 CERTIFICATE"), ""),
        "PBES1": (one.key_pem_pbes1(secret), chain, secret),
        "PBES1, another password": (one.key_pem_pbes1(secret), chain, "wrong"),
        "PBES1, no password": (one.key_pem_pbes1(secret), chain, ""),
        "PBES2": (one.key_pem(secret), chain, secret),
        "a password for nothing": (key, chain, secret),
        "a wrong label": (one.key_pem_pbes1(secret).replace("ENCRYPTED ", ""), chain, secret),
        "SEC1": (one.key_pem(pkcs1=True), chain, ""),
        "PKCS#1": (authority().server(kind="rsa").key_pem(pkcs1=True), chain, ""),
        "two keys": (key + key, chain, ""),
        "no key": (chain, chain, ""),
        "no chain": (key, key, ""),
        "the leaf alone": (key, leaf, ""),
        "with the root": (key, chain + trust_pem([authority()]), ""),
        "another order": (key, between + leaf, ""),
        "twice": (key, leaf + leaf, ""),
        "a gap": (key, leaf + trust_pem([authority()]), ""),
        "another key's certificate": (key, pem_of([authority().server().certificate]), ""),
        "cut": (key, chain[:-30], ""),
        "no base64": (key, chain.replace("MI", "M!", 1), ""),
        "damaged": (key.replace("MI", "MM", 1), chain, ""),
    }
    asked = [f"keystore {word(key)} {word(chain)} {word(secret)}" for key, chain, secret in cases.values()]
    differ = set()
    for (name, (key, chain, secret)), answer in zip(cases.items(), ask(asked)):
        try:
            load_keystore("PEM", key.encode(), None, secret or None, chain.encode())
            ours = "taken"
        except StoreError:
            ours = "refused"
        if ours != answer:
            differ.add(name)
    assert differ == DIFFERENT
