"""Nodes that use TLS among each other, each with its own certificate; their clients do not.

OpenSSL has its own randomness and clock: such a run is checked like any other, but the same seed may give different
runs, and its digest is meaningless.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ENCRYPTED_SETTINGS: Final = {
    "inter.broker.listener.name": "NODES",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NODES:SSL,CONTROLLER:SSL",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
}
_DAY: Final = dt.timedelta(days=1)


def stores_of(host: str) -> dict[str, str]:
    """The settings of a node's stores: its key, its certificate, and the authority that all nodes of this process
    believe."""
    key, name = _authority()
    own = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed(_named(host), own.public_key(), name, key, x509.SubjectAlternativeName([x509.DNSName(host)]))
    private = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "ssl.keystore.key": private.decode(),
        "ssl.keystore.certificate.chain": certificate,
        "ssl.truststore.certificates": _authority_pem(),
    }


@lru_cache(1)
def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Name]:
    return ec.generate_private_key(ec.SECP256R1()), _named("simulated authority")


@lru_cache(1)
def _authority_pem() -> str:
    key, name = _authority()
    return _signed(name, key.public_key(), name, key, x509.BasicConstraints(ca=True, path_length=0))


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _signed(
    whose: x509.Name,
    key: ec.EllipticCurvePublicKey,
    by: x509.Name,
    with_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> str:
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(by)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 30 * _DAY)
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    )
    return built.sign(with_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
