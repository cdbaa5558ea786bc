"""A rolling change of a live group's protocol, by librdkafka's consumers or by Java's: one after the other stops and
comes back with another `group.protocol`, while records come in.

Everybody commits what it read before it gives a partition up, so that every record is read once: a committed position
that was lost would show as records that were read twice, one that was doubled as records that nobody read.
"""

from __future__ import annotations

import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

import confluent_kafka

from headrace.client import Client, groups
from headrace.client.admin import create_topic

from .jars import ROOT
from .kafka import java, quick
from .programs import HERE
from .transacting import HEAP

PATIENCE_S = 90.0
PARTITIONS = 6
ASSIGNORS = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}
"""librdkafka's name of an assignor -> Java's."""
STRATEGY = "partition.assignment.strategy"
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
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
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


class Member(ABC):
    """A consumer that notes what it reads in `read`, as (partition, offset), and commits that before it gives a
    partition up. It begins at once, in a thread of its own."""

    def __init__(self, read: list[tuple[int, int]]) -> None:
        self.read = read
        self.assigned = 0
        self.failures: list[str] = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @abstractmethod
    def run(self) -> None:
        """Consumes until it is to end."""

    @abstractmethod
    def end(self) -> None:
        """It is to commit, leave and be over."""

    def stop(self) -> None:
        """Ends it, waits for that, and sees that nothing failed."""
        self.end()
        self.thread.join(PATIENCE_S)
        assert not self.failures, self.failures


Start = Callable[[dict[str, str], str, list[tuple[int, int]]], Member]
"""What starts one, of these settings, on this topic."""


def settings_of(bootstrap: str, topic: str, protocol: str, strategy: str) -> dict[str, str]:
    """A member's settings: the group has the topic's name. `strategy` is for the classic protocol."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": "10000", "heartbeat.interval.ms": "200", STRATEGY: strategy}
    return settings


class LibrdkafkaMember(Member):
    """librdkafka's."""

    def __init__(self, settings: dict[str, str], topic: str, read: list[tuple[int, int]]) -> None:
        self.consumer = confluent_kafka.Consumer(settings)
        self.is_done = False
        self.stopped = threading.Event()
        self.consumer.subscribe([topic], on_revoke=self.give_up, on_lost=self.lost)
        super().__init__(read)

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

    def end(self) -> None:
        self.stopped.set()


class JavaMember(Member):
    """Java's, in a process of its own."""

    def __init__(self, settings: dict[str, str], topic: str, read: list[tuple[int, int]]) -> None:
        if STRATEGY in settings:
            settings[STRATEGY] = f"org.apache.kafka.clients.consumer.{ASSIGNORS[settings[STRATEGY]]}"
        said = [f"{name}={value}" for name, value in settings.items()]
        self.process = subprocess.Popen(
            java(str(HERE / "Rolling.java"), topic, *said, flags=quick(HEAP)),
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        super().__init__(read)

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, *values = line.split()
            if what == "read":
                partition, offset = map(int, values)
                self.read.append((partition, offset))
            elif what == "has":
                self.assigned = int(values[0])
            else:
                self.failures.append(line)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stop(self) -> None:
        super().stop()
        assert self.process.wait(PATIENCE_S) == 0


class Rolling:
    """Three consumers of a topic and group of this name."""

    def __init__(self, client: Client, topic: str, load: Load, start: Callable[[str], Member]) -> None:
        self.client = client
        self.topic = topic
        self.load = load
        self.start = start
        self.members: list[Member] = []

    def is_shared_out(self, protocol: str) -> bool:
        """Everybody has its share, and the group is told of as one of its kind."""
        failures = [failure for each in self.members for failure in each.failures]
        assert not failures, failures
        described = self.described()
        spoken = [each.protocol for each in described.members]
        return (
            [each.assigned for each in self.members] == [2, 2, 2]
            and described.state == "Stable"
            and len(spoken) == 3
            and (described.type == protocol or set(spoken) == {"classic", "consumer"})
        )

    def described(self) -> groups.GroupDescription:
        return groups.describe_group(self.client, self.topic)

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, ([each.assigned for each in self.members], self.described())
            time.sleep(0.05)

    def change(self, protocol: str, meanwhile: Callable[[], object]) -> None:
        """All of them, one after the other."""
        for at in range(3):
            self.members[at].stop()
            self.members[at] = self.start(protocol)
            meanwhile()
            self.until(lambda: self.is_shared_out(protocol))

    def check(self, read: list[tuple[int, int]]) -> None:
        """They read everything once, and committed that."""
        self.load.stop()
        self.until(lambda: len(read) >= sum(self.load.sent))
        for each in self.members:
            each.stop()
        committed = groups.fetch_offsets(self.client, self.topic)
        sent = dict(enumerate(self.load.sent))
        often = Counter(read)
        missing = [(at, offset) for at, count in sent.items() for offset in range(count) if (at, offset) not in often]
        again = sorted(at for at, times in often.items() if times > 1)
        assert not missing and not again, (missing, again)
        found = {partition: position.offset for (_, partition), position in committed.items()}
        assert found == sent, (found, sent)


def roll(
    bootstrap: str,
    topic: str,
    protocols: list[str],
    strategy: str,
    kind: Start = LibrdkafkaMember,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Three consumers of a new topic change to each of these protocols, with something done `meanwhile`: when one of
    them has just come back."""
    read: list[tuple[int, int]] = []
    with Client(bootstrap) as client:
        create_topic(client, topic, partitions=PARTITIONS)
        load = Load(bootstrap, topic)

        def start(protocol: str) -> Member:
            return kind(settings_of(bootstrap, topic, protocol, strategy), topic, read)

        rolling = Rolling(client, topic, load, start)
        try:
            rolling.members = [rolling.start(protocols[0]) for _ in range(3)]
            rolling.until(lambda: rolling.is_shared_out(protocols[0]))
            for protocol in protocols[1:]:
                rolling.change(protocol, meanwhile)
            rolling.check(read)
        finally:
            load.stop()
            for each in rolling.members:
                each.end()
