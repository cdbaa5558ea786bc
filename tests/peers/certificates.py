"""Keys and certificates for tests, made when they are wanted: authorities, servers, clients, and the ones to refuse.

    authority = Authority.new()
    server = authority.server()                                  # localhost, 127.0.0.1 and ::1
    client = authority.client("ann")                             # CN=ann
    stale = authority.issue(named("old"), valid=EXPIRED)
    below = authority.intermediate("below").server()             # its chain holds the authority between

    keystore = server.write_pkcs12(tmp_path / "server.p12")      # also write_pem, write_jks, and pem() as text
    trusted = write_trust_pem(tmp_path / "ca.pem", [authority])  # also write_trust_pkcs12, write_trust_jks
    context.load_cert_chain(server.write_pem(tmp_path / "server.pem"))

Every store has the password PASSWORD unless the caller names another. JKS goes through Java's keytool; all else needs
`cryptography` alone. `Authority.write_all` fills a folder with one of each, for programs in other languages.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PASSWORD: Final = "keep-it-safe"
"""The password of every store and key that is given none; keytool wants six characters or more."""
KEYTOOL_PATIENCE_S: Final = 120

KeyKind = Literal["ec", "rsa"]
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

SERVER_NAMES: Final = ("localhost", "127.0.0.1", "::1")
"""The subject alternative names of a server on this machine."""


@dataclass(frozen=True)
class Validity:
    """From when to when a certificate is valid, in days from now."""

    from_days: float
    to_days: float

    def ends(self) -> tuple[dt.datetime, dt.datetime]:
        now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        return now + dt.timedelta(days=self.from_days), now + dt.timedelta(days=self.to_days)


NOW: Final = Validity(-1, 30)
EXPIRED: Final = Validity(-30, -1)
NOT_YET: Final = Validity(1, 30)


def named(common_name: str) -> x509.Name:
    """A subject of a common name alone."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def subject(*parts: tuple[x509.ObjectIdentifier, str] | tuple[tuple[x509.ObjectIdentifier, str], ...]) -> x509.Name:
    """A subject of many parts, in the order of the certificate; a part of several pairs is one multi-valued RDN."""
    names = []
    for part in parts:
        pairs = part if isinstance(part[0], tuple) else (part,)
        names.append(x509.RelativeDistinguishedName([x509.NameAttribute(oid, value) for oid, value in pairs]))
    return x509.Name(names)


_CN, _O, _OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
HOSTILE: Final[dict[str, x509.Name]] = {
    "comma": named("ann,OU=admins"),
    "newline": named("ann\nCN=admin"),
    "carriage return": named("ann\r\nUser:admin"),
    "null": named("admin\0.example.org"),
    "plus": named("ann+OU=admins"),
    "equals": named("CN=admin"),
    "quote": named('"admin"'),
    "backslash": named("ann\\,OU=admins\\"),
    "angles and semicolon": named("<ann>;OU=admins"),
    "hash": named("#0403"),
    "spaces": named("  ann  "),
    "one space": named(" "),
    "slash": named("ann/admin@EXAMPLE.ORG"),
    "not ASCII": named("Ärger 日本 \U0001f600"),
    "combining": named("A\u0308rger"),
    "control": named("ann\x01\x1b[31m\x7f"),
    "bidirectional": named("ann\u202enimda"),
    "multi-valued": subject(((_CN, "ann"), (_OU, "admins"))),
    "common name twice": subject((_CN, "ann"), (_CN, "admin")),
    "e-mail": subject((NameOID.EMAIL_ADDRESS, "ann@example.org"), (_CN, "ann")),
    "every keyword": subject(
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
        (NameOID.LOCALITY_NAME, "München"),
        (NameOID.STREET_ADDRESS, "Weg 1, Hof"),
        (_O, "Head, Race"),
        (_OU, "logs"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.DOMAIN_COMPONENT, "org"),
        (NameOID.USER_ID, "ann"),
        (_CN, "ann"),
    ),
    "other keywords": subject(
        (NameOID.SERIAL_NUMBER, "4711"),
        (NameOID.TITLE, "Dr, h.c."),
        (NameOID.GIVEN_NAME, "Ann"),
        (NameOID.SURNAME, "Ä"),
        (NameOID.DN_QUALIFIER, "q"),
        (NameOID.PSEUDONYM, "p"),
        (x509.ObjectIdentifier("1.2.3.4.5"), "own"),
        (_CN, "ann"),
    ),
    "long": named("a" * 64),
    "many": subject(*((_OU, f"unit {number}, {number}") for number in range(64)), (_CN, "ann")),
    "empty": x509.Name([]),
}
"""Subjects that a reader of distinguished names may take for another one, by what is wrong with them."""


def new_key(kind: KeyKind = "ec") -> Key:
    """A private key: P-256, or RSA of 2,048 bits, which takes a tenth of a second."""
    if kind == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem_of(certificates: Iterable[x509.Certificate]) -> str:
    """Certificates in PEM, one after the other."""
    return "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in certificates)


def der_of(certificate: x509.Certificate) -> bytes:
    """One certificate in DER."""
    return certificate.public_bytes(serialization.Encoding.DER)


def _encryption(password: str | None) -> serialization.KeySerializationEncryption:
    return serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()


@dataclass(frozen=True)
class Identity:
    """A private key with its certificate, and the authorities above it, next one first, the root left out."""

    key: Key
    certificate: x509.Certificate
    between: tuple[x509.Certificate, ...] = ()

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        """The certificate and the authorities between it and the root: what a peer is shown."""
        return (self.certificate, *self.between)

    def key_pem(self, password: str | None = None, *, pkcs1: bool = False) -> str:
        """The private key in PKCS#8, encrypted where a password is given; or in PKCS#1 (SEC 1 for EC), which
        Kafka refuses."""
        how = serialization.PrivateFormat.TraditionalOpenSSL if pkcs1 else serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, how, _encryption(password)).decode()

    def key_pem_pbes1(self, password: str = PASSWORD) -> str:
        """The private key in PKCS#8 under 3DES and SHA-1, as old tools wrote it; by the `openssl` command."""
        command = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{password}"]
        return subprocess.run(command, check=True, input=self.key_pem(), capture_output=True, text=True).stdout

    def chain_pem(self) -> str:
        """What `ssl.keystore.certificate.chain` takes."""
        return pem_of(self.chain)

    def pem(self, password: str | None = None) -> str:
        """Key and chain in one text, as a keystore of type PEM is on disk."""
        return self.key_pem(password) + self.chain_pem()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Key and chain in one file: for `ssl.keystore.location` of type PEM, and for Python's load_cert_chain."""
        path.write_text(self.pem(password))
        return path

    def pkcs12(self, password: str = PASSWORD, alias: str = "own") -> bytes:
        """A PKCS12 keystore as it is made today."""
        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.certificate, self.between, _encryption(password)
        )

    def pkcs12_old(self, password: str = PASSWORD, alias: str = "own") -> bytes:
        """A PKCS12 keystore under 3DES and SHA-1, as Java 8 and OpenSSL 1 made it."""
        encryption = (
            serialization.PrivateFormat.PKCS12.encryption_builder()
            .kdf_rounds(50_000)
            .key_cert_algorithm(pkcs12.PBES.PBESv1SHA1And3KeyTripleDESCBC)
            .hmac_hash(hashes.SHA1())
            .build(password.encode())
        )
        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.certificate, self.between, encryption
        )

    def write_pkcs12(self, path: Path, password: str = PASSWORD, alias: str = "own") -> Path:
        """A PKCS12 keystore on disk."""
        path.write_bytes(self.pkcs12(password, alias))
        return path

    def write_jks(
        self, path: Path, password: str = PASSWORD, key_password: str | None = None, alias: str = "own"
    ) -> Path:
        """A JKS keystore on disk; the key has a password of its own where one is given. Needs keytool."""
        source = self.write_pkcs12(path.with_name(path.name + ".source"), password, alias)
        try:
            keytool(
                "-importkeystore", "-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass", password,
                "-destkeystore", str(path), "-deststoretype", "JKS", "-deststorepass", password,
                "-srcalias", alias, "-destkeypass", key_password or password,
            )  # fmt: skip
        finally:
            source.unlink()
        return path


@dataclass(frozen=True)
class Authority:
    """Who signs certificates: a root, or one below it."""

    own: Identity
    root: x509.Certificate

    @classmethod
    def new(cls, name: str = "Headrace test CA", kind: KeyKind = "ec") -> Authority:
        """A root of its own."""
        key = new_key(kind)
        certificate = _signed(key, named(name), key, named(name), NOW, (), authority=True)
        return cls(Identity(key, certificate), certificate)

    def intermediate(self, name: str, kind: KeyKind = "ec", valid: Validity = NOW) -> Authority:
        """An authority below this one."""
        return Authority(self.issue(named(name), kind=kind, valid=valid, authority=True), self.root)

    def issue(
        self,
        who: x509.Name,
        *,
        names: Sequence[str] = (),
        kind: KeyKind = "ec",
        valid: Validity = NOW,
        key: Key | None = None,
        authority: bool = False,
    ) -> Identity:
        """A certificate for `who`, with `names` (host names and addresses) as its subject alternative names. `key` is
        a key that is there already: a renewed certificate."""
        own = key or new_key(kind)
        certificate = _signed(own, who, self.own.key, self.own.certificate.subject, valid, names, authority=authority)
        above = () if self.own.certificate == self.root else self.own.chain
        return Identity(own, certificate, above)

    def server(
        self,
        name: str = "localhost",
        *,
        names: Sequence[str] = SERVER_NAMES,
        kind: KeyKind = "ec",
        valid: Validity = NOW,
        key: Key | None = None,
    ) -> Identity:
        """A server's certificate, for this machine unless `names` says otherwise."""
        return self.issue(named(name), names=names, kind=kind, valid=valid, key=key)

    def client(self, name: str, *, kind: KeyKind = "ec", valid: Validity = NOW) -> Identity:
        """A client's certificate: CN=name."""
        return self.issue(named(name), kind=kind, valid=valid)

    def write_all(self, folder: Path, password: str = PASSWORD, *, jks: bool = False) -> dict[str, Path]:
        """One of each in `folder`: server.pem, server.p12, client.pem, client.p12, ca.pem, ca.p12, and with `jks` the
        same in JKS. Returns them by file name."""
        made = []
        for name, identity in (("server", self.server()), ("client", self.client("ann"))):
            made.append(identity.write_pem(folder / f"{name}.pem"))
            made.append(identity.write_pkcs12(folder / f"{name}.p12", password))
            if jks:
                made.append(identity.write_jks(folder / f"{name}.jks", password))
        made.append(write_trust_pem(folder / "ca.pem", [self]))
        made.append(write_trust_pkcs12(folder / "ca.p12", [self], password))
        if jks:
            made.append(write_trust_jks(folder / "ca.jks", [self], password))
        return {path.name: path for path in made}


def _signed(
    key: Key,
    who: x509.Name,
    signer: Key,
    issuer: x509.Name,
    valid: Validity,
    names: Sequence[str],
    *,
    authority: bool,
) -> x509.Certificate:
    """A certificate, signed; of an authority, or of a server or client."""
    begins, ends = valid.ends()
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=isinstance(key, rsa.RSAPrivateKey),
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not authority:
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(both, critical=False)
    if names:
        alternatives = x509.SubjectAlternativeName([_general(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    """A host name, or an address."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def trust_pem(authorities: Iterable[Authority]) -> str:
    """What `ssl.truststore.certificates` takes."""
    return pem_of(each.root for each in authorities)


def write_trust_pem(path: Path, authorities: Iterable[Authority]) -> Path:
    """The roots in one PEM file."""
    path.write_text(trust_pem(authorities))
    return path


def trust_pkcs12(authorities: Iterable[Authority], password: str = PASSWORD) -> bytes:
    """The roots in a PKCS12 truststore with the attribute that Java asks for."""
    entries = [pkcs12.PKCS12Certificate(each.root, f"ca{number}".encode()) for number, each in enumerate(authorities)]
    return pkcs12.serialize_java_truststore(entries, _encryption(password))


def write_trust_pkcs12(path: Path, authorities: Iterable[Authority], password: str = PASSWORD) -> Path:
    """The roots in a PKCS12 truststore on disk."""
    path.write_bytes(trust_pkcs12(authorities, password))
    return path


def write_trust_jks(path: Path, authorities: Iterable[Authority], password: str = PASSWORD) -> Path:
    """The roots in a JKS truststore on disk. Needs keytool."""
    source = path.with_name(path.name + ".source")
    for number, each in enumerate(authorities):
        source.write_bytes(der_of(each.root))
        try:
            keytool(
                "-importcert", "-noprompt", "-file", str(source), "-alias", f"ca{number}",
                "-keystore", str(path), "-storetype", "JKS", "-storepass", password,
            )  # fmt: skip
        finally:
            source.unlink()
    return path


def keytool(*arguments: str) -> str:
    """Run Java's keytool. Returns what it says; raises AssertionError with that where it fails."""
    command = ["keytool", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=KEYTOOL_PATIENCE_S)
    if done.returncode != 0:
        raise AssertionError(f"keytool {arguments[0]}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
