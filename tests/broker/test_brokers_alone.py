"""Brokers that are no controllers, beside controllers of their own, as processes on real sockets: they find the quorum,
serve clients, and go on when one of them or the active controller is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from peers.cluster import CLUSTER_ID, HeadraceCluster
from peers.kafka import free_port
from peers.waiting import until

TOPIC = "kept"
PATIENCE_S = 60.0


class Clients:
    """A producer that counts, and what a reader finds of it."""

    def __init__(self, cluster: HeadraceCluster, replicas: int) -> None:
        self.bootstrap = cluster.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.create(TOPIC, 3, replicas)
        self.producer = Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
        )
        self.sent = 0
        self.acknowledged: list[int] = []
        self.failed: list[str] = []

    def create(self, name: str, partitions: int, replicas: int) -> None:
        """Creates a topic."""
        self.admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(PATIENCE_S)

    def produce(self, count: int) -> None:
        """Sends so many records, and waits until each is acknowledged."""
        for number in range(self.sent, self.sent + count):

            def delivered(error: object, _message: object, number: int = number) -> None:
                self.failed.append(str(error)) if error is not None else self.acknowledged.append(number)

            self.producer.produce(TOPIC, str(number), str(number), partition=number % 3, on_delivery=delivered)
        self.sent += count
        assert self.producer.flush(PATIENCE_S) == 0, "all are acknowledged"
        assert self.failed == []

    def check(self) -> None:
        """Every record that was acknowledged is there, once and in its order."""
        settings = {"group.id": "check", "enable.auto.commit": False, "log_level": 0}
        reader = Consumer({"bootstrap.servers": self.bootstrap, **settings})
        found: list[int] = []
        reader.assign([TopicPartition(TOPIC, partition, 0) for partition in range(3)])
        last = time.monotonic() + PATIENCE_S
        while len(found) < self.sent and time.monotonic() < last:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                found.append(int(message.value() or b""))
        reader.close()
        for partition in range(3):
            of_one = [number for number in found if number % 3 == partition]
            assert of_one == list(range(partition, self.sent, 3))


@pytest.mark.slow
def test_two_brokers_beside_one_controller_that_they_know_by_its_address(tmp_path: Path) -> None:
    settings = {
        "min.insync.replicas": "1",
        "default.replication.factor": "2",
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "1",
    }
    with HeadraceCluster(tmp_path, settings, size=2, controllers=1) as cluster:
        clients = Clients(cluster, 2)
        clients.produce(100)
        quorum = cluster.quorum()
        assert [voter.replica_id for voter in quorum.current_voters] == [101] and quorum.leader_id == 101
        assert sorted(each.replica_id for each in quorum.observers) == [1, 2]
        now_ms = time.time() * 1000
        for each in quorum.observers:
            assert each.replica_directory_id != bytes(16)
            assert 0 < each.log_end_offset <= quorum.current_voters[0].log_end_offset
            assert abs(now_ms - each.last_fetch_timestamp) < PATIENCE_S * 1000
            assert abs(now_ms - each.last_caught_up_timestamp) < PATIENCE_S * 1000
        cluster.controllers[101].stop()
        clients.produce(100)
        cluster.controllers[101].launch()
        clients.check()
        clients.create("more", 1, 2)
        cluster.nodes[1].stop()
        for number in range(20):
            clients.create(f"more-{number}", 1, 1)
        cluster.nodes[1].start()
        assert "metadata snapshot loaded" in cluster.nodes[1].log.read_text(), "it was away for longer than the log"
        clients.produce(100)
        clients.check()


@pytest.mark.slow
def test_three_brokers_beside_three_controllers_of_which_any_may_be_killed(tmp_path: Path) -> None:
    with HeadraceCluster(tmp_path, {"offsets.topic.num.partitions": "3"}, controllers=3) as cluster:
        clients = Clients(cluster, 3)
        clients.produce(300)
        for broker in cluster.nodes.values():
            broker.kill()
            clients.produce(100)
            broker.start()
            until(lambda: len(cluster.quorum().observers) == 3, "the observers are known")
        for _ in range(2):
            active = cluster.quorum().leader_id
            cluster.controllers[active].kill()
            clients.produce(100)
            until(lambda active=active: cluster.quorum().leader_id not in (-1, active), "another one decides")  # type: ignore[misc]
            clients.create(f"after-{active}", 1, 3)
            cluster.controllers[active].launch()
            until(lambda: all(voter.log_end_offset > 0 for voter in cluster.quorum().current_voters), "it follows")
        clients.check()


def serve(folder: Path, **settings: str) -> subprocess.Popen[str]:
    file = folder / "server.properties"
    properties = {
        "process.roles": "broker",
        "node.id": "5",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{free_port()}",
        "log.dirs": str(folder / "data"),
    }
    properties |= {name.replace("_", "."): value for name, value in settings.items()}
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [sys.executable, "-m", "headrace.cli"]
    formatting = [*command, "storage", "format", "-t", CLUSTER_ID, "-c", str(file)]
    subprocess.run(formatting, check=True, timeout=60, capture_output=True)
    return subprocess.Popen([*command, "serve", str(file)], stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_broker_that_finds_no_controller_says_so_and_ends(tmp_path: Path) -> None:
    broker = serve(tmp_path, initial_broker_registration_timeout_ms="3000")
    _, said = broker.communicate(timeout=PATIENCE_S)
    assert broker.returncode == 1
    assert said.count("broker waits to be registered") == 1
    last = said.splitlines()[-1]
    assert last == "headrace: no controller registered this broker within 3 s: no active controller is known"
    assert not list((tmp_path / "data").glob("__cluster_metadata-0/*.checkpoint")), "it is in no voter set"
