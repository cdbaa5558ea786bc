"""What a store holds once it is open, and the one way in which opening it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from headrace.security import names
from headrace.security.der import DerError

if TYPE_CHECKING:
    from cryptography import x509

STORE_BYTES_MAX: Final = 4 << 20
"""The largest store that is read. Java's own list of 140 authorities has 160 KB."""
CERTIFICATES_MAX: Final = 2_000
CHAIN_MAX: Final = 32
ITERATIONS_MAX: Final = 5_000_000
"""The most rounds of key derivation that a store may ask for, as in Java: some seconds of work."""

_SIGNED: Final = b"headrace"
_NEEDED: Final = "TLS needs the package cryptography: install headrace[security]"


class StoreError(ValueError):
    """A store cannot be used. The text is one line that says what to do, and holds no password."""


class MissingPackageError(StoreError):
    """Nothing is wrong with the store: what would open it is not installed."""


@dataclass(frozen=True)
class KeyEntry:
    """A private key with its certificates.

    `private_key_pem` is PKCS#8 without a password, `chain` the certificates in DER, the key's own first, each
    followed by its issuer's. `others` are the first certificates of the store's further entries, in the order of the
    store: nobody is shown them, but a store that replaces another must hold as many.
    """

    private_key_pem: bytes = field(repr=False)
    chain: tuple[bytes, ...]
    others: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class TrustedCertificates:
    """Who is trusted to sign certificates: theirs, in DER, each once, in the order of the store."""

    certificates: tuple[bytes, ...]


def cryptography_modules() -> tuple[ModuleType, ModuleType]:
    """The modules x509 and serialization of `cryptography`. Raises MissingPackageError without them."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise MissingPackageError(_NEEDED) from None
    return x509, serialization


def trusted(certificates: Sequence[bytes]) -> TrustedCertificates:
    """Trusted certificates, checked. Raises StoreError where there is none, or one that cannot be read."""
    if not certificates:
        raise StoreError("the truststore holds no certificate: put those of the authorities to trust in it")
    once = tuple(dict.fromkeys(certificates))
    if len(once) > CERTIFICATES_MAX:
        raise StoreError(f"the truststore holds {len(once)} certificates, at most {CERTIFICATES_MAX} are read")
    for number, certificate in enumerate(once, 1):
        parsed(certificate, number)
    return TrustedCertificates(once)


def key_entry(private_key: Any, chain: Sequence[bytes], others: Sequence[bytes] = ()) -> KeyEntry:
    """A private key of `cryptography` with its chain, checked: the first certificate is the key's, and each next one
    its issuer's. Raises StoreError."""
    _, serialization = cryptography_modules()
    _check_kind(private_key)
    if not chain:
        raise StoreError("the keystore holds no certificate for its private key: add the certificate chain")
    if len(chain) > CHAIN_MAX or len(others) > CERTIFICATES_MAX:
        raise StoreError(f"the certificate chain of the keystore is longer than {CHAIN_MAX}")
    certificates = [parsed(certificate, number) for number, certificate in enumerate(chain, 1)]
    _check_links(chain)
    if not _fits(private_key, certificates[0]):
        raise StoreError(
            "the private key does not belong to the first certificate of the chain: put the key's own certificate first"
        )
    pem = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyEntry(pem, tuple(chain), tuple(others))


def parsed(certificate: bytes, number: int) -> x509.Certificate:
    """One certificate of `cryptography` from DER. Raises StoreError that names it by its number."""
    certificates, _ = cryptography_modules()
    try:
        names.read(certificate)
        read: x509.Certificate = certificates.load_der_x509_certificate(certificate)
    except (DerError, ValueError, certificates.InvalidVersion):
        raise StoreError(f"certificate {number} of the store is damaged: export it again") from None
    return read


def _check_kind(private_key: Any) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    signs = (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)
    if not isinstance(private_key, signs):
        raise StoreError("the private key is of a kind that TLS cannot use: take an RSA or EC key")


def _check_links(chain: Sequence[bytes]) -> None:
    """Each next certificate is the issuer's of the one before: a chain in another order is a mistake."""
    read = [names.read(certificate) for certificate in chain]
    for number, (below, above) in enumerate(pairwise(read), 1):
        if names.canonical(below.issuer) != names.canonical(above.subject):
            raise StoreError(
                f"certificate {number + 1} of the chain is not the issuer of certificate {number}: "
                "order them from the key's own upwards"
            )


def _fits(private_key: Any, certificate: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        public_key = certificate.public_key()
        if private_key.public_key() != public_key:
            return False
        _check_signature(private_key, public_key)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _check_signature(private_key: Any, public_key: Any) -> None:
    """That what an RSA key signs is its certificate's signature: nobody has looked whether its parts are primes. Raises
    InvalidSignature, or ValueError."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    if isinstance(private_key, rsa.RSAPrivateKey):
        how = padding.PKCS1v15(), hashes.SHA256()
        public_key.verify(private_key.sign(_SIGNED, *how), _SIGNED, *how)


def check_rsa(private_key: Any) -> None:
    """That the numbers of an RSA key belong together, where it is one (RFC 8017, 3.2). Raises ValueError."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    if not isinstance(private_key, rsa.RSAPrivateKey):
        return
    held = private_key.private_numbers()
    p, q, d = held.p, held.q, held.d
    e, n = held.public_numbers.e, held.public_numbers.n
    is_sound = p > 2 and q > 2 and p & q & 1 and p * q == n and 2 < e < n and d < n
    if not (is_sound and held.dmp1 == d % (p - 1) and held.dmq1 == d % (q - 1) and held.iqmp * q % p == 1):
        raise ValueError("the numbers of the key do not belong together")
    if e * held.dmp1 % (p - 1) != 1 or e * held.dmq1 % (q - 1) != 1:
        raise ValueError("the exponents of the key do not belong together")


def linked(first: bytes, pool: Sequence[bytes]) -> tuple[bytes, ...]:
    """The chain that begins with `first`: each next one is that of `pool` whose subject is the issuer before. Ends at
    a certificate that issued itself, or where the pool has no further one. Raises StoreError."""
    by_subject: dict[names.CanonicalName, list[bytes]] = {}
    try:
        for each in pool:
            by_subject.setdefault(names.canonical(names.read(each).subject), []).append(each)
        chain = [first]
        while len(chain) < CHAIN_MAX:
            above = _issuer(chain[-1], by_subject.get(names.canonical(names.read(chain[-1]).issuer), []))
            if above is None or above in chain:
                break
            chain.append(above)
    except DerError:
        raise StoreError("a certificate of the store is damaged: export it again") from None
    return tuple(chain)


def _issuer(below: bytes, candidates: Sequence[bytes]) -> bytes | None:
    """Whose signature a certificate bears. Where several have the issuer's name, as after an authority got a new key,
    the signature decides."""
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    certificate = parsed(below, 1)
    for candidate in candidates:
        try:
            certificate.verify_directly_issued_by(parsed(candidate, 1))
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return candidate
    return None
