"""Three nodes that log in to one another and to the controllers, over TLS, and whose sessions end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.certificates import Authority, write_trust_pem
from peers.kafka import free_port

import headrace.testing
from headrace.client.cluster import Client
from headrace.client.login import NotLoggedInError
from headrace.client.producer import Producer
from headrace.client.security import security_of
from headrace.config import ConfigError
from headrace.testing import TestCluster
from headrace.testing.running import broker as running_broker

NODES = (1, 2, 3)
PATIENCE_S = 60.0
REAUTH_MS = 3000
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(kind: str, node: int) -> str:
    """What a node logs in as, and whom it lets in; each password is the name backwards."""
    names = {each: f"{kind}-{each}" for each in NODES}
    said = "".join(f' user_{name}="{name[::-1]}"' for name in names.values())
    return f'{PLAIN} required username="{names[node]}" password="{names[node][::-1]}"{said};'


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Path]:
    authority = Authority.new()
    return authority, write_trust_pem(tmp_path_factory.mktemp("trust") / "ca.pem", [authority])


@pytest.fixture(scope="module")
def three(trust: tuple[Authority, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    authority, ca = trust
    folder = tmp_path_factory.mktemp("sasl")
    controllers = {node: free_port() for node in NODES}
    shared = {
        "controller.quorum.voters": ",".join(f"{node}@localhost:{port}" for node, port in controllers.items()),
        "listener.security.protocol.map": "OUTSIDE:SASL_SSL,INSIDE:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "ssl.keystore.type": "PEM",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "connections.max.reauth.ms": str(REAUTH_MS),
        "listener.name.outside.plain.sasl.jaas.config": f'{PLAIN} required user_ann="nna";',
        "offsets.topic.num.partitions": "3",
        # a replica that drops out of sync in a test was cut off, and not slow
        "replica.lag.time.max.ms": "60000",
        "broker.session.timeout.ms": "60000",
    }
    nodes = {
        node: {
            **shared,
            "listener.name.inside.plain.sasl.jaas.config": jaas("broker", node),
            "listener.name.controller.plain.sasl.jaas.config": jaas("node", node),
            "ssl.keystore.location": str(authority.server(f"node-{node}").write_pem(folder / f"{node}.pem")),
            "listeners": f"OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:{controllers[node]}",
            "advertised.listeners": "OUTSIDE://localhost:0,INSIDE://localhost:0",
        }
        for node in NODES
    }
    with headrace.testing.cluster(nodes=nodes) as running:
        yield running


def properties(trust: tuple[Authority, Path], name: str = "ann", password: str = "nna") -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust[1]),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="{name}" password="{password}";',
    }


def ports(cluster: TestCluster) -> list[int]:
    return [
        node.call(lambda broker: next(each.port for each in broker.listeners if each.name == "OUTSIDE"))
        for node in cluster.nodes.values()
    ]


def bootstrap(cluster: TestCluster) -> str:
    return ",".join(f"localhost:{port}" for port in ports(cluster))


@pytest.mark.slow
def test_nodes_log_in_and_go_on_when_their_sessions_end(three: TestCluster, trust: tuple[Authority, Path]) -> None:
    client = AdminClient(
        {
            "bootstrap.servers": bootstrap(three),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(trust[1]),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "nna",
            "log_level": 0,
        }
    )
    topic = NewTopic("kept", 3, 3, config={"min.insync.replicas": "3"})
    client.create_topics([topic])["kept"].result(PATIENCE_S)
    with Client(bootstrap(three), timeout_s=PATIENCE_S, security=security_of(properties(trust))) as own:
        until = time.monotonic() + 3 * REAUTH_MS / 1000
        with Producer(own) as producer:
            sent = 0
            while time.monotonic() < until:
                producer.send("kept", b"x" * 100)
                producer.flush()
                sent += 1
        assert producer.records_delivered == sent > 20
    lost = [
        (id_, each.name)
        for id_, node in three.nodes.items()
        for each in node.call(lambda broker: [t for t in broker.image.topics if t.name == "kept"])
        for partition in each.partitions
        if len(partition.isr) < 3
    ]
    assert lost == []
    names = three.nodes[1].call(
        lambda broker: {(each.listener.name, each.client.principal) for each in broker.server.connections}
    )
    assert {("INSIDE", "User:broker-2"), ("INSIDE", "User:broker-3")} & names
    assert all(principal != "User:ANONYMOUS" for _, principal in names)


@pytest.mark.parametrize(("name", "password"), [("ann", "wrong"), ("nobody", "nna")])
def test_whoever_may_not_come_in_hears_why(
    three: TestCluster, trust: tuple[Authority, Path], name: str, password: str
) -> None:
    with (
        Client(bootstrap(three), timeout_s=30, security=security_of(properties(trust, name, password))) as client,
        pytest.raises(NotLoggedInError) as failed,
    ):
        client.refresh([])
    assert "refuses the login: Authentication failed: Invalid username or password" in str(failed.value)
    assert password not in str(failed.value) and "\n" not in str(failed.value)


def test_a_mechanism_that_is_not_served(three: TestCluster, trust: tuple[Authority, Path]) -> None:
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    other = {
        **properties(trust),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{scram} required username="ann" password="nna";',
    }
    with (
        Client(bootstrap(three), timeout_s=30, security=security_of(other)) as client,
        pytest.raises(NotLoggedInError, match="does not log clients in by SCRAM-SHA-256; it serves PLAIN"),
    ):
        client.refresh([])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "ANONYMOUS", "sasl.enabled.mechanisms": "PLAIN,ANONYMOUS"},
            "the mechanism ANONYMOUS is not served",
        ),
        ({"listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} required user_a="b";'}, "username and password"),
        ({"listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} required password="hunter2'}, r"\(hidden\)"),
    ],
)
def test_a_node_that_could_not_log_in_does_not_start(changed: dict[str, str], why: str) -> None:
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "advertised.listeners": "INSIDE://localhost:0",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INSIDE",
        "controller.quorum.voters": f"1@localhost:{free_port()}",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.inside.plain.sasl.jaas.config": jaas("node", 1),
        **changed,
    }
    with pytest.raises(ConfigError, match=why) as refused, running_broker(settings):
        pass
    assert "hunter2" not in str(refused.value)
