"""A rolling change of a live group's protocol, by librdkafka's consumers: one after the other stops and comes back with
`group.protocol=consumer`, then with `classic` again, while records come in.

Everybody commits what it read before it gives a partition up, so that every record is read once: a committed position
that was lost would show as records that were read twice, one that was doubled as records that nobody read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest
from peers.headrace import HeadracePeer

from headrace.client import Client, groups

pytestmark = pytest.mark.slow

PATIENCE_S = 90.0
PARTITIONS = 6
REJOINS = confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS
"""What whoever waits in a join phase hears when the group is upgraded, from Apache Kafka too: it joins again."""
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}


class Load:
    """Numbers that are sent to a topic all the time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.topic = topic
        self.sent = [0] * PARTITIONS
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.stopped.wait(0.01):
            for partition in range(PARTITIONS):
                self.producer.produce(self.topic, str(self.sent[partition]).encode(), partition=partition)
                self.sent[partition] += 1
            self.producer.poll(0)
        assert self.producer.flush(PATIENCE_S) == 0

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()


class Member:
    """A consumer in a thread of its own, which notes what it reads and commits it before it gives a partition up."""

    def __init__(self, bootstrap: str, topic: str, protocol: str, read: list[tuple[int, int]], strategy: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 200}
            settings["partition.assignment.strategy"] = strategy
        self.consumer = confluent_kafka.Consumer(settings)
        self.read = read
        self.assigned = 0
        self.failures: list[str] = []
        self.is_done = False
        self.stopped = threading.Event()
        self.consumer.subscribe([topic], on_revoke=self.give_up, on_lost=self.lost)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def give_up(self, _consumer: confluent_kafka.Consumer, gone: list[confluent_kafka.TopicPartition]) -> None:
        if not self.is_done:
            self.commit(gone)

    def lost(self, _consumer: confluent_kafka.Consumer, gone: list[confluent_kafka.TopicPartition]) -> None:
        self.failures.append(f"lost {sorted(each.partition for each in gone)}")

    def commit(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        positions = [each for each in self.consumer.position(partitions) if each.offset >= 0]
        if positions:
            try:
                done = self.consumer.commit(offsets=positions, asynchronous=False)
            except confluent_kafka.KafkaException as error:
                self.failures.append(f"commit of {positions}: {error}")
            else:
                self.failures += [str(each.error) for each in done if each.error is not None]

    def run(self) -> None:
        while not self.stopped.is_set() and not self.failures:
            message = self.consumer.poll(0.05)
            error = None if message is None else message.error()
            if message is not None and error is None:
                self.read.append((message.partition() or 0, message.offset() or 0))
            elif error is not None and error.code() != REJOINS:
                self.failures.append(str(error))
            self.assigned = len(self.consumer.assignment())
        self.commit(self.consumer.assignment())
        self.is_done = True  # it gives up what it has once more as it closes, when it may have left already
        self.consumer.close()

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(PATIENCE_S)
        assert self.failures == []


@pytest.fixture(scope="module")
def broker() -> Iterator[HeadracePeer]:
    with HeadracePeer(settings=SETTINGS) as running:
        yield running


def until(done: Callable[[], bool], state: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, state()
        time.sleep(0.05)


def roll(broker: HeadracePeer, topic: str, protocols: list[str], strategy: str) -> None:
    """Three consumers, which change to each of these protocols one after the other."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)
    read: list[tuple[int, int]] = []
    load = Load(broker.bootstrap, topic)
    members = [Member(broker.bootstrap, topic, protocols[0], read, strategy) for _ in range(3)]
    try:
        change(broker, topic, protocols[1:], members, read, load, strategy)
    finally:
        load.stop()
        for member in members:
            member.stopped.set()


def change(
    broker: HeadracePeer,
    topic: str,
    protocols: list[str],
    members: list[Member],
    read: list[tuple[int, int]],
    load: Load,
    strategy: str,
) -> None:
    with Client(broker.bootstrap) as client:

        def shared_out(protocol: str) -> bool:
            """Everybody has its share, and the group is told of as one of its kind."""
            described = groups.describe_group(client, topic)
            assert not [each for member in members for each in member.failures]
            spoken = [member.protocol for member in described.members]
            return (
                [member.assigned for member in members] == [2, 2, 2]
                and described.state == "Stable"
                and len(spoken) == 3
                and (described.type == protocol or set(spoken) == {"classic", "consumer"})
            )

        def state() -> object:
            return [member.assigned for member in members], groups.describe_group(client, topic)

        until(lambda: shared_out("classic"), state)
        for protocol in protocols:
            for at in range(3):
                members[at].stop()
                members[at] = Member(broker.bootstrap, topic, protocol, read, strategy)
                until(lambda: shared_out(protocol), state)  # noqa: B023
        load.stop()
        until(lambda: len(read) >= sum(load.sent), state)
        for member in members:
            member.stop()
        committed = groups.fetch_offsets(client, topic)
    assert sorted(read) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(load.sent[partition])
    ]
    assert {at: position.offset for at, position in committed.items()} == {
        (topic, partition): load.sent[partition] for partition in range(PARTITIONS)
    }


def test_up_and_back_with_an_eager_protocol(broker: HeadracePeer) -> None:
    roll(broker, "eager", ["classic", "consumer", "classic"], "range")


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_up_and_back_again_and_again(broker: HeadracePeer, strategy: str) -> None:
    roll(broker, f"again-{strategy.replace(',', '-')}", ["classic", *["consumer", "classic"] * 5], strategy)
