"""Copiers that read, write to all partitions and commit their positions in transactions, while brokers are killed with
SIGKILL at random: a reader of what is committed sees every record once, in order, and at no time anything else.

`--against kafka` runs the same against three nodes of Apache Kafka.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import SYNC_PATIENCE_S, committed_offset, until_in_sync
from peers.cluster import HeadraceCluster
from peers.transacting import insist

SOURCE, SINK = "copied-from", "copied-to"
PARTITIONS = 3
BATCH = 200
PATIENCE_S = 120.0
UPTIME_MAX_S = 2.0
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
QUICK = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


def sink_of(number: int) -> int:
    """The partition that a number is copied to: each copier writes to all of them."""
    return number // PARTITIONS % PARTITIONS


class Copier:
    """Copies one partition for ever, exactly once; ends as its process might, and begins anew, where it is told to or
    has to."""

    def __init__(self, bootstrap: str, partition: int, rng: random.Random) -> None:
        self.bootstrap = bootstrap
        self.place = TopicPartition(SOURCE, partition)
        self.name = f"copier-{partition}"
        self.committed = 0
        """Transactions that were committed, as it was told."""
        self.aborted = 0
        self.lives = 0
        self._rng = rng
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._live()
        except BaseException as error:
            self._error = error

    def _live(self) -> None:
        """One life of a producer: until it may not go on, or its process ends in the middle of a transaction."""
        self.lives += 1
        here = {"bootstrap.servers": self.bootstrap, **QUICK}
        consumer = Consumer(
            {**here, "group.id": self.name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        producer = Producer({**here, "transactional.id": self.name, "linger.ms": 1, "transaction.timeout.ms": 10_000})
        try:
            insist(producer.init_transactions, PATIENCE_S)
            self._go_back(consumer)
            while not self._stop.is_set():
                if not self._transact(consumer, producer):
                    return
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
        finally:
            consumer.close()

    def _go_back(self, consumer: Consumer) -> None:
        """To the position that is committed."""
        _, at = committed_offset(consumer, self.place, PATIENCE_S)
        consumer.assign([TopicPartition(SOURCE, self.place.partition, max(at, 0))])

    def _transact(self, consumer: Consumer, producer: Producer) -> bool:
        """One transaction; False where the process ends within it."""
        messages = [each for each in consumer.consume(BATCH, timeout=0.2) if each.error() is None]
        if not messages:
            return True
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(SINK, message.value(), partition=sink_of(int(message.value() or b"")))
            at = TopicPartition(SOURCE, self.place.partition, (messages[-1].offset() or 0) + 1)
            send = partial(producer.send_offsets_to_transaction, [at], consumer.consumer_group_metadata())
            insist(send, PATIENCE_S)
            chance = self._rng.random()
            if chance < 0.05:
                return False
            if chance < 0.2:
                self._abort(consumer, producer)
            else:
                insist(producer.commit_transaction, PATIENCE_S)
                self.committed += 1
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(consumer, producer)
        return True

    def _abort(self, consumer: Consumer, producer: Producer) -> None:
        insist(producer.abort_transaction, PATIENCE_S)
        self.aborted += 1
        self._go_back(consumer)


class Reader:
    """Reads what is committed all the time, and keeps it."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.count = 0
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", **QUICK}
        )
        self._consumer.assign([TopicPartition(SINK, partition, 0) for partition in range(PARTITIONS)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, timeout=0.2):
                if message.error() is None:
                    self.seen[message.partition() or 0].append(int(message.value() or b""))
                    self.count += 1

    def has(self, count: int) -> None:
        """Returns once so many records are seen."""
        last = time.monotonic() + PATIENCE_S
        while self.count < count:
            assert time.monotonic() < last, f"{self.count} of {count} records are seen"
            time.sleep(0.05)


class Loader:
    """Writes numbers to the source until it is told to stop."""

    def __init__(self, bootstrap: str, source: str = SOURCE) -> None:
        self.sent = 0
        self._source = source
        self._failed: list[object] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, **QUICK})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        assert not self._failed

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(10):
                self._producer.produce(
                    self._source, str(self.sent), partition=self.sent % PARTITIONS,
                    on_delivery=lambda error, _: self._failed.append(error) if error else None,
                )  # fmt: skip
                self.sent += 1
            self._producer.poll(0)
            time.sleep(0.05)
        self._producer.flush(PATIENCE_S)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kafkas",
    [
        pytest.param((), id="three of ours"),
        pytest.param((3,), id="two of ours", marks=[pytest.mark.jvm, pytest.mark.soak]),
        pytest.param((2, 3), id="one of ours", marks=[pytest.mark.jvm, pytest.mark.soak]),
    ],
)
def test_exactly_once_through_kills_of_any_node(
    tmp_path: Path, kafkas: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    rng = random.Random(1)
    if request.config.getoption("--against") == "kafka":
        kafkas = (1, 2, 3)
    with HeadraceCluster(tmp_path, SETTINGS, kafkas=kafkas) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (SOURCE, SINK)]).values():
            made.result(SYNC_PATIENCE_S)
        copiers = [Copier(cluster.bootstrap, partition, random.Random(partition)) for partition in range(PARTITIONS)]
        with Reader(cluster.bootstrap) as reader:
            with copiers[0], copiers[1], copiers[2]:
                with Loader(cluster.bootstrap) as loader:
                    for _ in range(3 * request.config.getoption("--cluster-kills") // 4):
                        time.sleep(rng.uniform(0.02, UPTIME_MAX_S))  # the moment of the kill is what is drawn
                        victim = cluster.nodes[rng.choice(sorted(cluster.nodes))]
                        victim.kill()
                        victim.start()
                reader.has(loader.sent)
            done = [(copier.committed, copier.aborted) for copier in copiers]
            # In a cluster with Apache Kafka a death may take ten seconds, and what is done between them is little.
            assert all(committed for committed, _ in done) and any(aborted for _, aborted in done), done
            until_in_sync(cluster.bootstrap, SINK)
            time.sleep(1.0)  # what came too often would come now
        for partition, seen in reader.seen.items():
            assert sorted(seen) == [number for number in range(loader.sent) if sink_of(number) == partition]
            for source in range(PARTITIONS):
                of_one = [number for number in seen if number % PARTITIONS == source]
                assert of_one == sorted(of_one), f"from {source} to {partition}: moved"
