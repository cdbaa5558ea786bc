"""Clients as they come, over SASL_SSL with SCRAM and over mutual TLS: each writes a record and reads it as a member of
a group. Java's are in `test_secured_tools.py`."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import kafka as kafka_python
import pytest
from broker.sasl import add_users_at
from confluent_kafka import Consumer, Producer
from peers import spark
from peers.certificates import Authority, write_trust_pem

from headrace.config.security_table import STANDARD_AUTHORIZER
from headrace.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from headrace.testing.running import broker as running_broker

PATIENCE_S = 60
WAYS = ("SASL_SSL", "mutual TLS")


@dataclass
class Place:
    """Where clients connect to, and their files."""

    ports: dict[str, int]
    trust: Path
    own: Path

    def bootstrap(self, way: str) -> str:
        return f"localhost:{self.ports['CLIENTS' if way == 'SASL_SSL' else 'MUTUAL']}"

    def librdkafka(self, way: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        common = {"bootstrap.servers": self.bootstrap(way), "ssl.ca.location": str(self.trust)}
        if way == "SASL_SSL":
            login = {"sasl.mechanism": mechanism, "sasl.username": "ann", "sasl.password": "pencil"}
            return {**common, "security.protocol": "SASL_SSL", **login}
        key = {"ssl.certificate.location": str(self.own), "ssl.key.location": str(self.own)}
        return {**common, "security.protocol": "SSL", **key}

    def python(self, way: str) -> dict[str, Any]:
        """Of aiokafka and of kafka-python."""
        context = ssl.create_default_context(cafile=self.trust)
        common = {"bootstrap_servers": self.bootstrap(way), "ssl_context": context}
        if way == "SASL_SSL":
            login = {"sasl_plain_username": "ann", "sasl_plain_password": "pencil"}
            return {**common, "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", **login}
        context.load_cert_chain(self.own)
        return {**common, "security_protocol": "SSL"}

    def java(self, way: str) -> dict[str, str]:
        """Of Java's."""
        common = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.trust)}
        if way == "SASL_SSL":
            login = f'{SCRAM_MODULE} required username="ann" password="pencil";'
            named = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login}
            return {"security.protocol": "SASL_SSL", **named, **common}
        key = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.own)}
        return {"security.protocol": "SSL", **key, **common}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("tls-clients")
    authority = Authority.new()
    trust = write_trust_pem(folder / "ca.pem", [authority])
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://localhost:0,MUTUAL://localhost:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,MUTUAL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server().write_pem(folder / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ann="pencil";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:ann",
        "group.initial.rebalance.delay.ms": "0",
    }
    with running_broker(settings) as running:
        ports = running.call(lambda inside: {each.name: each.port for each in inside.listeners})
        add_users_at(ports["PLAINTEXT"], ann="pencil")
        yield Place(ports, trust, authority.client("ann").write_pem(folder / "ann.pem"))


every_way = pytest.mark.parametrize("way", WAYS)


@every_way
def test_librdkafka(place: Place, way: str) -> None:
    topic = f"librdkafka-{way[0]}"
    producer = Producer(place.librdkafka(way))
    producer.produce(topic, b"value")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**place.librdkafka(way), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.value() == b"value"
    consumer.close()


@every_way
async def test_aiokafka(place: Place, way: str) -> None:
    topic = f"aiokafka-{way[0]}"
    async with aiokafka.AIOKafkaProducer(**place.python(way)) as producer:
        await producer.send_and_wait(topic, b"value")
    reading = {"auto_offset_reset": "earliest", "group_id": topic}
    async with aiokafka.AIOKafkaConsumer(topic, **place.python(way), **reading) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value == b"value"


@every_way
def test_kafka_python(place: Place, way: str) -> None:
    topic = f"kafka-python-{way[0]}"
    producer = kafka_python.KafkaProducer(**place.python(way))
    assert producer.send(topic, b"value").get(PATIENCE_S).offset == 0
    producer.close()
    reading = {"auto_offset_reset": "earliest", "group_id": topic, "consumer_timeout_ms": PATIENCE_S * 1000}
    consumer = kafka_python.KafkaConsumer(topic, **place.python(way), **reading)
    assert next(consumer).value == b"value"
    consumer.close()


@every_way
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (make system-deps)")
def test_kcat(place: Place, way: str) -> None:
    """Its login is by PLAIN: see `test_sasl_clients.py`."""
    topic = f"kcat-{way[0]}"
    settings = place.librdkafka(way, "PLAIN")
    given = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]

    def kcat(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["kcat", *given, *arguments], check=False, input=stdin, capture_output=True, timeout=60)

    assert kcat("-P", "-t", topic, stdin=b"value\n").returncode == 0
    assert kcat("-C", "-t", topic, "-e", "-q").stdout == b"value\n"


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_sparks_own_connector(place: Place, tmp_path: Path) -> None:
    """A batch is written and read, and a stream copies it."""
    try:
        python, jars = spark.python(), spark.connector()
    except RuntimeError as error:
        pytest.skip(str(error))
    ways = {
        name: {
            "kafka.bootstrap.servers": place.bootstrap(way),
            **{f"kafka.{key}": text for key, text in place.java(way).items()},
        }
        for name, way in zip(("by-login", "by-certificate"), WAYS, strict=True)
    }
    (tmp_path / "ways.json").write_text(json.dumps(ways))
    script = Path(__file__).with_name("secured_connector_driver.py")
    command = [str(python), str(script), str(tmp_path), *map(str, jars)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "said.json").read_text()) == {name: [100, 100] for name in ways}
