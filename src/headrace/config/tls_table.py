"""Settings of TLS: each holds for every listener, or behind `listener.name.NAME.` for one."""

from __future__ import annotations

from typing import Final

from .setting import Setting, Type

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
_JAVA_ALONE: Final = "it chooses between parts of a Java runtime, and there is none"


def _row(name: str, kind: Type, default: str | bool | tuple[str, ...] | None, about: str, **more: object) -> Setting:
    return Setting(name, kind, default, about, by="listener", **more)  # type: ignore[arg-type]


def _java(name: str, default: str | None, about: str) -> Setting:
    return _row(name, Type.STRING, default, about, update="per-broker", unserved=_JAVA_ALONE)


TLS_ROWS: Final[tuple[Setting, ...]] = (
    _row(
        "ssl.keystore.type",
        Type.STRING,
        "JKS",
        "Format of the key store: `JKS` and `PKCS12` (each is recognized if the other is named), or `PEM`.",
        choices=STORE_TYPES,
        update="per-broker",
    ),
    _row(
        "ssl.keystore.location",
        Type.STRING,
        None,
        "File of the key store: the broker's private key and its chain of certificates.",
        update="per-broker",
    ),
    _row(
        "ssl.keystore.password",
        Type.PASSWORD,
        None,
        "Password of the key store's file; a PEM store has none.",
        update="per-broker",
    ),
    _row(
        "ssl.key.password",
        Type.PASSWORD,
        None,
        "Password of the private key, if it is encrypted; in a JKS store that of the store unless given.",
        update="per-broker",
    ),
    _row(
        "ssl.keystore.key",
        Type.PASSWORD,
        None,
        "The private key itself, as PEM text (PKCS#8), in place of a file; the type is `PEM`.",
        update="per-broker",
    ),
    _row(
        "ssl.keystore.certificate.chain",
        Type.PASSWORD,
        None,
        "The certificates of the key in `ssl.keystore.key`, as PEM text, the broker's own first.",
        update="per-broker",
    ),
    _row(
        "ssl.truststore.type",
        Type.STRING,
        "JKS",
        "Format of the trust store, as in `ssl.keystore.type`.",
        choices=STORE_TYPES,
        update="per-broker",
    ),
    _row(
        "ssl.truststore.location",
        Type.STRING,
        None,
        "File of the trust store: authorities whose certificates are believed. Not set: those of the system.",
        update="per-broker",
    ),
    _row(
        "ssl.truststore.password",
        Type.PASSWORD,
        None,
        "Password that the trust store's integrity is checked with; without it the store is read unchecked.",
        update="per-broker",
    ),
    _row(
        "ssl.truststore.certificates",
        Type.PASSWORD,
        None,
        "Trusted certificates as PEM text, in place of a file; the type is `PEM`.",
        update="per-broker",
    ),
    _row(
        "ssl.client.auth",
        Type.STRING,
        "none",
        "Whether clients show a certificate: they must (`required`), may (`requested`), or are not asked (`none`). On "
        "a SASL_SSL listener it counts behind `listener.name.NAME.` alone.",
        choices=("required", "requested", "none"),
        update="per-broker",
    ),
    _row(
        "ssl.enabled.protocols",
        Type.LIST,
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that may be spoken.",
        choices=PROTOCOLS,
        update="per-broker",
    ),
    _row(
        "ssl.protocol",
        Type.STRING,
        "TLSv1.3",
        "The newest version of TLS, if `ssl.enabled.protocols` allows it.",
        choices=("TLS", *PROTOCOLS),
        update="per-broker",
    ),
    _row(
        "ssl.cipher.suites",
        Type.LIST,
        (),
        "Cipher suites that may be used, by their IANA names; empty: those that OpenSSL holds for good.",
        update="per-broker",
    ),
    _row(
        "ssl.endpoint.identification.algorithm",
        Type.STRING,
        "https",
        "How the name of a server is checked when the broker connects to it: `https`, or empty: it is not.",
        choices=("https", "HTTPS", ""),
        update="per-broker",
    ),
    _row(
        "ssl.principal.mapping.rules",
        Type.STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes a principal: `RULE:pattern/replacement/[L|U]` or `DEFAULT`, "
        "one after the other, divided by commas; the first that matches holds.",
    ),
    _row(
        "ssl.allow.dn.changes",
        Type.BOOLEAN,
        False,
        "Whether a store that replaces another may name another subject.",
    ),
    _row(
        "ssl.allow.san.changes",
        Type.BOOLEAN,
        False,
        "Whether a store that replaces another may leave out names that the certificate had.",
    ),
    _java("ssl.provider", None, "Java's provider of TLS."),
    _java("ssl.keymanager.algorithm", "SunX509", "Java's algorithm for key stores."),
    _java("ssl.trustmanager.algorithm", "PKIX", "Java's algorithm for trust stores."),
    _java("ssl.secure.random.implementation", None, "Java's source of random numbers."),
    _row(
        "ssl.engine.factory.class",
        Type.CLASS,
        None,
        "A Java class that makes TLS engines.",
        update="per-broker",
        refused="a Java class cannot make TLS engines here: data would go by other rules than it sets",
    ),
)
