"""What a TLS connection of ours is made with: keys and certificates in memory, turned into OpenSSL's context.

Source: RFC 5246, RFC 8446; Kafka's `ssl.*` settings.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""In the order in which OpenSSL prefers them; the first is what two ends agree on that know them all."""
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python has no name for."""
HANDSHAKE_STEPS: Final = 10
"""More than any version of TLS needs: the two sides take turns."""
TOO_WEAK: Final = {
    "CA_MD_TOO_WEAK": (
        "it, or a certificate between it and the root, is signed with SHA-1 or MD5, which can be forged: have the "
        "authority sign it with SHA-256"
    ),
    "EE_KEY_TOO_SMALL": "the key is too short: make one of 2048 bits or more (RSA), or of a curve of 256",
    "CA_KEY_TOO_SMALL": "the key of an authority in its chain is too short: use one with 2048 bits or more (RSA)",
}
"""What OpenSSL's reasons for a refusal by its security level mean, and what to do. The signature of a root by itself
proves nothing, and OpenSSL does not look at how it was made."""


class TlsMaterialError(ValueError):
    """Keys, certificates or suites that OpenSSL does not take; the text is one line without secrets."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What a side of a connection has and believes.

    `key` is a private key as PEM without a password, `chain` its certificates as DER, its own first; both empty: none
    is shown. `trusted` are the certificates of authorities as DER; None: those of the system.
    """

    key: bytes = field(default=b"", repr=False)
    chain: tuple[bytes, ...] = ()
    trusted: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class TlsRules:
    """What may be spoken: versions of TLS, and cipher suites by their IANA names (none: OpenSSL's own choice)."""

    versions: tuple[str, ...] = tuple(VERSIONS)
    suites: tuple[str, ...] = ()


def server_context(
    material: TlsMaterial, rules: TlsRules, client_auth: str, *, checks_time: bool = True
) -> ssl.SSLContext:
    """Of a side that accepts connections; `client_auth`: `none`, `requested` or `required`. Without `checks_time` it
    believes certificates that are over, or not valid yet: that is for trials alone.

    Raises TlsMaterialError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _prepare(context, material, rules, checks_time=checks_time)
    if not material.key:
        raise TlsMaterialError("a listener of TLS needs a private key and its certificate")
    context.verify_mode = CLIENT_AUTH[client_auth]
    return context


def client_context(
    material: TlsMaterial, rules: TlsRules, *, checks_name: bool, checks_time: bool = True
) -> ssl.SSLContext:
    """Of a side that connects. It believes only what leads to a trusted certificate; `checks_name`: and names the host
    that it asked for. `checks_time` as above. Raises TlsMaterialError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _prepare(context, material, rules, checks_time=checks_time)
    context.check_hostname = checks_name
    if material.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def handshake_failure(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Why a connection between the two would not come about, in one line; empty where it would. They are tried out in
    memory, without a name to check; both sides take a millisecond of arithmetic or two."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        (client.wrap_bio(to_client, to_server, server_side=False), "the side that connects"),
        (server.wrap_bio(to_server, to_client, server_side=True), "the side that accepts"),
    ]
    for _ in range(HANDSHAKE_STEPS):
        waits = False
        for side, which in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waits = True
            except ssl.SSLCertVerificationError as error:
                return f"{which} does not believe the certificate: {error.verify_message.strip()}"
            except ssl.SSLError as error:
                return f"{which} refuses: {_why(error)}"
        if not waits:
            return ""
    return "the handshake does not end"


def _prepare(context: ssl.SSLContext, material: TlsMaterial, rules: TlsRules, *, checks_time: bool) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a trust store may name a certificate itself, as with Java
    if not checks_time:
        context.verify_flags |= NO_CHECK_TIME
    _allow(context, rules)
    if material.key:
        with _as_file(material.key + b"\n" + pem(material.chain)) as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError as error:
                raise TlsMaterialError(f"the private key and its certificate cannot be used: {_why(error)}") from None
    if material.trusted is not None:
        if not material.trusted:
            raise TlsMaterialError("the trust store holds no certificate")
        try:
            context.load_verify_locations(cadata=b"".join(material.trusted))
        except ssl.SSLError as error:
            raise TlsMaterialError(f"the trusted certificates cannot be used: {_why(error)}") from None


def _why(error: ssl.SSLError) -> str:
    """What OpenSSL says is wrong, and what to do where it says no more than that something is weak."""
    reason = error.reason or str(error)
    return TOO_WEAK.get(reason, reason.replace("_", " ").lower())


def _allow(context: ssl.SSLContext, rules: TlsRules) -> None:
    """Versions and suites. OpenSSL takes all three suites of TLS 1.3 or none of them from Python: a list of some must
    hold the one that both sides agree on, and `suites_allow` refuses a connection that agreed on another."""
    versions = list(rules.versions)
    older = [suite for suite in rules.suites if suite not in TLS_1_3_SUITES]
    newer = [suite for suite in rules.suites if suite in TLS_1_3_SUITES]
    if rules.suites:
        if not newer and "TLSv1.3" in versions:
            versions.remove("TLSv1.3")
        if not older and "TLSv1.2" in versions:
            versions.remove("TLSv1.2")
        if newer and "TLSv1.3" in versions and TLS_1_3_SUITES[0] not in newer:
            raise TlsMaterialError(f"ssl.cipher.suites names suites of TLS 1.3 without {TLS_1_3_SUITES[0]}: add it")
    if not versions:
        raise TlsMaterialError("ssl.enabled.protocols and ssl.cipher.suites leave no version of TLS")
    context.minimum_version = min(VERSIONS[each] for each in versions)
    context.maximum_version = max(VERSIONS[each] for each in versions)
    if older and "TLSv1.2" in versions:
        for suite in older:
            try:
                context.set_ciphers(openssl_name(suite))
            except ssl.SSLError:
                raise TlsMaterialError(f"ssl.cipher.suites: OpenSSL has no suite {suite}") from None
        context.set_ciphers(":".join(openssl_name(suite) for suite in older))


def suites_allow(rules: TlsRules, cipher: str) -> bool:
    """Whether a connection that agreed on this suite of TLS 1.3 (OpenSSL's name is IANA's there) may go on."""
    return not rules.suites or cipher not in TLS_1_3_SUITES or cipher in rules.suites


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite up to TLS 1.2, from IANA's: `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is
    `ECDHE-RSA-AES128-GCM-SHA256`."""
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    parts = rest.split("_")
    if parts[0] == "AES" and len(parts) > 2:
        parts[:2] = [parts[0] + parts[1]]
        if parts[1] == "CBC":
            del parts[1]  # OpenSSL does not name it
    if parts[:2] == ["CHACHA20", "POLY1305"]:
        parts = parts[:2]
    if parts[-2:] == ["CCM", "8"]:
        parts[-2:] = ["CCM8"]
    before = [] if exchange == "RSA" else exchange.split("_")
    return "-".join([*before, *parts])


def pem(certificates: Sequence[bytes]) -> bytes:
    """Certificates in DER as PEM."""
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates)).encode()


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path under which OpenSSL reads `data`: it takes keys from files alone. The file is in memory where the system
    has that, and is gone afterwards in any case."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
