"""A cluster's first user: formatted by one of the two, let in by the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.raw import Raw
from broker.sasl import scram
from click.testing import CliRunner
from peers.kafka import CLUSTER_ID, KafkaPeer, free_port, kafka_tool

from headrace.cli import main
from headrace.config import BrokerConfig, load_properties_file
from headrace.security.jaas import SCRAM_MODULE
from headrace.testing.running import broker as running_broker

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

USERS = ("SCRAM-SHA-256=[name=admin,password=first]", "SCRAM-SHA-512=[name=admin,iterations=8192,password=second]")
GIVEN = [part for user in USERS for part in ("--add-scram", user)]


def peer_with_logins(directory: Path) -> tuple[KafkaPeer, int]:
    """A node that is not started, and the port where it asks its clients to log in."""
    port = free_port()
    peer = KafkaPeer(directory)
    peer.settings = {
        "listeners": f"CLIENTS://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{peer.port},"
        f"CONTROLLER://127.0.0.1:{peer.controller_port}",
        "advertised.listeners": f"CLIENTS://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{peer.port}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    return peer, port


def check(port: int) -> None:
    with Raw(port) as raw:
        assert scram(raw, "admin", "first", "SCRAM-SHA-256").error_code == 0
    with Raw(port) as raw:
        assert scram(raw, "admin", "second", "SCRAM-SHA-512").error_code == 0
    with Raw(port) as raw:
        assert scram(raw, "admin", "first", "SCRAM-SHA-512").error_code != 0


def test_we_format_and_kafka_lets_in(tmp_path: Path) -> None:
    peer, port = peer_with_logins(tmp_path)
    done = CliRunner().invoke(main, ["storage", "format", "-t", CLUSTER_ID, "-c", str(peer.write_properties()), *GIVEN])
    assert done.exit_code == 0, done.output
    with peer:
        check(port)


def test_kafka_formats_and_we_let_in(tmp_path: Path) -> None:
    peer, port = peer_with_logins(tmp_path)
    file = peer.write_properties()
    kafka_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), *GIVEN)
    properties = load_properties_file(str(file))
    assert BrokerConfig.load(properties).log_dirs == (str(peer.data),)
    with running_broker(properties, data=peer.data):
        check(port)
