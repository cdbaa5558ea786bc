"""One broker becomes three while clients write to it: real processes, the command line, and no copy of its data."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.headrace import HeadracePeer
from peers.kafka import free_port

from headrace.env.posix import PosixDisk
from headrace.metadata.meta_properties import decode_meta_properties


class Growing:
    """Node 1 runs with a file such as Apache Kafka's distribution has, nodes 2 and 3 do not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {node: (free_port(), free_port()) for node in (1, 2, 3)}
        self.nodes = {node: self.peer(node) for node in self.ports}

    @property
    def bootstrap(self) -> str:
        return self.nodes[1].bootstrap

    def peer(self, node: int) -> HeadracePeer:
        client, controller = self.ports[node]
        home = self.folder / str(node)
        home.mkdir(exist_ok=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.bootstrap.servers": f"localhost:{self.ports[1][1]}",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(home / "data"),
            "offsets.topic.num.partitions": "3",
            "metrics.listener": "-1",
        }
        file = home / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return HeadracePeer(home, properties=file, port=client)

    def begin_by_itself(self) -> None:
        """Node 1 as it began: no other node could reach it."""
        client, _ = self.ports[1]
        home = self.folder / "1"
        self.nodes[1] = HeadracePeer(
            home, port=client, settings={"offsets.topic.num.partitions": "3", "metrics.listener": "-1"}
        )
        self.nodes[1].start()

    def file(self, node: int) -> str:
        return str(self.nodes[node].file)

    def run(self, *arguments: str, status: int = 0) -> str:
        """One command as an operator types it: what it prints."""
        command = [sys.executable, "-m", "headrace.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def ask(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json", "-b", self.bootstrap))

    def voters(self) -> list[int]:
        return [each["id"] for each in self.ask("quorum", "describe")["replicas"] if each["voter"]]

    def cluster_id(self) -> str:
        file = f"{self.nodes[1].directory}/data/meta.properties"
        return decode_meta_properties(PosixDisk().read_file(file)).cluster_id

    def join(self, node: int) -> None:
        """A new machine, from its file to its vote."""
        self.run("storage", "format", "-t", self.cluster_id(), "-c", self.file(node), "--no-initial-controllers")
        self.nodes[node].start()
        assert self.run("quorum", "add", "-c", self.file(node), "-b", self.bootstrap) == f"added voter {node}\n"


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    growing = Growing(tmp_path)
    try:
        yield growing
    finally:
        for node in growing.nodes.values():
            node.kill()


class Writer:
    """Writes numbers with acks=all, and reports which of them were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "topic.metadata.refresh.interval.ms": 500,  # five minutes by default: it knew one broker until then
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce("t", str(number).encode(), partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.005)
        self._producer.flush(60)

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            value = message.value()
            assert value is not None
            self.acknowledged.append(int(value))

    def end(self) -> list[int]:
        self._stop.set()
        self._thread.join()
        return self.acknowledged


def read(bootstrap: str, group: str, topic: str, count: int) -> list[int]:
    """At least so many numbers of the only partition of a topic, as a new group reads them."""
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    found: list[int] = []
    last = time.monotonic() + 60
    while len(found) < count and time.monotonic() < last:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(int(value))
    consumer.close()
    return found


@pytest.mark.slow
def test_one_broker_becomes_three_under_load_and_outlives_its_first_node(growing: Growing) -> None:
    growing.begin_by_itself()
    admin = AdminClient({"bootstrap.servers": growing.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    assert growing.nodes[1].stop() == 0
    growing.nodes[1] = growing.peer(1)
    growing.nodes[1].start()
    assert growing.voters() == [1]
    writer = Writer(growing.bootstrap)
    growing.join(2)
    growing.join(3)
    assert growing.voters() == [1, 2, 3]
    assert read(growing.bootstrap, "before", "t", 1)[0] == 0  # a group, and with it an internal topic
    growing.run(
        "partition", "reassign", "t", "__consumer_offsets", "-r", "3", "--brokers", "1,2,3", "--execute",
        "-b", growing.bootstrap,
    )  # fmt: skip
    for topic in ("t", "__consumer_offsets"):
        growing.run("config", "alter", "topic", topic, "--set", "min.insync.replicas=2", "-b", growing.bootstrap)
    growing.run("cluster", "health", "-b", growing.bootstrap)
    everywhere = ",".join(peer.bootstrap for peer in growing.nodes.values())
    growing.nodes[1].kill()
    reached = len(writer.acknowledged)
    last = time.monotonic() + 60
    while len(writer.acknowledged) < reached + 100:
        assert time.monotonic() < last, "nothing is acknowledged any more"
        time.sleep(0.05)
    growing.nodes[1].start()
    acknowledged = writer.end()
    assert not writer.errors
    assert acknowledged == sorted(set(acknowledged))
    assert len(acknowledged) == acknowledged[-1] + 1
    assert read(everywhere, "after", "t", len(acknowledged)) == acknowledged


@pytest.mark.slow
def test_each_leader_is_removed_through_another_broker_and_votes_again(growing: Growing) -> None:
    """Its last act as the leader is to answer: who asked again would hear that there is no such voter."""
    growing.nodes[1].start()
    growing.join(2)
    growing.join(3)
    removed: set[int] = set()
    for _ in range(9):
        leader = int(growing.ask("quorum", "describe")["leader"])
        another = next(peer for node, peer in growing.nodes.items() if node != leader)
        growing.run("quorum", "remove", str(leader), "--yes", "-b", another.bootstrap)
        assert leader not in growing.voters()
        growing.run("quorum", "add", "-c", growing.file(leader), "-b", another.bootstrap)
        removed.add(leader)
        if removed == {1, 2, 3}:
            break
    assert len(removed) > 1 and growing.voters() == [1, 2, 3]


def test_a_node_that_is_to_find_others_is_formatted_first(growing: Growing) -> None:
    """An empty disk never becomes a cluster of its own."""
    said = growing.run("serve", growing.file(2), status=1)
    assert "is not formatted" in said and "--no-initial-controllers" in said
    assert not (growing.folder / "2" / "data" / "meta.properties").exists()
    growing.run("storage", "format", "-t", "another-cluster", "-c", growing.file(2), "--no-initial-controllers")
    growing.nodes[1].start()
    growing.nodes[2].launch()
    refused = "voter belongs to another cluster"
    last = time.monotonic() + 60
    while refused not in growing.nodes[2].log.read_text():
        assert time.monotonic() < last, growing.nodes[2].log.read_text()
        time.sleep(0.1)
