"""Clients as they come log in to our broker by every mechanism, with the right password and the wrong one."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import kafka as kafka_python
import kafka.errors
import pytest
from broker.sasl import SETTINGS, add_users
from confluent_kafka import Consumer, KafkaError, Producer
from peers.kafka import kafka_tool

from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PATIENCE_S = 30
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker(SETTINGS) as running:
        add_users(running, ann="pencil")
        yield running


def librdkafka(broker: TestBroker, mechanism: str, password: str = "pencil", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": password,
        **more,
    }


@every_mechanism
def test_librdkafka(served: TestBroker, mechanism: str) -> None:
    topic = f"librdkafka-{mechanism}"
    producer = Producer(librdkafka(served, mechanism))
    producer.produce(topic, b"value")
    assert producer.flush(PATIENCE_S) == 0
    settings = librdkafka(served, mechanism) | {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.value() == b"value"
    consumer.close()


@every_mechanism
def test_librdkafka_with_a_wrong_password(served: TestBroker, mechanism: str) -> None:
    heard: list[KafkaError] = []
    producer = Producer(librdkafka(served, mechanism, "wrong", error_cb=heard.append))
    deadline = time.monotonic() + PATIENCE_S
    while not heard and time.monotonic() < deadline:
        producer.poll(0.2)
    assert heard and heard[0].code() == KafkaError._AUTHENTICATION, heard


@pytest.mark.slow
def test_librdkafka_goes_on_when_its_session_ends() -> None:
    with running_broker({**SETTINGS, "connections.max.reauth.ms": "1500"}) as ending:
        failed: list[KafkaError] = []
        producer = Producer(librdkafka(ending, "PLAIN", error_cb=failed.append))
        undelivered: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                undelivered.append(error)

        until = time.monotonic() + 5
        while time.monotonic() < until:
            producer.produce("long", b"x", on_delivery=delivered)
            producer.poll(0.01)
        assert producer.flush(PATIENCE_S) == 0
        opened, logins = ending.call(
            lambda inside: (
                inside.metrics.counter("connections.accepted").value,
                inside.metrics.counter("logins.succeeded").value,
            )
        )
        assert (undelivered, failed) == ([], [])
        assert logins >= opened + 3, "a session went on over the same connection"


def asyncio_settings(broker: TestBroker, mechanism: str, password: str = "pencil") -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ann",
        "sasl_plain_password": password,
    }


@every_mechanism
def test_aiokafka(served: TestBroker, mechanism: str) -> None:
    topic = f"aiokafka-{mechanism}"

    async def run() -> bytes:
        async with aiokafka.AIOKafkaProducer(**asyncio_settings(served, mechanism)) as producer:
            await producer.send_and_wait(topic, b"value")
        settings = {**asyncio_settings(served, mechanism), "auto_offset_reset": "earliest", "group_id": topic}
        async with aiokafka.AIOKafkaConsumer(topic, **settings) as consumer:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            return bytes(message.value)

    assert asyncio.run(run()) == b"value"

    async def fail() -> None:
        producer = aiokafka.AIOKafkaProducer(**asyncio_settings(served, mechanism, "wrong"))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(fail())


@every_mechanism
def test_kafka_python(served: TestBroker, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    settings = asyncio_settings(served, mechanism)
    producer = kafka_python.KafkaProducer(**settings)
    assert producer.send(topic, b"value").get(PATIENCE_S).offset == 0
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_S * 1000, **settings
    )
    assert next(consumer).value == b"value"
    consumer.close()
    # it tries again for as long as it may take to start, whatever it is told
    with pytest.raises(kafka.errors.KafkaError):
        kafka_python.KafkaProducer(**{**settings, "sasl_plain_password": "wrong"}, bootstrap_timeout_ms=1000)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (make system-deps)")
def test_kcat(served: TestBroker) -> None:
    """By PLAIN alone: the librdkafka that distributions ship (2.0) says its nonce twice in SCRAM's last message, which
    Kafka refuses since 3.7.2, and so do we (CVE-2024-56128)."""
    topic = "kcat-plain"

    def kcat(*arguments: str, password: str = "pencil", stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        settings = librdkafka(served, "PLAIN", password)
        del settings["bootstrap.servers"]
        given = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        command = ["kcat", "-b", served.bootstrap, *given, *arguments]
        return subprocess.run(command, check=False, input=stdin, capture_output=True, timeout=60)

    assert kcat("-P", "-t", topic, stdin=b"value\n").returncode == 0
    assert kcat("-C", "-t", topic, "-e", "-q").stdout == b"value\n"
    assert kcat("-L", "-m", "2", password="wrong").returncode != 0


@every_mechanism
@pytest.mark.jvm
@pytest.mark.slow
def test_java(served: TestBroker, mechanism: str, tmp_path: Path) -> None:
    topic = f"java-{mechanism.lower()}"

    def file(password: str) -> str:
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        path = tmp_path / f"{password}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="ann" password="{password}";\n'
            "default.api.timeout.ms=8000\nrequest.timeout.ms=8000\n"
        )
        return str(path)

    where = ("--bootstrap-server", served.bootstrap)
    kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer", *where, "--topic", topic, "--command-config", file("pencil"),
        stdin="one\ntwo\n",
    )  # fmt: skip
    got = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--topic", topic, "--from-beginning",
        "--max-messages", "2", "--timeout-ms", "30000", "--command-config", file("pencil"),
    )  # fmt: skip
    assert got.stdout.split() == ["one", "two"]
    made = kafka_tool(
        "kafka.admin.ConfigCommand", *where, "--command-config", file("pencil"), "--alter", "--entity-type", "users",
        "--entity-name", f"by-{mechanism}", "--add-config", "SCRAM-SHA-256=[password=secret]",
    )  # fmt: skip
    assert "Completed updating config" in made.stdout
    refused = kafka_tool(
        "org.apache.kafka.tools.TopicCommand", *where, "--command-config", file("wrong"), "--list", check=False
    )
    assert refused.returncode != 0 and "SaslAuthenticationException" in refused.stdout + refused.stderr
