"""The settings of TLS on one listener, as typed fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .listener import PREFIX, ListenerConfig

TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where a key store or a trust store is: a file, or PEM text in the settings themselves."""

    kind: str
    """`JKS`, `PKCS12` or `PEM`."""
    location: str | None
    password: str | None = field(repr=False)
    pem_certificates: str | None = field(repr=False)
    """The chain of the key, or the trusted certificates."""
    pem_key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        """Whether there is a store at all."""
        return bool(self.location or self.pem_certificates or self.pem_key)


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """What a listener, or a connection that this node opens, does with TLS."""

    key_store: StoreConfig
    trust_store: StoreConfig
    client_auth: str
    """`none`, `requested` or `required`."""
    enabled_protocols: tuple[str, ...]
    protocol: str
    cipher_suites: tuple[str, ...]
    checks_server_names: bool
    principal_mapping_rules: str
    allow_dn_changes: bool
    allow_san_changes: bool

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that may be spoken: those that are enabled, none newer than `ssl.protocol`."""
        if self.protocol == "TLSv1.2":
            return tuple(each for each in self.enabled_protocols if each == "TLSv1.2")
        return self.enabled_protocols


def names_tls(setting: str) -> bool:
    """Whether listeners open TLS by a setting: their stores of keys, and what may be spoken."""
    return setting.startswith("ssl.") or (setting.startswith(PREFIX) and ".ssl." in setting)


def tls_of(settings: ListenerConfig, protocol: str) -> TlsConfig:
    """The fields of a listener that speaks `protocol`, `SSL` or `SASL_SSL`.

    Where SASL names the client, a certificate is asked for only if the listener itself says so.
    """
    own = settings.own("ssl.client.auth")
    client_auth = own if protocol == "SASL_SSL" else settings["ssl.client.auth"]
    return TlsConfig(
        StoreConfig(
            settings.text("ssl.keystore.type") or "",
            settings.text("ssl.keystore.location"),
            settings.text("ssl.keystore.password"),
            settings.text("ssl.keystore.certificate.chain"),
            settings.text("ssl.keystore.key"),
            settings.text("ssl.key.password"),
        ),
        StoreConfig(
            settings.text("ssl.truststore.type") or "",
            settings.text("ssl.truststore.location"),
            settings.text("ssl.truststore.password"),
            settings.text("ssl.truststore.certificates"),
        ),
        str(client_auth or "none"),
        settings.names("ssl.enabled.protocols"),
        settings.text("ssl.protocol") or "",
        settings.names("ssl.cipher.suites"),
        bool(settings["ssl.endpoint.identification.algorithm"]),
        settings.text("ssl.principal.mapping.rules") or "",
        settings.flag("ssl.allow.dn.changes"),
        settings.flag("ssl.allow.san.changes"),
    )
