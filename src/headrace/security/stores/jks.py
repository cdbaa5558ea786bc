"""Java's own key store format, JKS: private keys and trusted certificates under a password.

All numbers are big-endian. The file: magic FEEDFEED, version (1 or 2), the number of entries, the entries, and a
SHA-1 of the password, a fixed phrase and all that comes before. An entry: its kind, its alias, a date, and for a
private key (1) an EncryptedPrivateKeyInfo and a chain of certificates, for a trusted certificate (2) one certificate.
Version 2 puts the certificate's type before each.

The key is PKCS#8 under a keystream of SHA-1s: 20 bytes of salt, the key, and a SHA-1 of the password and the key.
That is weak; keys in PKCS12 or PEM are better kept.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from headrace.security import der
from headrace.security.der import DerError

from .entries import CERTIFICATES_MAX, CHAIN_MAX, KeyEntry, StoreError, TrustedCertificates, key_entry, trusted
from .pem import private_key

MAGIC: Final = b"\xfe\xed\xfe\xed"
_PHRASE: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
_KEY, _TRUSTED = 1, 2
_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_KEY_BYTES_MAX: Final = 64 << 10
_ENTRIES_MAX: Final = CERTIFICATES_MAX

_DAMAGED: Final = "the JKS store is damaged or cut short: copy it again"


@dataclass(frozen=True)
class Entry:
    """One entry. `sealed_key` is an EncryptedPrivateKeyInfo; it is empty for a trusted certificate, which is alone in
    `chain`."""

    alias: bytes
    sealed_key: bytes = field(repr=False)
    chain: tuple[bytes, ...]


class _Reader:
    """A position in the bytes of a store.

    An announced size is compared with the remaining bytes before they are read.
    """

    def __init__(self, data: bytes, end: int) -> None:
        self.data = data
        self.at = 0
        self.end = end

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise StoreError(_DAMAGED)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> bytes:
        """Java's modified UTF-8 behind two bytes of length, as it is."""
        return self.take(self.number(2))


def keystore(data: bytes, store_password: str, key_password: str | None) -> KeyEntry:
    """The one private key of a store; it is under the store's password unless it has one of its own. Raises
    StoreError."""
    read = entries(data, store_password)
    keys = [entry for entry in read if entry.sealed_key]
    if len(keys) != 1:
        raise StoreError(f"the JKS keystore holds {len(keys)} private keys: a listener takes one")
    own = keys[0]
    plain = unsealed(own.sealed_key, key_password if key_password is not None else store_password)
    others = [entry.chain[0] for entry in read if entry is not own]
    return key_entry(private_key(plain, None), own.chain, others)


def truststore(data: bytes, store_password: str | None) -> TrustedCertificates:
    """The trusted certificates of a store. As in Java, the first certificate of a private key is one of them, and
    without a password nothing says whether the file is whole. Raises StoreError."""
    return trusted([entry.chain[0] for entry in entries(data, store_password) if entry.chain])


def entries(data: bytes, password: str | None) -> list[Entry]:
    """What a store holds, its digest checked where there is a password. Raises StoreError."""
    if data[:4] != MAGIC or len(data) < 12 + _DIGEST_BYTES:
        raise StoreError(_DAMAGED)
    end = len(data) - _DIGEST_BYTES
    if password is not None:
        found = hashlib.sha1(_password_bytes(password) + _PHRASE + data[:end], usedforsecurity=False).digest()
        if not hmac.compare_digest(found, data[end:]):
            raise StoreError("the JKS store cannot be opened: its password is another one, or the file is damaged")
    reader = _Reader(data, end)
    reader.take(4)
    version, count = reader.number(), reader.number()
    if version not in (1, 2):
        raise StoreError(_DAMAGED)
    if count > _ENTRIES_MAX:
        raise StoreError(f"the JKS store announces {count} entries, at most {_ENTRIES_MAX} are read")
    read = [_entry(reader, version) for _ in range(count)]
    if reader.at != end:
        raise StoreError(_DAMAGED)
    return read


def _entry(reader: _Reader, version: int) -> Entry:
    kind = reader.number()
    alias = reader.text()
    reader.take(8)
    if kind == _TRUSTED:
        return Entry(alias, b"", (_certificate(reader, version),))
    if kind != _KEY:
        raise StoreError(_DAMAGED)
    size = reader.number()
    if not 0 < size <= _KEY_BYTES_MAX:
        raise StoreError(_DAMAGED)
    sealed = reader.take(size)
    count = reader.number()
    if count > CHAIN_MAX:
        raise StoreError(f"a certificate chain of the JKS store is longer than {CHAIN_MAX}")
    return Entry(alias, sealed, tuple(_certificate(reader, version) for _ in range(count)))


def _certificate(reader: _Reader, version: int) -> bytes:
    if version == 2 and reader.text() not in (b"X.509", b"X509"):
        raise StoreError("the JKS store holds a certificate that is not X.509: take it out")
    return reader.take(reader.number())


def unsealed(sealed: bytes, password: str) -> bytes:
    """The PKCS#8 key in an EncryptedPrivateKeyInfo of JKS. Raises StoreError where the password is another one."""
    try:
        outer = der.children(sealed, der.whole(sealed, der.SEQUENCE))
        algorithm = der.children(sealed, outer[0])
        protector = der.object_identifier(sealed, algorithm[0])
        protected = der.content(sealed, outer[1])
    except (DerError, IndexError):
        raise StoreError(_DAMAGED) from None
    if protector != _KEY_PROTECTOR or len(protected) <= 2 * _DIGEST_BYTES:
        raise StoreError("the private key of the JKS store is sealed in a way that is not JKS's: export it again")
    salt, body, check = protected[:_DIGEST_BYTES], protected[_DIGEST_BYTES:-_DIGEST_BYTES], protected[-_DIGEST_BYTES:]
    secret = _password_bytes(password)
    stream = bytearray()
    block = salt
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    size = len(body)
    key = (int.from_bytes(body, "big") ^ int.from_bytes(stream[:size], "big")).to_bytes(size, "big")
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise StoreError("the private key of the JKS store cannot be opened: check ssl.key.password")
    return key


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
