"""Keys and certificates in PEM (RFC 7468), as Kafka's stores of type PEM take them.

A keystore is one text with exactly one private key in PKCS#8 and its chain, or two texts. Text around the blocks is
passed over, and white space within one may be of any kind, so a block may be on a single line of a properties file.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final, NamedTuple

from .entries import (
    CERTIFICATES_MAX,
    STORE_BYTES_MAX,
    KeyEntry,
    StoreError,
    TrustedCertificates,
    check_rsa,
    cryptography_modules,
    key_entry,
    trusted,
)
from .iterations import check_iterations

_BEGIN: Final = re.compile(r"-BEGIN[ \t]{1,4}([A-Z0-9][A-Z0-9 ]{0,62}?)[ \t]{0,4}-{1,16}\s")
_END: Final = re.compile(r"-END[ \t]{1,4}([A-Z0-9][A-Z0-9 ]{0,62}?)[ \t]{0,4}-")
_SPACE: Final = re.compile(r"\s+")

_KEY: Final = "PRIVATE KEY"
_PKCS8: Final = (_KEY, "ENCRYPTED PRIVATE KEY")
_CERTIFICATES: Final = ("CERTIFICATE", "X509 CERTIFICATE")


class Block(NamedTuple):
    """Returns the bytes between BEGIN and END, decoded."""

    label: str
    der: bytes


def keystore(key: bytes, chain: bytes, key_password: str | None) -> KeyEntry:
    """The key in one text and its chain in another, which may be the same. Raises StoreError."""
    keys = [block for block in blocks(key) if block.label in _PKCS8]
    certificates = [block.der for block in blocks(chain) if block.label in _CERTIFICATES]
    if len(keys) != 1:
        raise StoreError(f"the PEM keystore holds {len(keys)} private keys: give it exactly one, in PKCS#8")
    return key_entry(private_key(keys[0].der, key_password), certificates)


def truststore(data: bytes) -> TrustedCertificates:
    """Every certificate of a text. Raises StoreError."""
    return trusted([block.der for block in blocks(data) if block.label in _CERTIFICATES])


def blocks(data: bytes) -> list[Block]:
    """The blocks of a PEM text, in order. Raises StoreError where one has no end or is damaged."""
    if len(data) > STORE_BYTES_MAX:
        raise StoreError(f"the PEM text is longer than {STORE_BYTES_MAX} bytes")
    text = data.decode("utf-8", "replace") + "\n"
    found = []
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        label = _SPACE.sub(" ", begin[1])
        end = _END.search(text, begin.end())
        if end is None or _SPACE.sub(" ", end[1]) != label:
            raise StoreError(f"the PEM block {label} has no end: copy it whole, with its END line")
        at = end.end()
        # a block that nobody asks for may hold what it will; one in PKCS#1 has lines in front that are not base64
        if label in _CERTIFICATES or label in _PKCS8:
            found.append(Block(label, _decoded(text[begin.end() : end.start()], label)))
        elif label.endswith(_KEY):
            raise StoreError(
                f"a key in the format {label} is not taken: convert it to PKCS#8 with openssl pkcs8 -topk8"
            )
        if len(found) > CERTIFICATES_MAX:
            raise StoreError(f"the PEM text holds more than {CERTIFICATES_MAX} blocks")
    return found


def _decoded(text: str, label: str) -> bytes:
    lines = [line for line in text.rstrip("-").splitlines() if ":" not in line]  # attributes come before the base64
    packed = _SPACE.sub("", "".join(lines)).rstrip("=")
    try:
        return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise StoreError(f"the PEM block {label} is damaged: it is not base64") from None


def private_key(der: bytes, password: str | None) -> Any:
    """A private key of `cryptography` from PKCS#8, encrypted where there is a password: as to Kafka, the label of the
    block does not say so. Raises StoreError.

    OpenSSL would look for 35 ms whether the parts of an RSA key are primes, and hold the event loop meanwhile: that its
    numbers belong together is checked here, and the code that makes an entry of it checks that it signs for its
    certificate.
    """
    _, serialization = cryptography_modules()
    from cryptography.exceptions import UnsupportedAlgorithm

    check_iterations(der)
    secret = None if password is None else password.encode()
    try:
        key = serialization.load_der_private_key(der, secret, unsafe_skip_rsa_key_validation=True)
        check_rsa(key)
        return key
    except UnsupportedAlgorithm:
        raise StoreError("the private key is of a kind, or under a cipher, that is not known here") from None
    except TypeError:
        if password is None:
            raise StoreError("the private key is encrypted: set ssl.key.password") from None
        raise StoreError("the private key is not encrypted: leave ssl.key.password out") from None
    except ValueError:
        if password is None:
            raise StoreError("the private key is damaged, or not in PKCS#8: export it again") from None
        raise StoreError("the private key cannot be opened: check ssl.key.password, or export the key again") from None
