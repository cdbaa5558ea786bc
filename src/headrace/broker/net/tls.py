"""TLS of a listener: its stores, the context that its connections are opened with, and who a certificate names.

The stores are read when the listener is bound, and again when they change (see `reload`); connections that are open go
on with what they were opened with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.config import ConfigError
from headrace.env.posix_tls import TlsMaterial, TlsMaterialError, TlsRules, server_context, suites_allow
from headrace.env.tls import TlsFailure, TlsStream

if TYPE_CHECKING:
    import ssl

    from headrace.config.tls import TlsConfig
    from headrace.env.disk import Disk

ANONYMOUS: Final = "User:ANONYMOUS"


class ListenerTls:
    """See the module. Raises ConfigError, one line, where the stores cannot be used."""

    def __init__(self, listener: str, protocol: str, config: TlsConfig, disk: Disk) -> None:
        """Of the listener of that name, which speaks `protocol`: `SSL` or `SASL_SSL`."""
        self._listener = listener
        self._names_clients = protocol == "SSL"
        self._config = config
        self._rules = TlsRules(config.versions, config.cipher_suites)
        self.context: ssl.SSLContext = self._made(disk)

    def opened(self, stream: TlsStream) -> str | None:
        """A handshake has succeeded: the principal that TLS itself gives the client, None where SASL will name it.
        Raises TlsFailure where the connection may not go on."""
        if not suites_allow(self._rules, stream.cipher):
            raise TlsFailure(f"the TLS handshake failed: {stream.cipher} is not among ssl.cipher.suites")
        if not self._names_clients:
            return None
        certificate = stream.peer_certificate
        return ANONYMOUS if certificate is None else _principal(certificate)

    def _made(self, disk: Disk) -> ssl.SSLContext:
        from headrace.security.stores.opening import open_key_store, open_trust_store

        where = self._setting("ssl.keystore.location")
        key = open_key_store(self._config.key_store, disk.read_file, where)
        trusted = open_trust_store(self._config.trust_store, disk.read_file, self._setting("ssl.truststore.location"))
        assert key is not None, "the settings of a listener of TLS name a key store"
        material = TlsMaterial(key.private_key_pem, key.chain, None if trusted is None else trusted.certificates)
        try:
            return server_context(material, self._rules, self._config.client_auth)
        except TlsMaterialError as error:
            raise ConfigError(where, self._config.key_store.location, str(error)) from None

    def _setting(self, name: str) -> str:
        return f"listener.name.{self._listener.lower()}.{name}"


def _principal(certificate: bytes) -> str:
    from headrace.security.der import DerError
    from headrace.security.names import subject

    try:
        return f"User:{subject(certificate)}"
    except DerError as error:
        raise TlsFailure(f"the client's certificate cannot be read: {error}") from None
