"""Apache Kafka's nodes and ours in one cluster that nobody enters without a password: controllers know one another by
certificates, brokers log in to brokers over TLS, clients log in by SCRAM and may do what ACLs allow, wherever the
partition or the controller is."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from peers.certificates import Authority, write_trust_pem
from peers.cluster import HeadraceCluster
from peers.headrace import HeadracePeer
from peers.kafka import free_port, kafka_tool

from headrace.config.security_table import STANDARD_AUTHORIZER

PATIENCE_S = 90.0
PARTITIONS = 6
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
CONFIGS, ACLS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.AclCommand"


class SecuredCluster(HeadraceCluster):
    """Each node has a certificate `CN=node-N`, a listener for operators on loopback (PLAINTEXT, a super user's), one
    for clients (SASL_SSL, SCRAM), one for brokers (SASL_SSL, PLAIN) and one for controllers (SSL, certificates)."""

    def __init__(self, directory: Path, kafkas: Collection[int]) -> None:
        self.authority = Authority.new()
        directory.mkdir(parents=True, exist_ok=True)
        self.trust = write_trust_pem(directory / "ca.pem", [self.authority])
        self.outside = {node: free_port() for node in (1, 2, 3)}
        super().__init__(directory, size=3, kafkas=kafkas)

    def _peer(self, node: int) -> HeadracePeer:
        client, controller = self.ports[node]
        inside = free_port()
        key = self.authority.server(f"node-{node}").write_pem(self.directory / f"{node}.pem")
        settings = {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},OUTSIDE://127.0.0.1:{self.outside[node]},"
            f"INSIDE://127.0.0.1:{inside},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client},OUTSIDE://localhost:{self.outside[node]},"
            f"INSIDE://localhost:{inside}",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL,INSIDE:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} required username="node" password="between" '
            'user_node="between";',
            "listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.outside.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram."
            "ScramLoginModule required;",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:node;" + ";".join(f"User:CN=node-{each}" for each in (1, 2, 3)),
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "6000",
        }
        return self._node(node, client, settings)

    def librdkafka(self, password: str = "secret") -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": ",".join(f"localhost:{port}" for port in self.outside.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": password,
            "log_level": 0,
        }

    def tool(self, name: str, *arguments: str) -> str:
        """One of Apache Kafka's, as an operator."""
        return kafka_tool(name, "--bootstrap-server", self.bootstrap, *arguments).stdout


def produced(cluster: SecuredCluster, topic: str, first: int, count: int) -> list[KafkaError]:
    """Numbers to all partitions, one after the other; what was refused."""
    failed: list[KafkaError] = []
    producer = Producer({**cluster.librdkafka(), "message.timeout.ms": int(PATIENCE_S * 1000)})
    for number in range(first, first + count):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    return failed


def consumed(cluster: SecuredCluster, topic: str, count: int) -> set[int]:
    consumer = Consumer({**cluster.librdkafka(), "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: set[int] = set()
    last = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < last:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            found.add(int(message.value() or b"-1"))
    consumer.close()
    return found


def until_refused(cluster: SecuredCluster, topic: str) -> list[KafkaError]:
    """What a producer hears on every partition once rights were taken away: each broker hears of that by itself."""
    last = time.monotonic() + PATIENCE_S
    while True:
        failed = produced(cluster, topic, 0, PARTITIONS)
        if len(failed) == PARTITIONS:
            return failed
        assert time.monotonic() < last, failed


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kafkas", [(2, 3), pytest.param((3,), marks=pytest.mark.soak)], ids=["one of ours", "two of ours"]
)
def test_one_cluster_behind_passwords(tmp_path: Path, kafkas: tuple[int, ...]) -> None:
    with SecuredCluster(tmp_path, kafkas) as cluster:
        cluster.tool(
            CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "ann", "--add-config",
            "SCRAM-SHA-512=[password=secret]",
        )  # fmt: skip
        operator = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for name in ("rights", "hidden"):
            operator.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(PATIENCE_S)
        assert {error.code() for error in until_refused(cluster, "rights")} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
        for role in (("--producer",), ("--consumer", "--group", "readers")):
            cluster.tool(ACLS, "--add", "--allow-principal", "User:ann", *role, "--topic", "rights")
        last = time.monotonic() + PATIENCE_S
        while failed := produced(cluster, "rights", 0, PARTITIONS):
            assert time.monotonic() < last, failed
        assert produced(cluster, "rights", 0, 600) == []
        assert consumed(cluster, "rights", 600) == set(range(600))
        seen = AdminClient(cluster.librdkafka()).list_topics(timeout=PATIENCE_S).topics
        assert set(seen) == {"rights"}

        # The active controller goes: another one, of either kind, knows users and rights as it did.
        leader = cluster.quorum().leader_id
        cluster.nodes[leader].kill()
        assert produced(cluster, "rights", 600, 300) == []
        cluster.nodes[leader].start()
        assert consumed_again(cluster, 900) == set(range(900))

        cluster.tool(ACLS, "--remove", "--force", "--allow-principal", "User:ann", "--producer", "--topic", "rights")
        assert {error.code() for error in until_refused(cluster, "rights")} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
        with pytest.raises(KafkaException):
            AdminClient(cluster.librdkafka("wrong")).list_topics(timeout=10)


def consumed_again(cluster: SecuredCluster, count: int) -> set[int]:
    """All of the topic, by one who reads without a group's offsets."""
    settings = {**cluster.librdkafka(), "group.id": "readers", "enable.auto.commit": "false"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("rights", each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found: set[int] = set()
    last = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < last:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.add(int(message.value() or b"-1"))
    consumer.close()
    return found
