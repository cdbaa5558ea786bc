"""Transactions are not served: producers that ask for them end at once, rather than ask again until they time out."""

from __future__ import annotations

import time

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka as kafka_python
import kafka.errors as kafka_python_errors
import pytest
from peers.headrace import HeadracePeer

pytestmark = pytest.mark.slow

AT_ONCE_S = 5.0


def test_librdkafka_ends_at_once(ours: HeadracePeer) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": ours.bootstrap, "transactional.id": "x"})
    before = time.monotonic()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.init_transactions(30)
    assert raised.value.args[0].fatal()
    assert time.monotonic() - before < AT_ONCE_S


async def test_aiokafka_ends_at_once(ours: HeadracePeer) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=ours.bootstrap, transactional_id="x")
    before = time.monotonic()
    with pytest.raises(aiokafka.errors.KafkaError):
        await producer.start()
    assert time.monotonic() - before < AT_ONCE_S
    await producer.stop()


def test_kafka_python_ends_at_once(ours: HeadracePeer) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=ours.bootstrap, transactional_id="x", max_block_ms=30_000)
    before = time.monotonic()
    with pytest.raises(kafka_python_errors.KafkaError):
        producer.init_transactions()
    assert time.monotonic() - before < AT_ONCE_S
    producer.close(timeout=1)
