"""One door to the stores of every kind: what `ssl.keystore.*` and `ssl.truststore.*` say is opened here.

As in Java, the kinds JKS and PKCS12 open one another's files: the first bytes say what a file is
(`keystore.type.compat`).
"""

from __future__ import annotations

from typing import Final

from . import jks, pem, pkcs12
from .entries import STORE_BYTES_MAX, KeyEntry, StoreError, TrustedCertificates

JKS: Final = "JKS"
PKCS12: Final = "PKCS12"
PEM: Final = "PEM"
KINDS: Final = (JKS, PKCS12, PEM)

_JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"


def load_keystore(
    kind: str, data: bytes, store_password: str | None, key_password: str | None, chain: bytes | None = None
) -> KeyEntry:
    """The private key in a keystore, and its certificates.

    `kind` is `ssl.keystore.type`, `data` the content of `ssl.keystore.location`. For PEM inline, `data` is
    `ssl.keystore.key` and `chain` is `ssl.keystore.certificate.chain`. The passwords are None where the settings are
    not given. Raises StoreError; its text names no file and holds no password.
    """
    if _is_pem(kind, data, chain):
        if store_password is not None:
            raise StoreError("a PEM keystore has no password: leave ssl.keystore.password out")
        return pem.keystore(data, data if chain is None else chain, key_password)
    if store_password is None:
        raise StoreError("the keystore needs its password: set ssl.keystore.password")
    if data[:4] == jks.MAGIC:
        return jks.keystore(data, store_password, key_password)
    return pkcs12.keystore(data, store_password, key_password)


def load_truststore(kind: str, data: bytes, store_password: str | None) -> TrustedCertificates:
    """The certificates in a truststore: `ssl.truststore.type`, the content of `ssl.truststore.location` or of
    `ssl.truststore.certificates`, and `ssl.truststore.password` or None. Raises StoreError."""
    if _is_pem(kind, data, None):
        if store_password is not None:
            raise StoreError("a PEM truststore has no password: leave ssl.truststore.password out")
        return pem.truststore(data)
    if data[:4] == jks.MAGIC:
        return jks.truststore(data, store_password)
    return pkcs12.truststore(data, store_password)


def _is_pem(kind: str, data: bytes, chain: bytes | None) -> bool:
    """Whether a store is PEM; checks what all kinds have in common. Raises StoreError."""
    if kind != PEM and kind.upper() not in (JKS, PKCS12):
        raise StoreError(f"a store of type {kind} is not known: the types are {', '.join(KINDS)}")
    if not data:
        raise StoreError("the store is empty: copy it again")
    if len(data) > STORE_BYTES_MAX:
        raise StoreError(f"the store is longer than {STORE_BYTES_MAX} bytes: that is no store of keys")
    if kind == PEM:
        return True
    if chain is not None:
        raise StoreError("a private key and its chain as text need ssl.keystore.type=PEM")
    if b"-----BEGIN " in data[:4096]:
        raise StoreError(f"the store is PEM, but its type says {kind}: set the type to PEM")
    if data[:4] == _JCEKS_MAGIC:
        raise StoreError("the store is of Java's type JCEKS: convert it with keytool -importkeystore to PKCS12")
    return False
