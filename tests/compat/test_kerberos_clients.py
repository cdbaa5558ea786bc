"""Clients as they come log in by Kerberos, and so do commands of ours and the nodes of a cluster, one to another."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka as kafka_python
import pytest
from cli.commanding import command, one_line
from peers import gssapi_package
from peers.certificates import Authority, write_trust_pem
from peers.kafka import free_port, java, quick
from peers.kerberos import Realm, realm

import headrace.testing
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.client.security import security_of
from headrace.testing import TestCluster
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

why = gssapi_package.missing()
pytestmark = [pytest.mark.soak, pytest.mark.skipif(bool(why), reason=why)]
PATIENCE_S = 60.0
NODES = (1, 2, 3)
REAUTH_MS = 3000


class Place:
    """A realm, a broker with and without TLS, and files of properties."""

    def __init__(self, folder: Path, realm: Realm) -> None:
        self.folder = folder
        self.realm = realm
        self.authority = Authority.new()
        self.trust = write_trust_pem(folder / "ca.pem", [self.authority])
        self.service = realm.keytab("kafka/localhost")
        self.ann = realm.keytab("ann")
        line = realm.jaas("kafka/localhost", self.service)
        self.settings = {
            "listeners": "PLAINLY://127.0.0.1:0,SECRETLY://127.0.0.1:0,INSIDE://127.0.0.1:0",
            "advertised.listeners": "PLAINLY://localhost:0,SECRETLY://localhost:0,INSIDE://localhost:0",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "PLAINLY:SASL_PLAINTEXT,SECRETLY:SASL_SSL,INSIDE:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.server().write_pem(folder / "server.pem")),
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.plainly.gssapi.sasl.jaas.config": line,
            "listener.name.secretly.gssapi.sasl.jaas.config": line,
            "connections.max.reauth.ms": str(REAUTH_MS),
        }
        self.broker: TestBroker

    def bootstrap(self, listener: str = "PLAINLY") -> str:
        port = self.broker.call(lambda inside: next(each.port for each in inside.listeners if each.name == listener))
        return f"localhost:{port}"

    def properties(self, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
        tls = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.trust)}
        return {**self.realm.client("ann", self.ann), **tls, "security.protocol": protocol}

    def file(self, properties: dict[str, str], name: str = "client.properties") -> str:
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    gssapi_package.use()
    folder = tmp_path_factory.mktemp("kerberos")
    with realm(folder / "realm") as made, pytest.MonkeyPatch.context() as patch:
        for name, text in made.environment.items():
            patch.setenv(name, text)
        patch.setenv("KRB5_CLIENT_KTNAME", str(made.keytab("python")))
        found = Place(folder, made)
        with running_broker(found.settings) as found.broker:
            yield found


def tool(place: Place, name: str, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    flags = (*quick(), f"-Djava.security.krb5.conf={place.realm.configuration}")
    return subprocess.run(
        java(name, *arguments, flags=flags), check=False, input=stdin, capture_output=True, text=True, timeout=120
    )


@pytest.mark.jvm
@pytest.mark.parametrize(("listener", "protocol"), [("PLAINLY", "SASL_PLAINTEXT"), ("SECRETLY", "SASL_SSL")])
def test_tools_of_java(place: Place, listener: str, protocol: str) -> None:
    config = place.file(place.properties(protocol), f"{listener}.properties")
    at, topic = place.bootstrap(listener), f"java-{listener.lower()}"
    tools = "org.apache.kafka.tools"
    made = tool(
        place,
        f"{tools}.TopicCommand",
        "--create",
        "--topic",
        topic,
        "--bootstrap-server",
        at,
        "--command-config",
        config,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    written = tool(
        place, f"{tools}.ConsoleProducer", "--topic", topic, "--bootstrap-server", at, "--command-config", config,
        stdin="one\ntwo\n",
    )  # fmt: skip
    assert written.returncode == 0, written.stdout + written.stderr
    read = tool(
        place, f"{tools}.consumer.ConsoleConsumer", "--topic", topic, "--bootstrap-server", at, "--from-beginning",
        "--max-messages", "2", "--timeout-ms", "60000", "--command-config", config,
    )  # fmt: skip
    assert read.stdout.split() == ["one", "two"], read.stderr


@pytest.mark.jvm
def test_a_tool_of_java_with_another_key(place: Place) -> None:
    """Its ticket is for a service of this realm whose key the broker does not have."""
    place.realm.keytab("other/localhost")
    config = place.file({**place.properties(), "sasl.kerberos.service.name": "other"}, "other.properties")
    done = tool(
        place, "org.apache.kafka.tools.TopicCommand", "--list", "--bootstrap-server", place.bootstrap(),
        "--command-config", config,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI" in (
        done.stdout + done.stderr
    )


def test_kafka_python(place: Place) -> None:
    settings = {
        "bootstrap_servers": place.bootstrap(),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "localhost",
    }
    producer = kafka_python.KafkaProducer(**settings)
    producer.send("kafka-python", b"value").get(PATIENCE_S)
    producer.close()
    consumer = kafka_python.KafkaConsumer("kafka-python", auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"value"
    consumer.close()


def test_aiokafka(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiokafka.conn
    import gssapi

    monkeypatch.setattr(aiokafka.conn, "gssapi", gssapi)  # it looks once, and the package is not always there
    settings: dict[str, Any] = {
        "bootstrap_servers": place.bootstrap(),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "localhost",
    }

    async def run() -> bytes:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("aiokafka", b"value")
        async with aiokafka.AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **settings) as consumer:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            return bytes(message.value)

    assert asyncio.run(run()) == b"value"


# --- ours


def test_commands(place: Place) -> None:
    config = place.file(place.properties("SASL_SSL"), "ours.properties")
    where = ("-b", place.bootstrap("SECRETLY"), "--command-config", config)
    command("topic", "create", "by-command", *where, code=0, stdin=None)
    command("produce", "by-command", *where, code=0, stdin="a\nb\n")
    assert sorted(command("consume", "by-command", *where, code=0, stdin=None).stdout.split()) == ["a", "b"]


def test_a_cache_of_tickets_that_kinit_fills(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")  # the library would fill the cache by itself
    cache = f"FILE:{tmp_path}/tickets"
    line = f'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true ticketCache="{cache}";'
    config = place.file({**place.properties(), "sasl.jaas.config": line}, "cache.properties")
    where = ("-b", place.bootstrap(), "--command-config", config)
    before = one_line(command("topic", "list", *where, code=1, stdin=None))
    assert "no login at localhost" in before
    kinit = ["kinit", "-k", "-t", str(place.ann), "-c", cache, f"ann@{place.realm.name}"]
    subprocess.run(kinit, check=True, capture_output=True, env=dict(os.environ), timeout=PATIENCE_S)
    command("topic", "list", *where, code=0, stdin=None)


def test_three_nodes(place: Place) -> None:
    """Their sessions end every few seconds, and once the KDC is away they go on with the tickets that they have."""
    controllers = {node: free_port() for node in NODES}
    line = place.realm.jaas("kafka/localhost", place.service)
    shared = {
        "controller.quorum.voters": ",".join(f"{node}@localhost:{port}" for node, port in controllers.items()),
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.inside.gssapi.sasl.jaas.config": line,
        "listener.name.controller.gssapi.sasl.jaas.config": line,
        "connections.max.reauth.ms": str(REAUTH_MS),
        "advertised.listeners": "INSIDE://localhost:0",
    }
    nodes = {
        node: {**shared, "listeners": f"INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:{controllers[node]}"}
        for node in NODES
    }
    with headrace.testing.cluster(nodes=nodes) as three:
        security = security_of(place.properties())
        with Client(bootstrap(three), timeout_s=PATIENCE_S, security=security) as client:
            write(client, "kept", 3 * REAUTH_MS / 1000, replicas=3)
            place.realm.stop()
            try:
                write(client, "kept", 2 * REAUTH_MS / 1000)
            finally:
                place.realm.start()
        names = three.nodes[1].call(lambda broker: {each.client.principal for each in broker.server.connections})
        assert names <= {"User:kafka", "User:ann"} and "User:kafka" in names
        for node in three.nodes.values():
            topics = node.call(lambda broker: [each for each in broker.image.topics if each.name == "kept"])
            assert all(len(partition.isr) == 3 for topic in topics for partition in topic.partitions)


def bootstrap(cluster: TestCluster) -> str:
    return ",".join(
        f"localhost:{node.call(lambda broker: next(each.port for each in broker.listeners if each.name == 'INSIDE'))}"
        for node in cluster.nodes.values()
    )


def write(client: Client, topic: str, for_s: float, replicas: int = 0) -> None:
    if replicas:
        create_topic(client, topic, partitions=3, replication_factor=replicas)
    until, sent = time.monotonic() + for_s, 0
    with Producer(client) as producer:
        while time.monotonic() < until:
            producer.send(topic, b"x" * 100)
            producer.flush()
            sent += 1
        assert producer.records_delivered == sent > 20
