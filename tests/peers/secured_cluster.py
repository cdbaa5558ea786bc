"""A cluster that nobody enters without a password, of our nodes or with some of Apache Kafka's among them: controllers
know one another by certificates, brokers log in to brokers over TLS by SCRAM, clients by SCRAM or with tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.security.jaas import SCRAM_MODULE

from .certificates import Authority, write_trust_pem
from .cluster import HeadraceCluster
from .headrace import HeadracePeer
from .kafka import free_port, kafka_tool

NODES: Final = (1, 2, 3)
MECHANISM: Final = "SCRAM-SHA-512"
MECHANISMS: Final = ("SCRAM-SHA-256", MECHANISM)
BETWEEN: Final = "between-nodes"
"""The password of the nodes, whose user is `node`."""


class SecuredCluster(HeadraceCluster):
    """Each node has a certificate `CN=node-N`, a listener for operators on loopback (PLAINTEXT, a super user's), one
    for clients (OUTSIDE, SASL_SSL), one for bytes that a test makes (LOGINS, SASL_PLAINTEXT), one for brokers
    (INSIDE, SASL_SSL) and one for controllers (SSL, certificates).

    The user `node` is made with the directories; `more` goes into the file of each node.
    """

    def __init__(self, directory: Path, kafkas: Collection[int] = (), more: Mapping[str, str] | None = None) -> None:
        self.authority = Authority.new()
        directory.mkdir(parents=True, exist_ok=True)
        self.trust = write_trust_pem(directory / "ca.pem", [self.authority])
        self.outside = {node: free_port() for node in NODES}
        self.logins = {node: free_port() for node in NODES}
        self._more = dict(more or {})
        super().__init__(directory, size=len(NODES), kafkas=kafkas)

    def store(self, node: int) -> Path:
        """Where a node's key and certificate are."""
        return self.directory / f"{node}.pem"

    def _peer(self, node: int) -> HeadracePeer:
        client, controller = self.ports[node]
        inside = free_port()
        self.authority.server(f"node-{node}").write_pem(self.store(node))
        login = f"{SCRAM_MODULE} required"
        settings = {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},OUTSIDE://127.0.0.1:{self.outside[node]},"
            f"LOGINS://127.0.0.1:{self.logins[node]},INSIDE://127.0.0.1:{inside},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client},OUTSIDE://localhost:{self.outside[node]},"
            f"LOGINS://127.0.0.1:{self.logins[node]},INSIDE://localhost:{inside}",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL,INSIDE:SASL_SSL,"
            "LOGINS:SASL_PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.store(node)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.inside.{MECHANISM.lower()}.sasl.jaas.config": f'{login} username="node" '
            f'password="{BETWEEN}";',
            **{
                f"listener.name.{listener}.{each.lower()}.sasl.jaas.config": f"{login};"
                for listener in ("outside", "logins")
                for each in MECHANISMS
            },
            "listener.name.inside.sasl.enabled.mechanisms": MECHANISM,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:node;User:root;" + ";".join(f"User:CN=node-{each}" for each in NODES),
            "delegation.token.secret.key": "a secret of the cluster's",
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "6000",
            **self._more,
        }
        return self._node(node, client, settings)

    def format_options(self) -> list[str]:
        return ["--add-scram", f"{MECHANISM}=[name=node,password={BETWEEN}]"]

    def librdkafka(self, user: str, password: str) -> dict[str, str | int | float | bool]:
        """Settings of a client that logs in at OUTSIDE."""
        return {
            "bootstrap.servers": ",".join(f"localhost:{port}" for port in self.outside.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }

    def tool(self, name: str, *arguments: str) -> str:
        """One of Apache Kafka's, as an operator."""
        return kafka_tool(name, "--bootstrap-server", self.bootstrap, *arguments).stdout
