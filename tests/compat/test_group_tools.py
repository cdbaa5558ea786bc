"""Apache Kafka's `kafka-consumer-groups` and `kafka-groups` on groups of both protocols, whatever has become of them:
they say the same of our broker as of Apache Kafka's."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer, kafka_tool
from peers.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.jvm, pytest.mark.soak, pytest.mark.timeout(600)]

TOPIC, RECORDS = "read", 10
GROUPS = "consumer.group.ConsumerGroupCommand"
EVERY = ("classic", "consumer")
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}

ASKED: tuple[tuple[str, ...], ...] = (
    (GROUPS, "--list"),
    (GROUPS, "--list", "--state"),
    (GROUPS, "--list", "--type"),
    (GROUPS, "--list", "--state", "stable"),
    (GROUPS, "--list", "--state", "Empty,Dead"),
    (GROUPS, "--list", "--type", "consumer"),
    (GROUPS, "--list", "--type", "classic", "--state", "empty"),
    (GROUPS, "--list", "--state", "wrong"),
    (GROUPS, "--describe", "--all-groups"),
    (GROUPS, "--describe", "--all-groups", "--state"),
    (GROUPS, "--describe", "--all-groups", "--state", "--verbose"),
    (GROUPS, "--describe", "--all-groups", "--members"),
    (GROUPS, "--describe", "--all-groups", "--members", "--verbose"),
    (GROUPS, "--describe", "--group", "nobody"),
    (GROUPS, "--describe", "--group", "nobody", "--state"),
    ("GroupsCommand", "--list"),
    ("GroupsCommand", "--list", "--group-type", "classic"),
    ("GroupsCommand", "--list", "--consumer"),
    ("GroupsCommand", "--list", "--share"),
    ("GroupsCommand", "--list", "--group-type", "consumer", "--protocol", "consumer"),
    (GROUPS, "--delete", "--group", "classic-stable"),
    (GROUPS, "--delete", "--group", "consumer-stable"),
    (GROUPS, "--reset-offsets", "--group", "consumer-stable", "--topic", TOPIC, "--to-earliest", "--execute"),
    (GROUPS, "--reset-offsets", "--group", "consumer-empty", "--topic", TOPIC, "--shift-by", "-2", "--dry-run"),
    (GROUPS, "--reset-offsets", "--group", "consumer-empty", "--topic", TOPIC, "--to-offset", "1", "--execute"),
    (GROUPS, "--reset-offsets", "--group", "classic-empty", "--all-topics", "--to-earliest", "--execute"),
    (GROUPS, "--delete-offsets", "--group", "consumer-empty", "--topic", f"{TOPIC}:1"),
    (GROUPS, "--delete-offsets", "--group", "consumer-stable", "--topic", TOPIC),
    (GROUPS, "--describe", "--group", "consumer-empty"),
    (GROUPS, "--describe", "--group", "classic-empty"),
    (GROUPS, "--delete", "--group", "consumer-empty"),
    (GROUPS, "--delete", "--group", "classic-empty"),
    (GROUPS, "--delete", "--group", "nobody"),
    (GROUPS, "--list", "--state"),
)

MEMBER = re.compile(r"rdkafka-[0-9a-f-]{36}|\w+-\w+-client-[0-9a-f-]{36}|(?<![\w+/-])[\w+/-]{22}(?![\w+/-])")
"""A member's id: of librdkafka's clients of the newer protocol, 22 characters of base64."""


@dataclass
class Member:
    """A consumer that polls in a thread of its own until it is closed, and commits there what it reads: librdkafka
    never returns from a commit beside a poll."""

    consumer: confluent_kafka.Consumer

    def __post_init__(self) -> None:
        self.read = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._ended.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.consumer.commit(message=message, asynchronous=False)
                self.read += 1

    def has_read_all(self) -> bool:
        return self.read == RECORDS

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.consumer.close()


def member(bootstrap: str, group: str, protocol: str) -> Member:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "client.id": f"{group}-client",
        "auto.offset.reset": "earliest",
        "log_level": 0,
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([TOPIC])
    return Member(consumer)


@contextmanager
def groups(bootstrap: str) -> Iterator[None]:
    """A stable and an empty group of each protocol, and one of offsets alone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(PATIENCE_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"value", partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    stable = []
    try:
        for protocol in EVERY:
            gone = member(bootstrap, f"{protocol}-empty", protocol)
            until(gone.has_read_all, "all is read")
            gone.close()
            stays = member(bootstrap, f"{protocol}-stable", protocol)
            stable.append(stays)
            until(stays.has_read_all, "all is read")
        alone = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "offsets-alone"})
        alone.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
        alone.close()
        yield
    finally:
        for each in stable:
            each.close()


def conversation(peer: HeadracePeer | KafkaPeer) -> list[str]:
    """What the tools say, one text for each question: without what two runs differ in, lines in order."""
    said = []
    with groups(peer.bootstrap):
        for name, *arguments in ASKED:
            done = kafka_tool(
                f"org.apache.kafka.tools.{name}", "--bootstrap-server", peer.bootstrap, *arguments, check=False
            )
            text = (done.stdout + done.stderr).replace(peer.bootstrap, "BROKER")
            text = re.sub(r"^\s+at .*$", "", text, flags=re.MULTILINE)
            text = MEMBER.sub("MEMBER", text)
            text = re.sub(r"[0-9]+ \(id: |\(id: ", "(id: ", text)
            # Java tells states in the order of a set, another one in each run.
            text = re.sub(r"(?<=states are: )[\w, ]+", lambda found: ", ".join(sorted(found[0].split(", "))), text)
            lines = sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())
            said.append("\n".join([f"$ {name} {' '.join(arguments)} -> {done.returncode}", *lines]))
    return said


def test_they_say_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    with HeadracePeer(tmp_path_factory.mktemp("ours"), settings=SETTINGS) as peer:
        ours = conversation(peer)
    with KafkaPeer(settings=SETTINGS) as kafka:
        theirs = conversation(kafka)
    for one, other in zip(ours, theirs, strict=True):
        assert one == other
