"""confluent-kafka, aiokafka and kafka-python, as they come, against our broker: codecs, groups, admin, idempotence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka as kafka_python
import kafka.admin
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from peers.headrace import HeadracePeer

Fresh = Callable[[str], str]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 300
PATIENCE_S = 30.0


def values() -> list[bytes]:
    return [b"value-%d" % number for number in range(COUNT)]


# --- confluent-kafka


def confluent_write(bootstrap: str, topic: str, **settings: Any) -> list[int | None]:
    offsets: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **settings})
    for value in values():
        producer.produce(topic, value, b"key", on_delivery=lambda _error, message: offsets.append(message.offset()))
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def confluent_read(bootstrap: str, topic: str, group: str, count: int = COUNT, **settings: Any) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([topic])
    got: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < deadline:
        got += [message.value() or b"" for message in consumer.consume(count - len(got), 1.0)]
    consumer.commit(asynchronous=False)
    consumer.close()
    return got


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_every_codec(ours: HeadracePeer, fresh: Fresh, codec: str) -> None:
    topic = fresh("confluent")
    offsets = confluent_write(ours.bootstrap, topic, **{"compression.type": codec, "linger.ms": 20})
    assert offsets == list(range(COUNT))
    assert confluent_read(ours.bootstrap, topic, fresh("group")) == values()


def test_confluent_idempotent_producer(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("confluent-idempotent")
    assert confluent_write(ours.bootstrap, topic, **{"enable.idempotence": True}) == list(range(COUNT))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_confluent_group_of_two_shares_and_goes_on(ours: HeadracePeer, fresh: Fresh, strategy: str) -> None:
    topic, group = fresh("confluent-shared"), fresh("group")
    admin = AdminClient({"bootstrap.servers": ours.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(PATIENCE_S)
    settings = {
        "bootstrap.servers": ours.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "partition.assignment.strategy": strategy, "session.timeout.ms": 6000,
    }  # fmt: skip
    members = [Consumer(settings), Consumer(settings)]
    for member in members:
        member.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for member in members:
            member.poll(0.1)
        if sorted(len(member.assignment()) for member in members) == [2, 2]:
            break
    assert sorted(len(member.assignment()) for member in members) == [2, 2]
    held = {part.partition for member in members for part in member.assignment()}
    assert held == {0, 1, 2, 3}
    for member in members:
        member.close()


def test_confluent_admin(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("confluent-admin")
    admin = AdminClient({"bootstrap.servers": ours.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
    assert len(admin.list_topics(topic).topics[topic].partitions) == 3
    confluent_write(ours.bootstrap, topic)
    ends = admin.list_offsets({TopicPartition(topic, part): OffsetSpec.latest() for part in range(3)})  # type: ignore[no-untyped-call]
    assert sum(each.result(PATIENCE_S).offset for each in ends.values()) == COUNT
    group = fresh("group")
    assert sorted(confluent_read(ours.bootstrap, topic, group)) == sorted(values())
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    assert described.state.name == "EMPTY"
    admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert [node.id for node in cluster.nodes] == [1]
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


# --- aiokafka


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_every_codec(ours: HeadracePeer, fresh: Fresh, codec: str) -> None:
    topic, group = fresh("aiokafka"), fresh("group")
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=ours.bootstrap, compression_type=None if codec == "none" else codec, acks="all",
        enable_idempotence=True, linger_ms=10,
    )  # fmt: skip
    await producer.start()
    sent = [await producer.send(topic, value, key=b"k", headers=[("h", b"1")]) for value in values()]
    assert [(await each).offset for each in sent] == list(range(COUNT))
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=ours.bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    got: list[Any] = []
    while len(got) < COUNT:
        got.append(await asyncio.wait_for(consumer.getone(), PATIENCE_S))
    assert [each.value for each in got] == values()
    assert got[0].headers == (("h", b"1"),)
    await consumer.commit()
    part = aiokafka.TopicPartition(topic, 0)
    assert await consumer.committed(part) == COUNT
    assert await consumer.end_offsets([part]) == {part: COUNT}
    await consumer.stop()


# --- kafka-python


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python(ours: HeadracePeer, fresh: Fresh, codec: str | None) -> None:
    topic, group = fresh("kafka-python"), fresh("group")
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=ours.bootstrap, compression_type=codec, acks="all", linger_ms=10
    )
    sent = [producer.send(topic, value, key=b"k") for value in values()]
    assert [each.get(PATIENCE_S).offset for each in sent] == list(range(COUNT))
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        topic, bootstrap_servers=ours.bootstrap, group_id=group, auto_offset_reset="earliest",
        consumer_timeout_ms=int(PATIENCE_S * 1000),
    )  # fmt: skip
    got = []
    for message in consumer:
        got.append(message.value)
        if len(got) == COUNT:
            break
    assert got == values()
    consumer.commit()
    part = kafka_python.TopicPartition(topic, 0)
    assert consumer.committed(part) == COUNT
    consumer.close()


def test_kafka_python_admin(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = fresh("kafka-python-admin")
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=ours.bootstrap)
    admin.create_topics([kafka.admin.NewTopic(topic, 2, 1)])
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
