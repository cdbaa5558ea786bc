"""Key stores in PKCS12 (RFC 7292), opened by `cryptography`.

A PKCS12 file has one password for all that is in it. Java marks a trusted certificate by an attribute of its own, which
is not looked at here: in a file without a private key every certificate is trusted. A file with a private key is no
truststore, as nothing would tell who in it is trusted.
"""

from __future__ import annotations

from typing import Any, Final

from .entries import (
    STORE_BYTES_MAX,
    KeyEntry,
    StoreError,
    TrustedCertificates,
    cryptography_modules,
    key_entry,
    linked,
    trusted,
)
from .iterations import check_iterations

_KEY_BAGS: Final = (bytes.fromhex("060b2a864886f70d010c0a0101"), bytes.fromhex("060b2a864886f70d010c0a0102"))
"""The object identifiers of a key bag and of a shrouded key bag, which are not encrypted."""


def keystore(data: bytes, store_password: str, key_password: str | None) -> KeyEntry:
    """The one private key of a file, and the chain over it that the file holds. Raises StoreError."""
    if key_password is not None and key_password != store_password:
        raise StoreError("a PKCS12 file has one password for its key too: leave ssl.key.password out")
    keys = sum(data.count(bag) for bag in _KEY_BAGS)
    if keys > 1:
        raise StoreError(f"the PKCS12 keystore holds {keys} private keys: a listener takes one")
    opened, serialization = _opened(data, store_password)
    if opened.key is None:
        raise StoreError("the PKCS12 keystore holds no private key: a listener takes one")
    if opened.cert is None:
        raise StoreError("the keystore holds no certificate for its private key: add the certificate chain")
    der = serialization.Encoding.DER
    own = opened.cert.certificate.public_bytes(der)
    more = [each.certificate.public_bytes(der) for each in opened.additional_certs]
    chain = linked(own, more)
    return key_entry(opened.key, chain, [each for each in more if each not in chain])


def truststore(data: bytes, store_password: str | None) -> TrustedCertificates:
    """Every certificate of a file without a private key. Raises StoreError."""
    opened, serialization = _opened(data, store_password)
    if opened.key is not None:
        raise StoreError(
            "the PKCS12 truststore holds a private key: make one of certificates alone (keytool -importcert)"
        )
    held = [opened.cert] if opened.cert is not None else []
    held += opened.additional_certs
    return trusted([each.certificate.public_bytes(serialization.Encoding.DER) for each in held])


def _opened(data: bytes, password: str | None) -> tuple[Any, Any]:
    """What `cryptography` reads in a file, and its module serialization. Raises StoreError."""
    certificates, serialization = cryptography_modules()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    if len(data) > STORE_BYTES_MAX:
        raise StoreError(f"the PKCS12 file is longer than {STORE_BYTES_MAX} bytes")
    check_iterations(data)
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode()), serialization
    except UnsupportedAlgorithm:
        raise StoreError("the PKCS12 file is under a cipher that is not known here: export it again") from None
    except (ValueError, TypeError, certificates.InvalidVersion):
        if password is None:
            raise StoreError("the PKCS12 file cannot be opened without a password: set the store's password") from None
        raise StoreError("the PKCS12 file cannot be opened: its password is another one, or it is damaged") from None
