"""A broker that asks who its clients are, and the files of client properties that answer it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

from .certificates import Authority, write_trust_pem

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
ROOT_PASSWORD = "the-password-of-root"


class Secured:
    """Listeners: SASL_SSL for clients, and TLS alone, whose clients are nobody (ANONYMOUS)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.new()
        self.trust = write_trust_pem(folder / "ca.pem", [self.authority])
        self.broker: TestBroker
        server = self.authority.server().write_pem(folder / "server.pem")
        self.settings = {
            "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
            "advertised.listeners": "SASL_SSL://localhost:0,SSL://localhost:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} required user_root="{ROOT_PASSWORD}";',
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:root",
        }

    def bootstrap(self, listener: str = "SASL_SSL") -> str:
        """Where a listener is."""
        port = self.broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == listener))
        return f"localhost:{port}"

    def properties(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Of a user."""
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{name}" password="{password}";',
        }

    def root(self) -> dict[str, str]:
        """Of the super user."""
        return self.properties("root", ROOT_PASSWORD, "PLAIN")

    def file(self, properties: dict[str, str], name: str = "client.properties") -> str:
        """A file of them."""
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return str(path)


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """A running one."""
    made = Secured(folder)
    with running_broker(made.settings) as made.broker:
        yield made
