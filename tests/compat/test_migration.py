"""Three brokers of Apache Kafka become ours one by one under load, and then Kafka's again: `docs/migration.md`. At work
are a producer, a producer of transactions, and a consumer group of each protocol."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import PARTITIONS, TOPIC, Load, read_all
from peers.cluster import HeadraceCluster
from peers.moved import STATE, Transacting

from headrace.wire.batch import iter_headers

EVERY = (1, 2, 3)
SETTLED = "settled"
"""A topic with transactions that ended before the first node was replaced."""
PATIENCE_S = 60.0
READ_ON_S = 20.0
UNSERVED = "features are finalized that this broker preserves and does not serve yet"


class Members:
    """A consumer group of one member, which commits what it has read, and what it was promised. The classic `protocol`
    or KIP-848's (`consumer`)."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self.read: Counter[tuple[int, int]] = Counter()
        self.committed: dict[int, int] = {}
        self.failed: list[str] = []
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap, "group.id": f"movers-{protocol}", "group.protocol": protocol,
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0,
        }  # fmt: skip
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"members-{protocol}")

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.subscribe([TOPIC])
            while not self._stop.is_set():
                for message in consumer.consume(5_000, timeout=0.1):
                    if message.error() is None:
                        self.read[message.partition() or 0, message.offset() or 0] += 1
                self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        reached = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
        if not reached:
            return
        try:
            for place in consumer.commit(offsets=reached, asynchronous=False) or ():
                if place.error is None:
                    self.committed[place.partition] = place.offset
        except KafkaException as error:  # while a coordinator moves; what was not answered was not promised
            self.failed.append(str(error))

    def wait_for(self, records: int) -> None:
        """Returns when so many have been read. Raises AssertionError where they never are."""
        last = time.monotonic() + READ_ON_S
        while len(self.read) < records:
            assert time.monotonic() < last, f"{len(self.read)} of {records} records were read"
            time.sleep(0.05)

    def stored(self) -> dict[int, int]:
        """The committed offsets as the group's coordinator has them."""
        consumer = Consumer(self._settings)
        try:
            asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
            return {place.partition: place.offset for place in consumer.committed(asked, timeout=PATIENCE_S)}
        finally:
            consumer.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


def write_transactions(bootstrap: str) -> None:
    """Three transactions, of which the second is aborted; the transactional id is then never used again."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "settled", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    commit, abort = producer.commit_transaction, producer.abort_transaction
    for number, end in enumerate((commit, abort, commit)):
        producer.begin_transaction()
        for index in range(10):
            producer.produce(SETTLED, b"%d-%d" % (number, index))
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)


def read_committed(bootstrap: str) -> list[bytes]:
    """What the transactions have left, as a consumer of committed records sees it."""
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap, "group.id": "settled", "isolation.level": "read_committed",
        "enable.partition.eof": True, "log_level": 0,
    }  # fmt: skip
    consumer = Consumer(settings)
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(SETTLED, 0, 0)])
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


class Watch:
    """What an operator looks at between two steps, and which of our nodes have led partitions and the quorum."""

    def __init__(self, cluster: HeadraceCluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.led: set[int] = set()

    def create(self) -> None:
        topics = [NewTopic(TOPIC, PARTITIONS, 3), NewTopic(SETTLED, 1, 3)]
        for made in self._admin.create_topics(topics).values():
            made.result(PATIENCE_S)

    def until_all_in_sync(self) -> None:
        """Every partition of every topic has all of its replicas in sync."""
        last = time.monotonic() + PATIENCE_S
        while behind := self._behind():
            assert time.monotonic() < last, behind
            time.sleep(0.1)

    def until_each_leads(self) -> None:
        """Leadership goes back to the first replica of each partition: each node is the first of one."""
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        self._admin.elect_leaders(ElectionType.PREFERRED, places).result(PATIENCE_S)
        last = time.monotonic() + PATIENCE_S
        while self.led != set(EVERY):
            self._behind()
            assert time.monotonic() < last, self.led
            time.sleep(0.1)

    def _behind(self) -> list[str]:
        topics = self._admin.list_topics(timeout=30).topics.values()
        found = [(topic.topic, each) for topic in topics for each in topic.partitions.values()]
        leaders = {each.leader for name, each in found if name == TOPIC}
        self.led |= leaders - self._cluster.kafkas
        return [f"{name}-{each.id}: {each.isrs}" for name, each in found if len(each.isrs) < len(EVERY)]


def is_controller(cluster: HeadraceCluster, node: int) -> bool:
    """Whether a node of ours has said that it leads the quorum."""
    return "this node is the active controller" in cluster.nodes[node].log.read_text()


def assert_equal_logs(cluster: HeadraceCluster, topics: Collection[tuple[str, int]]) -> None:
    for name, partition in topics:
        logs = {cluster.log_of(node, name, partition) for node in EVERY}
        assert len(logs) == 1, f"{name}-{partition}: the replicas differ"


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fresh", "dynamic"),
    [
        pytest.param(False, False, id="in place", marks=pytest.mark.soak),
        pytest.param(True, False, id="fresh directories", marks=pytest.mark.soak),
        pytest.param(False, True, id="in place, voters in the metadata", marks=pytest.mark.soak),
        pytest.param(True, True, id="fresh directories, other voters", marks=pytest.mark.soak),
    ],
)
def test_there_and_back(tmp_path: Path, fresh: bool, dynamic: bool) -> None:
    settings = {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": str(PARTITIONS),
        "transaction.state.log.num.partitions": "1",
        "log.segment.bytes": str(1 << 20),
    }
    with HeadraceCluster(tmp_path, settings, kafkas=EVERY, dynamic=dynamic) as cluster:
        watch = Watch(cluster)
        watch.create()
        write_transactions(cluster.bootstrap)
        settled = [b"%d-%d" % (number, index) for number in (0, 2) for index in range(10)]
        assert read_committed(cluster.bootstrap) == settled
        groups = [Members(cluster.bootstrap, protocol) for protocol in ("classic", "consumer")]
        transacting = Transacting(cluster.bootstrap, "transacted")
        with groups[0], groups[1], transacting, Load(cluster.bootstrap, "load") as load:
            for members in groups:
                members.wait_for(1_000)
            for node in EVERY:
                cluster.replace(node, fresh=fresh)
                watch.until_all_in_sync()
            assert cluster.kafkas == set()
            watch.until_each_leads()
            assert read_committed(cluster.bootstrap) == settled
            ours = set(EVERY)
            controllers = {node for node in ours if is_controller(cluster, node)}
            said = [cluster.nodes[node].log.read_text() for node in EVERY]
            for node in EVERY:
                cluster.replace(node, fresh=fresh)
                watch.until_all_in_sync()
                controllers |= {each for each in ours if is_controller(cluster, each)}
            load.stop()
            for members in groups:
                members.wait_for(load.sent)
        stored = [members.stored() for members in groups]
        found = read_all(cluster.bootstrap)
        transacting.check(cluster.bootstrap)
        watch.until_all_in_sync()
    load.assert_kept(found)
    for members in groups:
        if not members.failed:  # a member whose commit fails begins again where the last one succeeded
            assert set(members.read.values()) == {1}, "the group reads every record once"
    for partition, records in found.items():
        for members, places in zip(groups, stored, strict=True):
            assert members.committed[partition] <= places[partition] <= len(records)
        epochs = {header.partition_leader_epoch for _, header in iter_headers(cluster.log_of(1, TOPIC, partition))}
        assert len(epochs) > 1, "more than one leader wrote"
    assert_equal_logs(cluster, [(SETTLED, 0), STATE, *((TOPIC, partition) for partition in range(PARTITIONS))])
    assert controllers, "one of ours led the quorum"
    assert all(UNSERVED in text and "defect" not in text for text in said)
