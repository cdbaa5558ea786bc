"""Consumer groups through real clients: confluent-kafka (librdkafka), aiokafka and kafka-python, unmodified."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka as kafka_python
import pytest
from peers.headrace import HeadracePeer

pytestmark = pytest.mark.slow

Fresh = Callable[[str], str]
PATIENCE_S = 30.0
KAFKA_PYTHON_POLL_MS = int(PATIENCE_S * 1000)
"""A poll of kafka-python's (3.0.12) that ends before the answer to its SyncGroup has come loses its assignment for
good, and sends no heartbeats: a poll has to last until it brings a message."""


def make_topic(ours: HeadracePeer, name: str, partitions: int, messages: int) -> str:
    """A topic with `messages` messages, spread over its partitions."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": ours.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
    send(ours, name, partitions, messages)
    return name


def send(ours: HeadracePeer, topic: str, partitions: int, messages: int) -> None:
    """Numbers from 0 on, spread over the partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": ours.bootstrap})
    for number in range(messages):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def confluent(ours: HeadracePeer, group: str, **more: Any) -> confluent_kafka.Consumer:
    """A consumer of librdkafka's."""
    settings = {
        "bootstrap.servers": ours.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 500,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    return confluent_kafka.Consumer(settings)


def until(done: Callable[[], bool], poll: Callable[[], Any] = lambda: time.sleep(0.01)) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it took too long"
        poll()


def read(consumer: confluent_kafka.Consumer, count: int) -> list[int]:
    """Exactly `count` messages, as numbers."""
    got: list[int] = []

    def poll() -> None:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            got.append(int(message.value() or b""))

    until(lambda: len(got) >= count, poll)
    return got


def test_two_consumers_share_and_one_takes_over(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = make_topic(ours, fresh("shared"), 4, 400), fresh("group")
    a, b = confluent(ours, group), confluent(ours, group)
    a.subscribe([topic])
    b.subscribe([topic])

    def poll() -> None:
        a.poll(0.05)
        b.poll(0.05)

    until(lambda: len(a.assignment()) == len(b.assignment()) == 2, poll)
    mine = {p.partition for p in a.assignment()}
    assert mine.isdisjoint(p.partition for p in b.assignment())
    b.close()
    until(lambda: len(a.assignment()) == 4, lambda: a.poll(0.05))
    a.close()


def test_committed_offsets_are_where_the_next_consumer_starts(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = make_topic(ours, fresh("resumed"), 1, 100), fresh("group")
    first = confluent(ours, group)
    first.subscribe([topic])
    assert read(first, 40) == list(range(40))
    first.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 40, metadata="half-way")], asynchronous=False)
    first.close()
    second = confluent(ours, group)
    second.subscribe([topic])
    assert read(second, 60) == list(range(40, 100))
    (committed,) = second.committed([confluent_kafka.TopicPartition(topic, 0)], PATIENCE_S)
    assert (committed.offset, committed.metadata) == (40, "half-way")
    second.close()


def test_a_cooperative_group_revokes_only_what_moves(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = make_topic(ours, fresh("cooperative"), 4, 0), fresh("group")
    revoked: list[int] = []
    a = confluent(ours, group, partition_assignment_strategy="cooperative-sticky")
    b = confluent(ours, group, partition_assignment_strategy="cooperative-sticky")
    a.subscribe([topic], on_revoke=lambda _, partitions: revoked.extend(p.partition for p in partitions))
    until(lambda: len(a.assignment()) == 4, lambda: a.poll(0.05))
    b.subscribe([topic])

    def poll() -> None:
        a.poll(0.05)
        b.poll(0.05)

    until(lambda: len(a.assignment()) == len(b.assignment()) == 2, poll)
    assert sorted(revoked) == sorted(p.partition for p in b.assignment())
    a.close()
    b.close()


def test_a_static_member_restarts_without_a_rebalance(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = make_topic(ours, fresh("static"), 2, 0), fresh("group")
    revoked: list[int] = []
    a = confluent(ours, group, group_instance_id="one")
    b = confluent(ours, group, group_instance_id="two")
    a.subscribe([topic], on_revoke=lambda _, partitions: revoked.extend(p.partition for p in partitions))
    b.subscribe([topic])

    def poll() -> None:
        a.poll(0.05)
        b.poll(0.05)

    until(lambda: len(a.assignment()) == len(b.assignment()) == 1, poll)
    before = [p.partition for p in b.assignment()]
    b.close()  # a static member does not leave when it closes
    revoked.clear()
    again = confluent(ours, group, group_instance_id="two")
    again.subscribe([topic])
    until(lambda: len(again.assignment()) == 1, lambda: again.poll(0.05))
    assert [p.partition for p in again.assignment()] == before
    for _ in range(20):
        a.poll(0.05)
    assert revoked == []
    again.close()
    a.close()


def every_group(admin: confluent_kafka.admin.AdminClient) -> dict[str, Any]:
    """By name, once each coordinator has loaded: the list is an error before."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := admin.list_consumer_groups().result(PATIENCE_S)).errors:
        assert time.monotonic() < deadline, found.errors
        time.sleep(0.02)
    return {group.group_id: group for group in found.valid}


def test_groups_through_an_admin_client(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = make_topic(ours, fresh("admin"), 2, 10), fresh("group")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": ours.bootstrap})
    consumer = confluent(ours, group)
    consumer.subscribe([topic])
    until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(0.05))
    listed = every_group(admin)
    assert listed[group].state is confluent_kafka.ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    assert len(described.members) == 1
    assert {p.partition for p in described.members[0].assignment.topic_partitions} == {0, 1}
    with pytest.raises(confluent_kafka.KafkaException):
        admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    consumer.close()
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([wanted])[group].result(PATIENCE_S)
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(PATIENCE_S)
    assert [(p.topic, p.partition, p.offset) for p in found.topic_partitions] == [(topic, 0, 3)]
    admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    assert group not in every_group(admin)


async def test_aiokafka(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = await asyncio.to_thread(make_topic, ours, fresh("aio"), 2, 100), fresh("group")

    def consumer() -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=ours.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
        )

    first = consumer()
    await first.start()
    got = [int((await asyncio.wait_for(first.getone(), PATIENCE_S)).value) for _ in range(60)]
    await first.commit()
    await first.stop()
    second, third = consumer(), consumer()
    await second.start()
    await third.start()

    async def rest(who: aiokafka.AIOKafkaConsumer) -> None:
        async for message in who:
            got.append(int(message.value))
            if len(got) == 100:
                return

    _, waiting = await asyncio.wait(
        [asyncio.create_task(rest(second)), asyncio.create_task(rest(third))],
        timeout=PATIENCE_S,
        return_when=asyncio.FIRST_COMPLETED,
    )
    for task in waiting:
        task.cancel()
    assert sorted(got) == list(range(100))
    await second.stop()
    await third.stop()


def test_kafka_python(ours: HeadracePeer, fresh: Fresh) -> None:
    topic, group = make_topic(ours, fresh("python"), 2, 100), fresh("group")

    def consumer() -> Any:
        return kafka_python.KafkaConsumer(
            topic,
            bootstrap_servers=ours.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            consumer_timeout_ms=int(PATIENCE_S * 1000),
        )

    first = consumer()
    got = [int(next(first).value) for _ in range(50)]
    first.commit()
    first.close()
    second = consumer()
    got += [int(next(second).value) for _ in range(50)]
    assert sorted(got) == list(range(100))
    second.commit()
    second.close()
    send(ours, topic, 2, 1)
    third = consumer()
    assert third.poll(KAFKA_PYTHON_POLL_MS)
    assert len(third.assignment()) == 2
    assert sum(third.committed(partition) for partition in third.assignment()) == 100
    third.close()


def test_members_of_different_clients_share_a_group(ours: HeadracePeer, fresh: Fresh) -> None:
    """librdkafka and kafka-python agree on `range`, and each gets its half."""
    topic, group = make_topic(ours, fresh("mixed"), 2, 0), fresh("group")
    a = confluent(ours, group, partition_assignment_strategy="range")
    a.subscribe([topic])
    b = kafka_python.KafkaConsumer(
        topic,
        bootstrap_servers=ours.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=500,
        session_timeout_ms=10_000,
    )
    stop = threading.Event()

    def poll_b() -> None:
        while not stop.is_set():
            b.poll(KAFKA_PYTHON_POLL_MS)

    thread = threading.Thread(target=poll_b)
    thread.start()
    try:
        until(lambda: len(a.assignment()) == 1 and len(b.assignment()) == 1, lambda: a.poll(0.1))
        assert {p.partition for p in a.assignment()} | {p.partition for p in b.assignment()} == {0, 1}
    finally:
        stop.set()
        send(ours, topic, 2, 2)
        thread.join()
        a.close()
        b.close()
