"""What clients of brokers that are killed were promised: they write it down as it comes, and look for it afterwards."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from peers.cluster import HeadraceCluster

TOPIC = "kept"
PARTITIONS = 3
PAYLOAD = b"." * 200
IN_FLIGHT_MAX = 2_000
DELIVERY_PATIENCE_S = 120.0
SYNC_PATIENCE_S = 60.0
COORDINATOR_MOVES = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)
"""With these a group asks again, at its next coordinator."""


class Load:
    """One idempotent producer, writing numbered records until told to stop, and what it was promised.

    `silence_ms` is how long it waits for a broker that is there and does not answer.
    """

    def __init__(self, bootstrap: str, name: str, silence_ms: int = 60_000) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged: dict[tuple[int, int], int] = {}  # (partition, offset) -> number
        self.failed: list[str] = []
        self.unplaced: set[int] = set()
        """The numbers that were acknowledged without an offset: sent again to a leader that knows the batch for an old
        one (DUPLICATE_SEQUENCE_NUMBER). A restarted broker knows the place of a producer's last batch alone where the
        snapshot of producers is younger than the others, as Apache Kafka does."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "socket.timeout.ms": silence_ms,
                "message.timeout.ms": int(DELIVERY_PATIENCE_S * 1000),
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def _note(self, error: Any, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        number = int(message.key() or b"")
        offset = message.offset()
        if offset is None or offset < 0:
            self.unplaced.add(number)
            return
        place = (message.partition() or 0, offset)
        if place in self.acknowledged:
            self.failed.append(f"{number} and {self.acknowledged[place]} were acknowledged at {place}")
        self.acknowledged[place] = number

    def _run(self) -> None:
        while not self._stop.is_set():
            if len(self._producer) < IN_FLIGHT_MAX:
                for _ in range(20):
                    number = self.sent
                    self._producer.produce(
                        TOPIC,
                        key=str(number),
                        value=f"{self.name}:{number}:".encode() + PAYLOAD,
                        partition=number % PARTITIONS,
                        on_delivery=self._note,
                    )
                    self.sent += 1
            self._producer.poll(0.002)
        assert self._producer.flush(DELIVERY_PATIENCE_S) == 0, "every record gets an answer"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def goes_on(self) -> None:
        """Returns when every partition has acknowledged more than it had."""
        before = len(self.acknowledged)
        last = time.monotonic() + DELIVERY_PATIENCE_S
        while {partition for partition, _ in list(self.acknowledged)[before:]} != set(range(PARTITIONS)):
            assert time.monotonic() < last, f"nothing more than {before} records is acknowledged"
            time.sleep(0.01)

    def stop(self) -> None:
        """No more records; returns when each has its answer."""
        self._stop.set()
        self._thread.join()

    def assert_kept(self, found: dict[int, list[tuple[int, int]]]) -> None:
        """Once it has stopped: every record is acknowledged and found, once, in order, and where its acknowledgement
        said. `found` is what `read_all` found."""
        assert self.failed == []
        answered = len(self.acknowledged) + len(self.unplaced)
        assert answered == self.sent > 0, f"{answered} of {self.sent} records were acknowledged"
        for partition, records in found.items():
            numbers = [number for _, number in records]
            expected = list(range(partition, self.sent, PARTITIONS))
            assert numbers == expected, f"partition {partition}: lost, doubled, moved"
            moved = [
                (offset, number)
                for offset, number in records
                if self.acknowledged.get((partition, offset), number) != number
                or ((partition, offset) not in self.acknowledged and number not in self.unplaced)
            ]
            assert moved == [], f"partition {partition}: not where they were acknowledged"


class Promises:
    """What a consumer group and an administrator were promised in the time between two kills."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.committed = -1
        self.asked = 0
        self.rounds = 0
        self.topics: list[str] = []
        self.killed = threading.Event()

    def work(self) -> None:
        """Makes a topic, then commits growing offsets until the broker is killed."""
        settings = {
            "bootstrap.servers": self.bootstrap, "group.id": "keepers", "log_level": 0, "socket.timeout.ms": 2000,
        }  # fmt: skip
        consumer = Consumer(settings)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            self.rounds += 1  # a name of its own each time: a topic that was made without an answer is there already
            name = f"made-{self.rounds}"
            admin.create_topics([NewTopic(name, 1, 1)], request_timeout=2)[name].result(SYNC_PATIENCE_S)
            self.topics.append(name)
            while not self.killed.is_set():
                self.asked += 1
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.asked)], asynchronous=False)
                self.committed = self.asked
        finally:
            consumer.close()

    def keep_until_killed(self) -> None:
        """The same, where the broker may vanish under any call: what was not answered was not promised."""
        try:
            self.work()
        except KafkaException:
            return

    def check(self) -> None:
        """What was promised is there now. Raises AssertionError."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "keepers", "log_level": 0})
        try:
            found = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)[0].offset
            known = set(consumer.list_topics(timeout=30).topics)
        finally:
            consumer.close()
        assert self.committed <= max(found, -1) <= self.asked, f"committed {self.committed}, found {found}"
        assert set(self.topics) <= known, f"topics lost: {sorted(set(self.topics) - known)}"


def read_all(bootstrap: str) -> dict[int, list[tuple[int, int]]]:
    """Every record of the topic: partition -> [(offset, number)], in offset order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0, "check.crcs": True})
    found: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in found}
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in found])
        position = dict.fromkeys(found, 0)
        patience = time.monotonic() + DELIVERY_PATIENCE_S
        while any(position[p] < ends[p] for p in found):
            assert time.monotonic() < patience, f"reading stopped at {position} of {ends}"
            for message in consumer.consume(10_000, timeout=1):
                if message.error():
                    raise KafkaException(message.error())
                partition, offset = message.partition() or 0, message.offset() or 0
                value = message.value() or b""
                assert value.endswith(PAYLOAD), f"partition {partition} offset {offset}: value damaged"
                found[partition].append((offset, int(value.split(b":")[1])))
                position[partition] = offset + 1
    finally:
        consumer.close()
    return found


def until_in_sync(bootstrap: str, name: str = TOPIC) -> None:
    """Returns when every replica of a topic is in sync, and each node of `bootstrap` says so and names the same
    leaders: one that was cut off goes on to say what it knew last."""
    last = time.monotonic() + SYNC_PATIENCE_S
    while True:
        said = [partitions_said_by(node, name) for node in bootstrap.split(",")]
        if said.count(said[0]) == len(said) and all(len(isr) == 3 for _, isr in said[0].values()):
            return
        assert time.monotonic() < last, said
        time.sleep(0.1)


def partitions_said_by(node: str, name: str) -> dict[int, tuple[int, list[int]]]:
    """Leader and in-sync replicas of each partition, as one node says: a new client asks the one that it knows."""
    topic = AdminClient({"bootstrap.servers": node, "log_level": 0}).list_topics(name, timeout=30).topics[name]
    return {each.id: (each.leader, sorted(each.isrs)) for each in topic.partitions.values()}


def make_topic(cluster: HeadraceCluster) -> None:
    """The topic, with a replica on every node."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(cluster.nodes))])[TOPIC].result(SYNC_PATIENCE_S)


def assert_kept(cluster: HeadraceCluster, load: Load, found: dict[int, list[tuple[int, int]]]) -> None:
    """Of a load that has ended, on a cluster that has stopped: nothing acknowledged is lost, doubled or moved, and the
    logs of all nodes are equal. `found` is what `read_all` found."""
    load.assert_kept(found)
    for partition in found:
        logs = {cluster.log_of(node, TOPIC, partition) for node in cluster.nodes}
        assert len(logs) == 1, f"partition {partition}: the replicas differ"


def committed_offset(consumer: Consumer, place: TopicPartition, patience_s: float) -> tuple[float, int]:
    """What a group has committed, below 0 for nothing, and when it was asked for.

    Asked again while the coordinator moves: librdkafka hands these errors out, and calls none of them retriable.
    """
    last = time.monotonic() + patience_s
    while True:
        asked_at = time.monotonic()
        try:
            return asked_at, consumer.committed([place], patience_s)[0].offset
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_MOVES or asked_at > last:
                raise
        time.sleep(0.02)
