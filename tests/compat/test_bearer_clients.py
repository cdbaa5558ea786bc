"""Clients as they come log in by OAUTHBEARER: with tokens that nobody signed, with an issuer's, and with bad ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import kafka as kafka_python
import kafka.errors
import kafka.net.sasl.oauth
import pytest
from broker.bearer import ISSUER, UNSECURED, current, published, signed, token
from confluent_kafka import Consumer, KafkaError, Producer
from peers.kafka import kafka_tool
from security.oauthbearer.issuing import forged

from headrace.security.jaas import OAUTHBEARER_MODULE
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

PATIENCE_S = 30
BAD = {
    "issuer": lambda: token(iss="https://another"),
    "expired": lambda: token(exp=int(time.time()) - 60, iat=int(time.time()) - 100),
    "none": lambda: forged({"alg": "none"}, current()),
}
every_bad = pytest.mark.parametrize("kind", BAD)


@pytest.fixture(scope="module")
def taking() -> Iterator[TestBroker]:
    with published() as issuer, running_broker(signed(issuer.url)) as broker:
        yield broker


@pytest.fixture(scope="module")
def trusting() -> Iterator[TestBroker]:
    with running_broker(UNSECURED) as broker:
        yield broker


def librdkafka(broker: TestBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "log_level": 0,
        **more,
    }


def round_trip(settings: dict[str, Any], topic: str) -> None:
    producer = Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.value() == b"value"
    consumer.close()


def shown(make: Any) -> Any:
    """What librdkafka asks for a token, and until when it lasts."""
    return lambda _config: (make(), time.time() + 300)


@pytest.mark.slow
def test_librdkafka_with_a_token_of_an_issuer(taking: TestBroker) -> None:
    round_trip(librdkafka(taking, oauth_cb=shown(token)), "librdkafka")


def test_librdkafka_with_a_token_of_its_own(trusting: TestBroker) -> None:
    own = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=ann"}
    round_trip(librdkafka(trusting, **own), "librdkafka-own")


@every_bad
def test_librdkafka_with_a_bad_token(taking: TestBroker, kind: str) -> None:
    heard: list[KafkaError] = []
    producer = Producer(librdkafka(taking, oauth_cb=shown(BAD[kind]), error_cb=heard.append))
    deadline = time.monotonic() + PATIENCE_S
    while not any(each.code() == KafkaError._AUTHENTICATION for each in heard) and time.monotonic() < deadline:
        producer.poll(0.2)
    assert any("invalid_token" in each.str() for each in heard), heard


class OfAiokafka(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]  # it has no types
    def __init__(self, make: Any) -> None:
        self._make = make

    async def token(self) -> str:
        return str(self._make())


def asyncio_settings(broker: TestBroker, make: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": OfAiokafka(make),
    }


def test_aiokafka(taking: TestBroker) -> None:
    async def run() -> bytes:
        async with aiokafka.AIOKafkaProducer(**asyncio_settings(taking, token)) as producer:
            await producer.send_and_wait("aiokafka", b"value")
        settings = {**asyncio_settings(taking, token), "auto_offset_reset": "earliest", "group_id": "aiokafka"}
        async with aiokafka.AIOKafkaConsumer("aiokafka", **settings) as consumer:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            return bytes(message.value)

    assert asyncio.run(run()) == b"value"


@every_bad
def test_aiokafka_with_a_bad_token(taking: TestBroker, kind: str) -> None:
    async def fail() -> None:
        producer = aiokafka.AIOKafkaProducer(**asyncio_settings(taking, BAD[kind]))
        try:
            await asyncio.wait_for(producer.start(), PATIENCE_S)
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(fail())


class OfKafkaPython(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]  # nor has this
    def __init__(self, make: Any) -> None:
        super().__init__()
        self._make = make

    def token(self) -> str:
        return str(self._make())


def blocking_settings(broker: TestBroker, make: Any) -> dict[str, Any]:
    return {**asyncio_settings(broker, make), "sasl_oauth_token_provider": OfKafkaPython(make)}


def test_kafka_python(taking: TestBroker) -> None:
    settings = blocking_settings(taking, token)
    producer = kafka_python.KafkaProducer(**settings)
    assert producer.send("kafka-python", b"value").get(PATIENCE_S).offset == 0
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        "kafka-python",
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_S * 1000,
        **settings,
    )
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.mark.slow
@every_bad
def test_kafka_python_with_a_bad_token(taking: TestBroker, kind: str) -> None:
    with pytest.raises(kafka.errors.KafkaError), ExitStack() as stack:
        producer = kafka_python.KafkaProducer(
            **blocking_settings(taking, BAD[kind]), max_block_ms=2000, bootstrap_timeout_ms=2000
        )
        stack.callback(producer.close, timeout=1)
        producer.send("kafka-python-bad", b"value").get(3)


@pytest.mark.jvm
@pytest.mark.slow
def test_java_with_a_token_of_its_own(trusting: TestBroker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f'sasl.jaas.config={OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="ann";\n'
    )
    where = ("--bootstrap-server", trusting.bootstrap, "--topic", "java", "--command-config", str(config))
    kafka_tool("org.apache.kafka.tools.ConsoleProducer", *where, stdin="one\ntwo\n")
    got = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--from-beginning", "--max-messages", "2",
        "--timeout-ms", "30000",
    )  # fmt: skip
    assert got.stdout.split() == ["one", "two"]


@pytest.mark.jvm
@pytest.mark.slow
def test_java_with_a_token_in_a_file(taking: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, config = tmp_path / "token", tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.jaas.config={OAUTHBEARER_MODULE} required;\nsasl.oauthbearer.token.endpoint.url={path.as_uri()}\n"
        "default.api.timeout.ms=8000\nrequest.timeout.ms=8000\n"
    )
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed."
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"{allowed}urls={path.as_uri()} {allowed}files={path}")
    where = ("--bootstrap-server", taking.bootstrap, "--command-config", str(config))
    path.write_text(token())
    kafka_tool("org.apache.kafka.tools.ConsoleProducer", *where, "--topic", "java-file", stdin="one\n")
    listed = kafka_tool("org.apache.kafka.tools.TopicCommand", *where, "--list")
    assert "java-file" in listed.stdout
    path.write_text(token(iss=f"{ISSUER}/other"))
    refused = kafka_tool("org.apache.kafka.tools.TopicCommand", *where, "--list", check=False)
    assert refused.returncode != 0 and "invalid_token" in refused.stdout + refused.stderr
