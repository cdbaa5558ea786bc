"""Three nodes with TLS and SCRAM between them change their certificates and then the authority that signs them, one
node after the other, under a load with acks=all: nothing that was acknowledged is lost, and nobody of the old authority
gets in any more."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from peers.certificates import Authority, write_trust_pem
from peers.secured_cluster import NODES, SecuredCluster
from peers.waiting import until

PATIENCE_S = 90.0
TOPIC, PARTITIONS = "rolled", 3
LISTENERS = ("outside", "inside", "controller")
KEY, TRUST = "ssl.keystore.location", "ssl.truststore.location"
Settings = dict[str, str | int | float | bool]


class Load:
    """Numbers to all partitions with acks=all, one after the other, until it is told to stop."""

    def __init__(self, settings: Settings) -> None:
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 1})
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0

    def _told(self, number: int) -> Callable[[KafkaError | None, object], None]:
        def told(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.failed.append(error.str())

        return told

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d" % number
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._told(number))
            self._producer.poll(0.002)
            number += 1

    def goes_on(self) -> None:
        """Returns when much more is acknowledged than was."""
        wanted, last = len(self.acknowledged) + 100, time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < last, self.failed
            time.sleep(0.01)


class Rolled(SecuredCluster):
    """The cluster, whose stores are exchanged as docs/security.md says: a new file, and its place set again."""

    def set(self, node: int, name: str, place: Path) -> None:
        """Of each of the node's listeners, and of the next start."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        entries = [
            ConfigEntry(f"listener.name.{each}.{name}", str(place), incremental_operation=AlterConfigOpType.SET)
            for each in LISTENERS
        ]
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        self.write(node, name, place)

    def shows(self, node: int, authority: Authority, client: Path | None = None) -> bool:
        """Whether a stranger who believes this authority alone opens a connection to the node's clients' listener."""
        believed = write_trust_pem(self.directory / "believed.pem", [authority])
        context = ssl.create_default_context(cafile=believed)
        try:
            with (
                socket.create_connection(("127.0.0.1", self.outside[node]), timeout=PATIENCE_S) as plain,
                context.wrap_socket(plain, server_hostname="localhost"),
            ):
                return True
        except ssl.SSLCertVerificationError:
            return False

    def is_let_in(self, node: int, authority: Authority) -> bool:
        """Whether the controllers' listener takes a certificate that this authority has signed."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(authority.client("node-1").write_pem(self.directory / "asks.pem"))
        try:
            with (
                socket.create_connection(("127.0.0.1", self.ports[node][1]), timeout=PATIENCE_S) as plain,
                context.wrap_socket(plain) as link,
            ):
                link.settimeout(2.0)  # in TLS 1.3 it is refused after the client's last message
                link.recv(1)
        except TimeoutError:
            return True
        except OSError:
            return False
        return False

    def until_in_sync(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        last = time.monotonic() + PATIENCE_S
        while True:
            found = admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
            if len(found) == PARTITIONS and all(len(each.isrs) == len(NODES) for each in found.values()):
                return
            assert time.monotonic() < last, {key: each.isrs for key, each in found.items()}
            time.sleep(0.1)

    def write(self, node: int, name: str, place: Path) -> None:
        """Into the node's file too: it starts with that, before it hears what was altered."""
        file = self.nodes[node].file
        assert file is not None
        lines = [f"{name}={place}" if each.startswith(f"{name}=") else each for each in file.read_text().splitlines()]
        file.write_text("".join(f"{each}\n" for each in lines))

    def restart(self, node: int, *, kill: bool) -> None:
        self.nodes[node].kill() if kill else self.nodes[node].stop()
        self.nodes[node].start()
        self.until_in_sync()


def numbers_in(settings: Settings) -> list[int]:
    """All that the topic holds."""
    consumer = Consumer({**settings, "group.id": "checks", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    found: list[int] = []
    ended: set[int] = set()
    last = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < last, f"{len(found)} were read"
        message = consumer.poll(1.0)
        error = None if message is None else message.error()
        if message is not None and error is None:
            found.append(int(message.value() or b"-1"))
        elif message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("same_file", [False, True], ids=["other files", "the same files, written anew"])
def test_certificates_and_their_authority_change_and_nothing_is_lost(tmp_path: Path, same_file: bool) -> None:
    old, new = Authority.new("old"), Authority.new("new")
    with Rolled(tmp_path) as cluster:
        old = cluster.authority
        both = write_trust_pem(tmp_path / "of-clients.pem", [old, new])
        settings = {**cluster.librdkafka("node", "between-nodes"), "ssl.ca.location": str(both)}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)

        def key_of(node: int, name: str) -> Path:
            return cluster.store(node) if same_file else tmp_path / f"{name}-{node}.pem"

        def trust_of(name: str) -> Path:
            return cluster.trust if same_file else tmp_path / f"{name}.pem"

        with Load(settings) as load:
            for node in NODES:  # another certificate of the old authority
                load.goes_on()
                cluster.set(node, KEY, old.server(f"node-{node}").write_pem(key_of(node, "renewed")))
            for node in NODES:  # both are believed, by whoever connects and by whoever is connected to
                load.goes_on()
                cluster.set(node, TRUST, write_trust_pem(trust_of("both"), [old, new]))
            until(lambda: all(cluster.is_let_in(node, each) for node in NODES for each in (old, new)), "both")
            for node in NODES:
                load.goes_on()
                cluster.set(node, KEY, new.server(f"node-{node}").write_pem(key_of(node, "new")))
                until(lambda: cluster.shows(node, new) and not cluster.shows(node, old), "the new one")  # noqa: B023
                cluster.restart(node, kill=node == 2)  # its connections are new, both ways
            for node in NODES:
                load.goes_on()
                cluster.set(node, TRUST, write_trust_pem(trust_of("new"), [new]))
            for node in NODES:
                until(lambda: cluster.is_let_in(node, new) and not cluster.is_let_in(node, old), "the new")  # noqa: B023
                load.goes_on()
                cluster.restart(node, kill=node == 3)
            load.goes_on()
        assert load.failed == []
        believed = write_trust_pem(tmp_path / "new-alone.pem", [new])
        found = numbers_in({**settings, "ssl.ca.location": str(believed)})
        assert len(found) == len(set(found))
        assert set(found) == load.acknowledged
