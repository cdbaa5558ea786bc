"""Consumer groups of KIP-848 through real clients: librdkafka and Apache Kafka's own tools, unmodified."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from peers.headrace import HeadracePeer
from peers.kafka import java, kafka_tool

import headrace.testing
from headrace.client import Client
from headrace.testing import TestCluster

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.assignment.interval.ms": "0",
}
"""Times that tests can wait for."""


@pytest.fixture(scope="module")
def quick() -> Iterator[HeadracePeer]:
    with HeadracePeer(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster(settings=SETTINGS) as running:
        yield running


class Member:
    """A consumer of librdkafka's, with what it got by partition."""

    def __init__(self, broker: HeadracePeer | TestCluster, group: str, topic: str, **more: Any) -> None:
        self.revoked: list[int] = []
        self.got: list[int] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                **{key.replace("_", "."): value for key, value in more.items()},
            }
        )
        self.consumer.subscribe([topic], on_revoke=lambda _, gone: self.revoked.extend(p.partition for p in gone))

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.got.append(int(message.value() or b""))


def until(done: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it took too long"
        for member in members:
            member.poll()
        if not members:
            time.sleep(0.05)


def make_topic(broker: HeadracePeer | TestCluster, name: str, messages: int = 0, replicas: int = 1) -> str:
    """Of 4 partitions, with numbers from 0 on spread over them."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 4, replicas)])[name].result(PATIENCE_S)
    send(broker, name, range(messages))
    return name


def send(broker: HeadracePeer | TestCluster, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


def test_two_members_share_and_one_takes_over(quick: HeadracePeer) -> None:
    topic = make_topic(quick, "shared", 40)
    a = Member(quick, "sharing", topic)
    until(lambda: len(a.assigned) == 4 and len(a.got) == 40, a)
    b = Member(quick, "sharing", topic)
    until(lambda: len(a.assigned) == len(b.assigned) == 2, a, b)
    assert a.assigned.isdisjoint(b.assigned)
    assert set(a.revoked) == b.assigned, "only what moves is revoked"
    a.consumer.commit(asynchronous=False)
    b.consumer.close()
    until(lambda: len(a.assigned) == 4, a)
    a.consumer.close()


def test_a_silent_member_is_fenced(quick: HeadracePeer) -> None:
    topic = make_topic(quick, "silent")
    program = f"""
import confluent_kafka
consumer = confluent_kafka.Consumer(
    {{"bootstrap.servers": "{quick.bootstrap}", "group.id": "fencing", "group.protocol": "consumer"}}
)
consumer.subscribe(["{topic}"])
while True:
    consumer.poll(1)
"""
    silent = subprocess.Popen([sys.executable, "-c", program])
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": quick.bootstrap})

    def members() -> int:
        try:
            return len(admin.describe_consumer_groups(["fencing"])["fencing"].result(PATIENCE_S).members)
        except confluent_kafka.KafkaException as error:  # librdkafka asks once, while the coordinator still loads
            assert error.args[0].code() == confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS
            return 0

    until(lambda: members() == 1)
    silent.send_signal(signal.SIGSTOP)
    a = Member(quick, "fencing", topic)
    until(lambda: len(a.assigned) == 4, a)
    silent.kill()
    silent.wait()
    a.consumer.close()


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_over_a_restart(tmp_path: Path, ending: str) -> None:
    """Members keep what they have while their coordinator is away, and offsets are where they were committed."""
    broker = HeadracePeer(tmp_path, settings=SETTINGS)
    broker.start()
    try:
        topic = make_topic(broker, "kept", 40)
        a, b = (Member(broker, "lasting", topic) for _ in range(2))
        until(lambda: len(a.assigned) == len(b.assigned) == 2 and len({*a.got, *b.got}) == 40, a, b)
        for member in (a, b):
            member.consumer.commit(
                offsets=[confluent_kafka.TopicPartition(topic, each, 10) for each in sorted(member.assigned)],
                asynchronous=False,
            )
            member.revoked.clear()
        had = a.assigned, b.assigned
        getattr(broker, ending)()
        broker.start()
        send(broker, topic, range(40, 80))
        until(lambda: {*a.got, *b.got} == set(range(80)), a, b)
        assert (a.assigned, b.assigned, a.revoked, b.revoked) == (*had, [], [])
        for member in (a, b):
            member.consumer.close()
        again = Member(broker, "lasting", topic)
        until(lambda: len(again.got) >= 40, again)
        assert sorted(again.got) == list(range(40, 80))
        again.consumer.close()
    finally:
        broker.kill()


def test_a_regular_expression_finds_topics_as_they_come(quick: HeadracePeer) -> None:
    first = make_topic(quick, "found-1", 8)
    make_topic(quick, "not-found", 8)
    a = Member(quick, "finding", "^found-.*")
    until(lambda: len(a.got) == 8, a)
    second = make_topic(quick, "found-2", 4)
    until(lambda: len(a.got) == 12, a)
    assert {each.topic for each in a.consumer.assignment()} == {first, second}
    a.consumer.close()


def test_a_static_member_comes_back_without_a_rebalance(quick: HeadracePeer) -> None:
    topic = make_topic(quick, "static")
    a, b = (Member(quick, "staying", topic, group_instance_id=name) for name in ("one", "two"))
    until(lambda: len(a.assigned) == len(b.assigned) == 2, a, b)
    had = b.assigned
    a.revoked.clear()
    b.consumer.close()
    again = Member(quick, "staying", topic, group_instance_id="two")
    until(lambda: len(again.assigned) == 2, a, again)
    assert (again.assigned, a.revoked) == (had, [])
    a.consumer.close()
    again.consumer.close()


def test_an_admin_sees_and_deletes_them(quick: HeadracePeer) -> None:
    topic = make_topic(quick, "seen", 4)
    a = Member(quick, "seeing", topic)
    until(lambda: len(a.got) == 4, a)
    a.consumer.commit(asynchronous=False)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": quick.bootstrap})
    described = admin.describe_consumer_groups(["seeing"])["seeing"].result(PATIENCE_S)
    assert described.type == confluent_kafka.ConsumerGroupType.CONSUMER
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    (member,) = described.members
    assert {each.partition for each in member.assignment.topic_partitions} == {0, 1, 2, 3}
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert listed["seeing"].type == confluent_kafka.ConsumerGroupType.CONSUMER
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["seeing"])["seeing"].result(PATIENCE_S)
    a.consumer.close()
    admin.delete_consumer_groups(["seeing"])["seeing"].result(PATIENCE_S)
    assert "seeing" not in {each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid}


def test_when_the_coordinator_dies(three: TestCluster) -> None:
    """Another broker coordinates from its copy of the log: nobody loses a partition, nor is read twice."""
    topic = make_topic(three, "mourned", 40, replicas=3)
    a, b = (Member(three, "mourning", topic) for _ in range(2))
    until(lambda: len(a.assigned) == len(b.assigned) == 2 and len({*a.got, *b.got}) == 40, a, b)
    had = a.assigned, b.assigned
    for member in (a, b):
        member.revoked.clear()
        member.got.clear()
    with Client(three.bootstrap) as client:
        three.kill(client.coordinator("mourning"))
    send(three, topic, range(40, 80))
    until(lambda: len({*a.got, *b.got}) == 40, a, b)
    assert sorted([*a.got, *b.got]) == list(range(40, 80))
    a.consumer.commit(asynchronous=False)
    assert (a.assigned, b.assigned, a.revoked, b.revoked) == (*had, [], [])
    for member in (a, b):
        member.consumer.close()


@pytest.mark.jvm
def test_kafkas_console_consumer_and_its_tool(quick: HeadracePeer) -> None:
    topic = make_topic(quick, "console", 8)
    command = java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", quick.bootstrap, "--topic", topic, "--group", "consoles", "--from-beginning"),
        *("--command-property", "group.protocol=consumer"),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        got = sorted(int(process.stdout.readline()) for _ in range(8))
        tool = (
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", quick.bootstrap, "--describe", "--group", "consoles"),
        )
        state = kafka_tool(*tool, "--state").stdout.split()
        members = kafka_tool(*tool, "--members", "--verbose").stdout
        offsets = kafka_tool(*tool).stdout
        process.terminate()
    assert got == list(range(8))
    assert "Stable" in state and "uniform" in state
    assert "console:0,1,2,3" in members
    assert len([line for line in offsets.splitlines() if line.startswith("consoles")]) == 4
