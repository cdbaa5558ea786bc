"""Kafka's tool for delegation tokens, and Java clients that log in with one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.tokens import SETTINGS
from peers.kafka import kafka_tool

from headrace.client.cluster import Client
from headrace.client.security import security_of
from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOOL = "org.apache.kafka.tools.DelegationTokenCommand"


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker(SETTINGS) as running:
        yield running


def properties(path: Path, mechanism: str, jaas: str) -> str:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
        "default.api.timeout.ms=8000\nrequest.timeout.ms=8000\n"
    )
    return str(path)


def test_a_token_by_kafkas_tool(served: TestBroker, tmp_path: Path) -> None:
    where = ("--bootstrap-server", served.bootstrap, "--command-config")
    ann = properties(tmp_path / "ann", "PLAIN", f'{PLAIN_MODULE} required username="ann" password="ann";')
    made = kafka_tool(TOOL, *where, ann, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(r"^(\S{22})\s+(\S{88})\s+User:ann\s+User:ann\s+\[User:bob\]", made.stdout, re.MULTILINE)
    assert found, made.stdout
    token_id, hmac = found.groups()
    listed = kafka_tool(TOOL, *where, ann, "--describe", "--owner-principal", "User:ann")
    assert token_id in listed.stdout
    renewed = kafka_tool(TOOL, *where, ann, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in renewed.stdout

    jaas = f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";'
    with_token = properties(tmp_path / "token", "SCRAM-SHA-256", jaas)
    topic = ("--bootstrap-server", served.bootstrap, "--topic", "by-token", "--command-config", with_token)
    kafka_tool("org.apache.kafka.tools.ConsoleProducer", *topic, stdin="one\ntwo\n")
    got = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *topic, "--from-beginning", "--max-messages", "2",
        "--timeout-ms", "30000",
    )  # fmt: skip
    assert got.stdout.split() == ["one", "two"]
    refused = kafka_tool(TOOL, *where, with_token, "--create", "--max-life-time-period", "-1", check=False)
    assert refused.returncode != 0 and "not allowed" in refused.stdout + refused.stderr

    own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    with Client(served.bootstrap, timeout_s=10, security=security_of(own)) as client:
        assert client.topic("by-token").partitions

    ended = kafka_tool(TOOL, *where, ann, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in ended.stdout
    gone = kafka_tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", served.bootstrap, "--command-config", with_token,
        "--list", check=False,
    )  # fmt: skip
    assert gone.returncode != 0 and "SaslAuthenticationException" in gone.stdout + gone.stderr
