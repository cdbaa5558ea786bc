"""Transactions as clients make them: librdkafka, aiokafka, kafka-python and Java; and Kafka's tool that shows them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka as kafka_python
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from peers.headrace import HeadracePeer
from peers.kafka import kafka_tool

Fresh = Callable[[str], str]

PATIENCE_S = 30.0

pytestmark = pytest.mark.slow


def create(ours: HeadracePeer, topic: str, partitions: int = 2) -> str:
    admin = AdminClient({"bootstrap.servers": ours.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)
    return topic


def producer_of(ours: HeadracePeer, name: str, **settings: Any) -> Producer:
    producer = Producer({"bootstrap.servers": ours.bootstrap, "transactional.id": name, "linger.ms": 0, **settings})
    producer.init_transactions(PATIENCE_S)
    return producer


def read(ours: HeadracePeer, topic: str, group: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """The first records, in the order of their values; and that there is nothing after them."""
    consumer = Consumer(
        {
            "bootstrap.servers": ours.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": False,
        }
    )
    consumer.subscribe([topic])
    got: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < deadline:
        got += [message.value() or b"" for message in consumer.consume(count + 1, 0.5)]
    got += [message.value() or b"" for message in consumer.consume(1, 0.3)]
    consumer.close()
    return sorted(got)


def test_librdkafka_commits_and_aborts(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = create(ours, fresh("transacted"))
    producer = producer_of(ours, fresh("id"))
    for round_ in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"%d-%d" % (round_, partition), partition=partition)
        if round_ % 2:
            assert producer.flush(PATIENCE_S) == 0  # it would drop what is not sent yet
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    wanted = [b"%d-%d" % (round_, partition) for round_ in (0, 2, 4) for partition in (0, 1)]
    assert read(ours, topic, fresh("group"), len(wanted)) == wanted
    assert len(read(ours, topic, fresh("group"), 12, "read_uncommitted")) == 12


def test_librdkafka_carries_offsets_along(ours: HeadracePeer, fresh: Fresh) -> None:
    source, target, group = create(ours, fresh("source"), 1), create(ours, fresh("target"), 1), fresh("group")
    plain = Producer({"bootstrap.servers": ours.bootstrap})
    for number in range(40):
        plain.produce(source, b"%02d" % number)
    assert plain.flush(PATIENCE_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": ours.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = producer_of(ours, fresh("id"))
    is_abort = False
    done = 0
    deadline = time.monotonic() + 2 * PATIENCE_S
    while done < 40 and time.monotonic() < deadline:
        messages = consumer.consume(10, 2.0)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        positions = [TopicPartition(source, 0, (messages[-1].offset() or 0) + 1)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
        if is_abort:
            producer.abort_transaction(PATIENCE_S)
            consumer.seek(TopicPartition(source, 0, messages[0].offset() or 0))
        else:
            producer.commit_transaction(PATIENCE_S)
            done += len(messages)
        is_abort = not is_abort
    committed = consumer.committed([TopicPartition(source, 0)], PATIENCE_S)[0].offset
    consumer.close()
    assert committed == 40
    assert read(ours, target, fresh("group"), 40) == [b"%02d" % number for number in range(40)]


def test_a_newer_producer_fences_an_older_one(ours: HeadracePeer, fresh: Fresh) -> None:
    """What the older one had begun is aborted, and it cannot end it."""
    topic, name = create(ours, fresh("fenced"), 1), fresh("id")
    older = producer_of(ours, name)
    older.begin_transaction()
    older.produce(topic, b"lost")
    assert older.flush(PATIENCE_S) == 0
    newer = producer_of(ours, name)
    newer.begin_transaction()
    newer.produce(topic, b"kept")
    with pytest.raises(KafkaException) as refused:
        older.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    newer.commit_transaction(PATIENCE_S)
    assert read(ours, topic, fresh("group"), 1) == [b"kept"]


async def test_aiokafka(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = create(ours, fresh("transacted"))
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=ours.bootstrap, transactional_id=fresh("id"))
    await producer.start()
    for round_ in range(4):
        await producer.begin_transaction()
        for partition in (0, 1):
            await producer.send_and_wait(topic, b"%d-%d" % (round_, partition), partition=partition)
        await (producer.abort_transaction() if round_ % 2 else producer.commit_transaction())
    await producer.stop()
    assert read(ours, topic, fresh("group"), 4) == [b"0-0", b"0-1", b"2-0", b"2-1"]


def test_kafka_python(ours: HeadracePeer, fresh: Fresh) -> None:
    topic = create(ours, fresh("transacted"))
    producer = kafka_python.KafkaProducer(bootstrap_servers=ours.bootstrap, transactional_id=fresh("id"))
    producer.init_transactions()
    for round_ in range(4):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send(topic, b"%d-%d" % (round_, partition), partition=partition)
        if round_ % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close(timeout=PATIENCE_S)
    assert read(ours, topic, fresh("group"), 4) == [b"0-0", b"0-1", b"2-0", b"2-1"]


@pytest.mark.jvm
def test_javas_producer(ours: HeadracePeer, fresh: Fresh) -> None:
    """Many transactions in a row, with the epoch raised by each (KIP-890)."""
    topic, name = create(ours, fresh("java")), fresh("java-id")
    done = kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "3000", "--record-size", "20", "--throughput", "1500"),
        *("--transactional-id", name, "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={ours.bootstrap}"),
    )
    assert "3000 records sent" in done.stdout
    assert len(read(ours, topic, fresh("group"), 3000)) == 3000
    server = ("--bootstrap-server", ours.bootstrap)
    listed = kafka_tool("org.apache.kafka.tools.TransactionsCommand", *server, "list").stdout
    line = next(each.split() for each in listed.splitlines() if each.startswith(name))
    assert line[-1] == "CompleteCommit"
    shown = kafka_tool(
        "org.apache.kafka.tools.TransactionsCommand", *server, "describe", "--transactional-id", name
    ).stdout.splitlines()
    fields = dict(zip(shown[0].split(), shown[1].split()))
    assert (fields["TransactionalId"], fields["TransactionState"]) == (name, "CompleteCommit")
    assert int(fields["ProducerEpoch"]) >= 5


@pytest.mark.jvm
def test_javas_copier(ours: HeadracePeer, fresh: Fresh) -> None:
    """Consumes, produces and commits offsets in transactions, of which some are aborted."""
    source, target = create(ours, fresh("source"), 1), create(ours, fresh("target"), 1)
    plain = Producer({"bootstrap.servers": ours.bootstrap})
    for number in range(500):
        plain.produce(source, b"%03d" % number, partition=0)
    assert plain.flush(PATIENCE_S) == 0
    done = kafka_tool(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", ours.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--consumer-group", fresh("group"), "--transactional-id", fresh("id")),
        *("--max-messages", "500", "--transaction-size", "50", "--enable-random-aborts"),
    )
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["consumed"] == 500 and last["remaining"] == 0
    assert read(ours, target, fresh("group"), 500) == [b"%03d" % number for number in range(500)]
