"""Transactional appends and reads of real clients on a cluster of real processes that are killed with SIGKILL: what
they did and saw is judged by the checker of the simulator, in the manner of Elle.

librdkafka writes, which speaks `transaction.version` 0, or half of the writers are Java's, which speak 2 and are killed
themselves. All reads are librdkafka's.
"""

from __future__ import annotations

import random
import threading
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import committed_offset
from peers.cluster import HeadraceCluster
from peers.transacting import JavaProducer, insist

from headrace.client import Client
from headrace.client.describe import describe_features
from headrace.client.routing import TRANSACTION
from headrace.sim.checkers.isolation import (
    Append,
    Appends,
    Consumed,
    Fate,
    Key,
    OffsetRead,
    Read,
    Transaction,
    anomalies,
)
from headrace.wire.messages.k65_describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

TOPIC: Final = "lists"
PATIENCE_S: Final = 120.0
UPTIME_MAX_S: Final = 2.0
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
QUICK: Final = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Worker:
    """A thread that works until it is told to stop; what it raised comes out of the `with` block."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self.stopped.is_set():
                self.live()
        except BaseException as error:
            self._error = error

    def live(self) -> None:
        """What it does, again and again."""
        raise NotImplementedError


class Lists:
    """What all workers share."""

    def __init__(self, bootstrap: str, keys: int) -> None:
        self.here: dict[str, Any] = {"bootstrap.servers": bootstrap, **QUICK}
        self.keys: list[Key] = [(TOPIC, index) for index in range(keys)]
        self.history = Appends()
        self.numbers = count()

    def consumer(self, group: str) -> Consumer:
        """One that reads what is committed."""
        return Consumer(
            {**self.here, "group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
        )

    def polled(self, consumer: Consumer, positions: dict[int, int], wait_s: float) -> list[Read]:
        """One poll, as reads of each key that it moved on."""
        found: dict[int, list[tuple[int, int]]] = {}
        for message in consumer.consume(500, timeout=wait_s):
            if message.error() is None:
                at = (message.offset() or 0, int(message.value() or b"-1"))
                found.setdefault(message.partition() or 0, []).append(at)
        reads = []
        for index, values in found.items():
            reads.append(Read((TOPIC, index), positions[index], values[-1][0] + 1, values))
            positions[index] = values[-1][0] + 1
        self.history.reads += reads
        return reads


class Appender(Worker):
    """Appends numbers to some keys in each transaction. Some it aborts, some it leaves open for its next life."""

    def __init__(self, lists: Lists, name: str, rng: random.Random, *, is_java: bool = False) -> None:
        super().__init__()
        self.lists = lists
        self.name = name
        self.rng = rng
        self.is_java = is_java
        self.committed = 0

    def live(self) -> None:
        """One life of a producer."""
        own = {"transactional.id": self.name, "linger.ms": 0, "transaction.timeout.ms": 10_000}
        settings = {**self.lists.here, **own}
        producer = JavaProducer(settings) if self.is_java else Producer(settings)
        try:
            producer.init_transactions(PATIENCE_S)
            self.begin()
            while not self.stopped.is_set() and self._transact(producer):
                pass
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
        finally:
            if isinstance(producer, JavaProducer):
                producer.kill()

    def begin(self) -> None:
        """What it does once its former life can do nothing more."""

    def fill(self, producer: Producer | JavaProducer, transaction: Transaction) -> bool:
        """What belongs into a transaction; False where there is nothing."""
        keys = self.rng.sample(self.lists.keys, self.rng.randint(1, min(4, len(self.lists.keys))))
        for key in keys:
            self.append(producer, transaction, key)
        return True

    def append(self, producer: Producer | JavaProducer, transaction: Transaction, key: Key) -> None:
        """One number."""
        append = Append(key, next(self.lists.numbers), time.monotonic())
        transaction.appends.append(append)

        def acknowledged(error: object, _: object) -> None:
            if error is None:
                append.acknowledged_at = time.monotonic()

        producer.produce(key[0], b"%d" % append.value, partition=key[1], on_delivery=acknowledged)

    def _transact(self, producer: Producer | JavaProducer) -> bool:
        """One transaction; False where the process ends within it."""
        transaction = Transaction(f"{self.name}:{next(self.lists.numbers)}", time.monotonic())
        self.lists.history.transactions.append(transaction)
        producer.begin_transaction()
        try:
            is_filled = self.fill(producer, transaction)
            chance = self.rng.random()
            if chance < 0.01:
                return False
            if chance < 0.15 or not is_filled:
                self._abort(producer, transaction)
                return True
            transaction.fate = Fate.UNKNOWN
            insist(producer.commit_transaction, PATIENCE_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(producer, transaction)
            return True
        transaction.fate, transaction.ended_at = Fate.COMMITTED, time.monotonic()
        self.committed += 1
        return True

    def _abort(self, producer: Producer | JavaProducer, transaction: Transaction) -> None:
        producer.abort_transaction(PATIENCE_S)
        transaction.fate, transaction.ended_at = Fate.ABORTED, time.monotonic()
        self.begin()


class Copier(Appender):
    """Consumes a key, appends to others for it, and commits how far it came in the same transaction."""

    def __init__(self, lists: Lists, name: str, rng: random.Random, source: Key, *, is_java: bool = False) -> None:
        super().__init__(lists, name, rng, is_java=is_java)
        self.source = source
        self.others = [key for key in lists.keys if key != source]
        self._consumer = lists.consumer(name)
        self._positions = {source[1]: 0}

    def begin(self) -> None:
        """Goes back to what is committed."""
        read = committed(self._consumer, self.name, self.source)
        self.lists.history.offset_reads.append(read)
        self._positions[self.source[1]] = max(read.offset, 0)
        self._consumer.assign([TopicPartition(*self.source, max(read.offset, 0))])

    def fill(self, producer: Producer | JavaProducer, transaction: Transaction) -> bool:
        """See Appender.fill."""
        reads = self.lists.polled(self._consumer, self._positions, 0.1)
        if not reads:
            return False
        transaction.reads += reads
        transaction.consumed.append(Consumed(self.name, self.source, reads[0].first, reads[-1].after))
        self.append(producer, transaction, self.rng.choice(self.others))
        at = TopicPartition(*self.source, reads[-1].after)
        producer.send_offsets_to_transaction([at], self._consumer.consumer_group_metadata(), PATIENCE_S)
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._consumer.close()


class Poller(Worker):
    """Reads what is committed of all keys."""

    def __init__(self, lists: Lists, name: str) -> None:
        super().__init__()
        self.lists = lists
        self.positions = dict.fromkeys(range(len(lists.keys)), 0)
        self._consumer = lists.consumer(name)
        self._consumer.assign([TopicPartition(*key, 0) for key in lists.keys])

    def live(self) -> None:
        """One poll."""
        self.lists.polled(self._consumer, self.positions, 0.2)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._consumer.close()


def committed(consumer: Consumer, group: str, key: Key) -> OffsetRead:
    """A group's offset, once it is stable."""
    asked_at, offset = committed_offset(consumer, TopicPartition(*key), PATIENCE_S)
    return OffsetRead(group, key, asked_at, time.monotonic(), max(offset, -1))


def run(tmp_path: Path, *, keys: int, transactions: int, kills_at: int, seed: int, with_java: bool = False) -> None:
    """So many committed transactions, with a kill after each `kills_at` of them; then the verdict. `with_java` half of
    the appenders and of the copiers are Java's."""
    rng = random.Random(seed)
    with HeadraceCluster(tmp_path, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, keys, 3)])[TOPIC].result(PATIENCE_S)
        lists = Lists(cluster.bootstrap, keys)
        workers = [
            Appender(lists, f"appender-{number}", random.Random(number), is_java=with_java and number % 2 == 1)
            for number in range(4)
        ]
        copiers = [
            Copier(
                lists, f"copier-{number}", random.Random(number), lists.keys[number], is_java=with_java and number == 1
            )
            for number in range(2)
        ]
        everybody = [*workers, *copiers]
        with Poller(lists, "poller"):
            with everybody[0], everybody[1], everybody[2], everybody[3], everybody[4], everybody[5]:
                while (done := sum(each.committed for each in everybody)) < transactions:
                    last = time.monotonic() + PATIENCE_S
                    while sum(each.committed for each in everybody) < done + kills_at:
                        assert time.monotonic() < last, "nobody gets on"
                        time.sleep(0.02)
                    time.sleep(rng.uniform(0.0, min(UPTIME_MAX_S, kills_at / 100)))  # the moment is what is drawn
                    victim = cluster.nodes[rng.choice(sorted(cluster.nodes))]
                    victim.kill()
                    victim.start()
        settle(lists, copiers)
        with Client(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            assert describe_features(client)["transaction.version"] == 2
            for each in everybody:
                assert raises_epochs(client, each) is each.is_java, each.name
    found = anomalies(lists.history)
    assert found == [], f"{len(found)} anomalies"
    assert all(each.committed for each in everybody)


def raises_epochs(client: Client, appender: Appender) -> bool:
    """Whether its epoch is one for each transaction (`transaction.version` 2), and not one for each life."""
    steps = client.router.at_coordinator(
        appender.name,
        DescribeTransactionsRequest([appender.name]),
        DescribeTransactionsResponse,
        lambda response: response.transaction_states[0].error_code,
        kind=TRANSACTION,
    )
    return client.run(steps).transaction_states[0].producer_epoch >= appender.committed


def settle(lists: Lists, copiers: list[Copier]) -> None:
    """Whatever was left open is aborted, and everything is read from its start; every group says where it is."""
    judge = lists.consumer("judge")
    positions = dict.fromkeys(range(len(lists.keys)), 0)
    judge.assign([TopicPartition(*key, 0) for key in lists.keys])
    plain = Consumer({**lists.here, "group.id": "edges", "isolation.level": "read_uncommitted"})
    stable = lists.consumer("stable edges")
    last = time.monotonic() + PATIENCE_S
    for key in lists.keys:
        while True:
            end = plain.get_watermark_offsets(TopicPartition(*key), PATIENCE_S)[1]
            if stable.get_watermark_offsets(TopicPartition(*key), PATIENCE_S)[1] == end:
                break
            assert time.monotonic() < last, f"a transaction on {key} hangs"
            time.sleep(0.1)
    quiet = 0
    while quiet < 4:
        quiet = 0 if lists.polled(judge, positions, 0.5) else quiet + 1
    for copier in copiers:
        consumer = lists.consumer(copier.name)
        lists.history.offset_reads.append(committed(consumer, copier.name, copier.source))
        consumer.close()
    for consumer in (judge, plain, stable):
        consumer.close()
    lists.history.is_settled = True


@pytest.mark.soak
def test_transactions_keep_their_promises_through_a_kill(tmp_path: Path) -> None:
    run(tmp_path, keys=4, transactions=100, kills_at=50, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_transactions_keep_their_promises_through_many_kills(tmp_path: Path) -> None:
    run(tmp_path, keys=20, transactions=20_000, kills_at=400, seed=2)


@pytest.mark.soak
@pytest.mark.jvm
@pytest.mark.timeout(600)
def test_transactions_of_java_keep_them_through_a_kill(tmp_path: Path) -> None:
    run(tmp_path, keys=4, transactions=200, kills_at=100, seed=3, with_java=True)


@pytest.mark.soak
@pytest.mark.jvm
@pytest.mark.timeout(3600)
def test_transactions_of_java_keep_them_through_many_kills(tmp_path: Path) -> None:
    run(tmp_path, keys=20, transactions=20_000, kills_at=400, seed=4, with_java=True)
