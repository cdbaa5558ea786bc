"""Three nodes that speak TLS to clients, to one another and to controllers, each with a certificate of its own."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from peers.certificates import Authority, write_trust_pem
from peers.kafka import free_port
from peers.waiting import until

import headrace.testing
from headrace.testing import TestCluster

NODES = (1, 2, 3)
PATIENCE_S = 60.0


@dataclass
class Secured:
    """The cluster, and what clients need."""

    cluster: TestCluster
    ports: dict[int, int]
    trust: Path
    authority: Authority
    folder: Path

    @property
    def librdkafka(self) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": ",".join(f"localhost:{port}" for port in self.ports.values()),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trust),
            "log_level": 0,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority.new()
    trust = write_trust_pem(folder / "ca.pem", [authority])
    controllers = {node: free_port() for node in NODES}
    ports = {node: free_port() for node in NODES}
    shared = {
        "controller.quorum.voters": ",".join(f"{node}@localhost:{port}" for node, port in controllers.items()),
        "listener.security.protocol.map": "OUTSIDE:SSL,INSIDE:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "INSIDE",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "ssl.keystore.type": "PEM",
        "listener.name.inside.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        "offsets.topic.num.partitions": "3",
    }
    nodes = {
        node: {
            **shared,
            "ssl.keystore.location": str(authority.server(f"node-{node}").write_pem(folder / f"{node}.pem")),
            "listeners": f"OUTSIDE://127.0.0.1:{ports[node]},INSIDE://127.0.0.1:0,"
            f"CONTROLLER://127.0.0.1:{controllers[node]}",
            "advertised.listeners": f"OUTSIDE://localhost:{ports[node]},INSIDE://localhost:0",
        }
        for node in NODES
    }
    with headrace.testing.cluster(nodes=nodes) as running:
        yield Secured(running, ports, trust, authority, folder)


def made(secured: Secured, name: str) -> str:
    topic = NewTopic(name, 3, 3, config={"min.insync.replicas": "2"})
    client = AdminClient(secured.librdkafka)
    client.create_topics([topic])[name].result(PATIENCE_S)
    return name


def numbers_of(secured: Secured, topic: str, count: int) -> list[int]:
    settings = {**secured.librdkafka, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[int] = []
    last = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < last:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b"-1"))
    consumer.close()
    return found


class Writer:
    """Produces numbers one after the other with acks=all, until it is told to stop."""

    def __init__(self, secured: Secured, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer({**secured.librdkafka, "enable.idempotence": True, "linger.ms": 1})
        self._topic = topic
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0

    def _note(self, number: int) -> Callable[[KafkaError | None, object], None]:
        def note(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append(error.str())

        return note

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._note(number))
            self._producer.poll(0.002)
            number += 1

    def wait_for(self, count: int) -> None:
        last = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < count:
            assert time.monotonic() < last, self.failed
            time.sleep(0.01)


@pytest.mark.slow
def test_all_goes_over_tls_and_a_leader_that_dies_loses_nothing(secured: Secured) -> None:
    topic = made(secured, "killed")
    with Writer(secured, topic) as writer:
        writer.wait_for(200)
        victim = secured.cluster.leader(topic, 0)
        secured.cluster.kill(victim)
        writer.wait_for(len(writer.acknowledged) + 200)
        secured.cluster.restart(victim)
        writer.wait_for(len(writer.acknowledged) + 200)
    assert writer.failed == []
    found = numbers_of(secured, topic, len(writer.acknowledged))
    assert sorted(found) == sorted(writer.acknowledged)


@pytest.mark.slow
def test_certificates_are_exchanged_one_node_after_the_other_and_nothing_is_lost(secured: Secured) -> None:
    """New ones for every listener of every node, then a node that starts again and finds the new ones of the others."""
    topic = made(secured, "rolled")
    admin = AdminClient(secured.librdkafka)
    with Writer(secured, topic) as writer:
        for node in NODES:
            writer.wait_for(len(writer.acknowledged) + 50)
            renewed = secured.authority.server(f"node-{node}").write_pem(secured.folder / f"renewed-{node}.pem")
            entries = [
                ConfigEntry(
                    f"listener.name.{listener}.ssl.keystore.location",
                    str(renewed),
                    incremental_operation=AlterConfigOpType.SET,
                )
                for listener in ("outside", "inside", "controller")
            ]
            resource = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=entries)
            admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        writer.wait_for(len(writer.acknowledged) + 50)
        secured.cluster.kill(1)
        secured.cluster.restart(1)
        writer.wait_for(len(writer.acknowledged) + 200)
    assert writer.failed == []
    found = numbers_of(secured, topic, len(writer.acknowledged))
    assert sorted(found) == sorted(writer.acknowledged)
    renewed_ones = [ssl.PEM_cert_to_DER_cert(certificate_in(secured.folder / f"renewed-{node}.pem")) for node in NODES]
    until(lambda: [shown_by(secured, node) for node in NODES] == renewed_ones, "each shows its new one")


def shown_by(secured: Secured, node: int) -> bytes | None:
    """The certificate that a node shows to clients."""
    with (
        socket.create_connection(("127.0.0.1", secured.ports[node])) as plain,
        ssl.create_default_context(cafile=secured.trust).wrap_socket(plain, server_hostname="localhost") as link,
    ):
        return link.getpeercert(binary_form=True)


def certificate_in(path: Path) -> str:
    """The first certificate of a PEM file."""
    text = path.read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return text[text.index(begin) : text.index(end) + len(end)]


def test_nodes_know_one_another_by_their_certificates(secured: Secured) -> None:
    """Each of them, by those that come to it: nodes that have just started come a moment later."""
    made(secured, "names")
    known = {("INSIDE", f"User:CN=node-{node}") for node in NODES}
    until(lambda: known <= principals_at_nodes(secured), "the nodes follow one another")
    assert all(principal != "User:ANONYMOUS" for _, principal in principals_at_nodes(secured))


def principals_at_nodes(secured: Secured) -> set[tuple[str, str]]:
    """Who has a connection to a node that is not for clients, with the listener's name."""
    principals = set()
    for node in secured.cluster.nodes.values():
        principals |= node.call(
            lambda broker: {
                (each.listener.name, each.client.principal)
                for each in broker.server.connections
                if each.listener.name != "OUTSIDE" and getattr(each.stream, "is_open", True)
            }
        )
    return principals
