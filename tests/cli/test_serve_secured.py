"""`headrace serve --brokers N` where nobody comes in without a login: neither at the listeners of clients, nor at those
of nodes, which have credentials of their own or those of the file."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from cli.supervised import Running, in_sync, serving
from click.testing import CliRunner
from peers.certificates import Authority, write_trust_pem
from testing.acknowledged import PARTITIONS, TOPIC, Load, until

from headrace.cli import main
from headrace.cli.failures import Failure
from headrace.cli.serve.listeners import plan_nodes
from headrace.client.cluster import Client
from headrace.client.errors import ClientError
from headrace.client.security import security_of
from headrace.config import BrokerConfig, load_properties_file
from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
ADMIN = "SCRAM-SHA-256=[name=admin,password=change-me]"


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, str]:
    """The settings of TLS of one node for all, as in the first example of docs/security.md; certificates that an
    authority has signed."""
    authority = Authority.new()
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server("node").write_pem(tmp_path / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(write_trust_pem(tmp_path / "ca.pem", [authority])),
    }


def written(path: Path, *properties: Mapping[str, str]) -> Path:
    lines = [f"{name}={text}" for some in properties for name, text in some.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


CLIENTS = {
    "process.roles": "broker,controller",
    "listeners": "CLIENTS://127.0.0.1:0",
    "advertised.listeners": "CLIENTS://localhost:0",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL",
    "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "offsets.topic.num.partitions": "3",
}


def as_user(running: Running, stores: Mapping[str, str], name: str = "admin", password: str = "change-me") -> None:
    running.host = "localhost"
    running.security = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": stores["ssl.truststore.location"],
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": password,
    }


@pytest.mark.slow
def test_nodes_have_credentials_of_their_own(tmp_path: Path, stores: dict[str, str]) -> None:
    file, folder = written(tmp_path / "all.properties", CLIENTS, stores), tmp_path / "cluster"
    with serving(folder, str(file), "--add-scram", ADMIN, listen=()) as running:
        as_user(running, stores)
        until(lambda: set(running.admin().list_topics(timeout=60).brokers) == {1, 2, 3}, "three brokers")
        running.create(TOPIC, PARTITIONS)
        until(lambda: in_sync(running) == {1, 2, 3}, "all nodes in sync")
        properties = load_properties_file(str(folder / "node-2" / "server.properties"))
        password = password_of(properties)
        nobody_comes_in(properties, password)
        health_of(running, stores, tmp_path)
        assert running.end() == 0
    assert password not in "\n".join(running.said)
    assert not [line for line in running.said if "Traceback" in line or "lets in anyone" in line]
    assert all((folder / f"node-{at}" / "server.properties").stat().st_mode & 0o077 == 0 for at in (1, 2, 3))


@pytest.mark.soak
def test_nodes_with_credentials_of_their_own_come_back(tmp_path: Path, stores: dict[str, str]) -> None:
    file, folder = written(tmp_path / "all.properties", CLIENTS, stores), tmp_path / "cluster"
    with serving(folder, str(file), "--add-scram", ADMIN, listen=()) as running:
        as_user(running, stores)
        running.create(TOPIC, PARTITIONS)
        with Load(running.bootstrap, running.security) as load:
            os.kill(running.processes[0], signal.SIGKILL)
            load.goes_on()
            until(lambda: in_sync(running) == {1, 2, 3}, "the first node back in sync")
        load.is_kept()
        first = password_of(load_properties_file(str(folder / "node-2" / "server.properties")))
        assert running.end() == 0
    ports = running.ports
    with serving(folder, str(file), "--add-scram", ADMIN, listen=()) as running:
        as_user(running, stores)
        assert running.ports == ports
        until(lambda: in_sync(running) == {1, 2, 3}, "all nodes in sync")
        assert running.end() == 0
    assert [line for line in running.said if "--add-scram is for its first start" in line]
    second = password_of(load_properties_file(str(folder / "node-2" / "server.properties")))
    assert second != first, "each start draws another one"


def password_of(properties: Mapping[str, str]) -> str:
    return properties["listener.name.nodes.plain.sasl.jaas.config"].split('password="')[1].split('"')[0]


def nobody_comes_in(properties: Mapping[str, str], password: str) -> None:
    """To the listeners of nodes: by no login, by a wrong one, by that of a client; a node's own opens them."""
    ports = {point.name: point.port for point in BrokerConfig.load(properties).all_listeners}
    logins = {
        "a wrong password": ("PLAIN", PLAIN, "headrace-node-1", "x" * len(password)),
        "a client's": ("SCRAM-SHA-256", SCRAM, "admin", "change-me"),
        "a client's as PLAIN": ("PLAIN", PLAIN, "admin", "change-me"),
        "a node's": ("PLAIN", PLAIN, "headrace-node-1", password),
    }
    for listener in ("NODES", "CONTROLLER"):
        for what, (mechanism, module, name, secret) in logins.items():
            login = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f'{module} required username="{name}" password="{secret}";',
            }
            assert comes_in(ports[listener], login) == (what == "a node's"), f"{what} at {listener}"
        assert not comes_in(ports[listener], {}), f"no login at {listener}"


def comes_in(port: int, properties: Mapping[str, str]) -> bool:
    with Client(f"127.0.0.1:{port}", timeout_s=1, security=security_of(properties)) as client:
        try:
            # a controller answers about controllers alone; whoever has not logged in gets no answer at all
            client.call(DescribeClusterRequest(), DescribeClusterResponse)
        except ClientError:
            return False
    return True


def health_of(running: Running, stores: Mapping[str, str], folder: Path) -> None:
    login = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": stores["ssl.truststore.location"],
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM} required username="admin" password="change-me";',
    }
    file = written(folder / "client.properties", login)
    said = ["--bootstrap", running.bootstrap, "--command-config", str(file)]
    done = CliRunner().invoke(main, ["cluster", "health", *said])
    assert done.exit_code == 0, done.output


@pytest.mark.soak
def test_the_file_says_how_nodes_log_in(tmp_path: Path, stores: dict[str, str]) -> None:
    """Brokers by SCRAM over TLS, with a user that the cluster begins with; controllers by their certificates."""
    nodes = {
        **CLIENTS,
        "listeners": "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0,VOTERS://localhost:0",
        "advertised.listeners": "CLIENTS://localhost:0,INSIDE://localhost:0",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,INSIDE:SASL_SSL,VOTERS:SSL",
        "controller.listener.names": "VOTERS",
        "listener.name.voters.ssl.client.auth": "required",
        "inter.broker.listener.name": "INSIDE",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.inside.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.inside.scram-sha-512.sasl.jaas.config": f'{SCRAM} required username="node" password="inner";',
        "super.users": "User:admin;User:node;User:CN=node",
    }
    file, folder = written(tmp_path / "all.properties", nodes, stores), tmp_path / "cluster"
    users = ("--add-scram", ADMIN, "--add-scram", "SCRAM-SHA-512=[name=node,password=inner]")
    with serving(folder, str(file), *users, listen=()) as running:
        as_user(running, stores)
        running.create(TOPIC, PARTITIONS)
        with Load(running.bootstrap, running.security) as load:
            os.kill(running.processes[1], signal.SIGKILL)
            load.goes_on()
            until(lambda: in_sync(running) == {1, 2, 3}, "the second node back in sync")
        load.is_kept()
        assert running.end() == 0
    assert "inner" not in "\n".join(running.said)
    properties = load_properties_file(str(folder / "node-3" / "server.properties"))
    assert "NODES" not in str(properties)
    assert properties["controller.quorum.voters"].startswith("1@localhost:")


# --- which listeners nodes get


def planned(given: Mapping[str, str], brokers: int = 3) -> dict[str, str]:
    """`NAME:PROTOCOL` of each listener, where the first node has it; `*` at those with credentials of their own."""
    plan = plan_nodes({"listeners": "PLAINTEXT://127.0.0.1:9092", **given}, None, brokers)
    protocols = dict(pair.split(":") for pair in plan.settings["listener.security.protocol.map"].split(","))
    return {
        f"{each.name}:{protocols[each.name]}{'*' if each.name in plan.own else ''}": f"{each.host}:{each.port}"
        for each in plan.listeners
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"PLAINTEXT:PLAINTEXT": "127.0.0.1:9092", "CONTROLLER:PLAINTEXT": "127.0.0.1:19092"}),
        (
            {"listeners": "SASL_SSL://:9093"},
            {
                "SASL_SSL:SASL_SSL": ":9093",
                "CONTROLLER:SASL_PLAINTEXT*": "127.0.0.1:19093",
                "NODES:SASL_PLAINTEXT*": "127.0.0.1:29093",
            },
        ),
        (
            {"listeners": "SSL://:60000"},
            {
                "SSL:SSL": ":60000",
                "CONTROLLER:SASL_PLAINTEXT*": "127.0.0.1:50000",
                "NODES:SASL_PLAINTEXT*": "127.0.0.1:40000",
            },
        ),
        (
            {"listeners": "SASL_SSL://:9093", "security.inter.broker.protocol": "SASL_SSL"},
            {"SASL_SSL:SASL_SSL": ":9093", "CONTROLLER:SASL_PLAINTEXT*": "127.0.0.1:19093"},
        ),
        (
            {"listeners": "SASL_SSL://:9093", "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL"},
            {
                "SASL_SSL:SASL_SSL": ":9093",
                "CONTROLLER:SSL": "127.0.0.1:19093",
                "NODES:SASL_PLAINTEXT*": "127.0.0.1:29093",
            },
        ),
        (
            {"listeners": "SSL://:9093,V://h:1", "controller.listener.names": "V",
             "listener.security.protocol.map": "SSL:SSL,V:PLAINTEXT"},
            {"SSL:SSL": ":9093", "V:PLAINTEXT": "h:1", "NODES:SASL_PLAINTEXT*": "127.0.0.1:29093"},
        ),
    ],
)  # fmt: skip
def test_which_listeners_nodes_have(given: dict[str, str], expected: dict[str, str]) -> None:
    assert planned(given) == expected


def test_a_listener_of_the_operators_is_not_taken() -> None:
    given = {"listeners": "NODES://:9093", "listener.security.protocol.map": "NODES:SASL_SSL"}
    with pytest.raises(Failure, match="NODES is a listener of the nodes' own"):
        plan_nodes(given, None, 3)


def test_super_users_are_kept_and_nodes_are_among_them() -> None:
    given = {"listeners": "SSL://:9093", **{name: CLIENTS[name] for name in ("super.users", "authorizer.class.name")}}
    found = plan_nodes(given, None, 2).settings["super.users"]
    assert found == "User:admin;User:headrace-node-1;User:headrace-node-2"
    assert "super.users" not in plan_nodes({"listeners": "SSL://:9093"}, None, 2).settings
