"""Stores for tests, one of each kind, made once; and a writer of JKS, so that hostile ones can be made without Java."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

from cryptography.hazmat.primitives import serialization
from hypothesis import strategies as st
from peers.certificates import PASSWORD, Authority, Identity, der_of, trust_pem, trust_pkcs12

KEY_PASSWORD = "another-one"
PHRASE = b"Mighty Aphrodite"
PROTECTOR = bytes.fromhex("300e060a2b060104012a021101010500")


@functools.cache
def authority() -> Authority:
    return Authority.new()


@functools.cache
def server() -> Identity:
    """A server with an authority between it and the root."""
    return authority().intermediate("between").server()


def chain_of(identity: Identity) -> tuple[bytes, ...]:
    return tuple(der_of(each) for each in identity.chain)


def root_der() -> bytes:
    return der_of(authority().root)


def sized(data: bytes, size: int = 4) -> bytes:
    return len(data).to_bytes(size, "big") + data


def length(size: int) -> bytes:
    """A length in DER."""
    if size < 0x80:
        return bytes([size])
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits


def sealed(key: bytes, password: str) -> bytes:
    """A PKCS#8 key as JKS seals it."""
    secret = password.encode("utf-16-be")
    salt = hashlib.sha1(key).digest()
    stream, block = b"", salt
    while len(stream) < len(key):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    mixed = bytes(a ^ b for a, b in zip(key, stream))
    protected = salt + mixed + hashlib.sha1(secret + key).digest()
    held = PROTECTOR + b"\x04" + length(len(protected)) + protected
    return b"\x30" + length(len(held)) + held


def key_der(identity: Identity) -> bytes:
    der, pkcs8 = serialization.Encoding.DER, serialization.PrivateFormat.PKCS8
    return identity.key.private_bytes(der, pkcs8, serialization.NoEncryption())


def jks_certificate(certificate: bytes, version: int = 2) -> bytes:
    return (sized(b"X.509", 2) if version == 2 else b"") + sized(certificate)


def jks_key(identity: Identity, password: str = PASSWORD, alias: bytes = b"own", version: int = 2) -> bytes:
    """An entry of a private key."""
    chain = chain_of(identity)
    certificates = b"".join(jks_certificate(each, version) for each in chain)
    head = (1).to_bytes(4, "big") + sized(alias, 2) + bytes(8)
    return head + sized(sealed(key_der(identity), password)) + len(chain).to_bytes(4, "big") + certificates


def jks_trusted(certificate: bytes, alias: bytes = b"ca", version: int = 2) -> bytes:
    """An entry of a trusted certificate."""
    return (2).to_bytes(4, "big") + sized(alias, 2) + bytes(8) + jks_certificate(certificate, version)


def jks(entries: Sequence[bytes], password: str = PASSWORD, version: int = 2, count: int | None = None) -> bytes:
    """A whole store, its digest right."""
    number = len(entries) if count is None else count
    body = b"\xfe\xed\xfe\xed" + version.to_bytes(4, "big") + number.to_bytes(4, "big") + b"".join(entries)
    return body + hashlib.sha1(password.encode("utf-16-be") + PHRASE + body).digest()


@functools.cache
def keystores() -> dict[str, tuple[str, bytes, str | None, str | None]]:
    """Good keystores by name: kind, content, store password, key password."""
    one = server()
    return {
        "pem": ("PEM", one.pem().encode(), None, None),
        "encrypted pem": ("PEM", one.pem(KEY_PASSWORD).encode(), None, KEY_PASSWORD),
        "pkcs12": ("PKCS12", one.pkcs12(), PASSWORD, None),
        "old pkcs12": ("PKCS12", one.pkcs12_old(), PASSWORD, None),
        "jks": ("JKS", jks([jks_key(one), jks_trusted(root_der())]), PASSWORD, None),
        "jks, another key password": ("JKS", jks([jks_key(one, KEY_PASSWORD)]), PASSWORD, KEY_PASSWORD),
    }


@functools.cache
def truststores() -> dict[str, tuple[str, bytes, str | None]]:
    """Good truststores by name: kind, content, store password."""
    return {
        "pem": ("PEM", trust_pem([authority()]).encode(), None),
        "pkcs12": ("PKCS12", trust_pkcs12([authority()]), PASSWORD),
        "jks": ("JKS", jks([jks_trusted(root_der())]), PASSWORD),
        "jks without its password": ("JKS", jks([jks_trusted(root_der())]), None),
    }


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes changed in a few places: other values, cuts, doublings and large numbers."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(changed)))
        how = draw(st.integers(0, 4))
        if how == 0:
            changed[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif how == 1:
            del changed[at : at + draw(st.integers(1, 64))]
        elif how == 2:
            changed[at:at] = changed[at : at + draw(st.integers(1, 64))]
        elif how == 3:
            changed[at : at + 4] = draw(st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)]))
        else:
            changed = changed[:at]
    return bytes(changed)
