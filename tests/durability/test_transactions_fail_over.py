"""A transactional client on three brokers, whose coordinator is killed again and again: each transaction is seen as a
whole and once, or not at all."""

from __future__ import annotations

import time

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from peers.link import Link

import headrace.testing
from headrace.testing import TestCluster
from headrace.wire.messages import k19_create_topics as k19

pytestmark = pytest.mark.slow

TOPIC = "whole"
PARTITIONS = 3
TRANSACTIONS = 60
KILL_EVERY = 15
PATIENCE_S = 60.0


def create(cluster: TestCluster) -> None:
    topic = k19.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
    with Link(cluster.nodes[1].port) as link:
        assert link.ask(k19.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code == 0


def transact(producer: Producer, number: int) -> None:
    """Writes one transaction to every partition; comes back when it is known to be committed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline
        try:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"%d" % number, partition=partition)
            commit(producer, deadline)
            return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(PATIENCE_S)


def commit(producer: Producer, deadline: float) -> None:
    while True:
        try:
            producer.commit_transaction(PATIENCE_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def read(cluster: TestCluster, count: int) -> list[tuple[int, int]]:
    """(partition, transaction) of each committed record, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [(message.partition() or 0, int(message.value() or b"-1")) for message in consumer.consume(500, 0.5)]
    found += [(message.partition() or 0, int(message.value() or b"-1")) for message in consumer.consume(1, 1.0)]
    consumer.close()
    return found


def test_each_transaction_is_seen_once_and_whole() -> None:
    with headrace.testing.cluster(settings={"transaction.state.log.num.partitions": "1"}) as cluster:
        create(cluster)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "one", "linger.ms": 0, "log_level": 2}
        )
        producer.init_transactions(PATIENCE_S)
        for number in range(TRANSACTIONS):
            transact(producer, number)
            if number % KILL_EVERY == KILL_EVERY - 1:
                killed = cluster.leader("__transaction_state", 0)
                cluster.kill(killed)
                cluster.leader(TOPIC, 0)
                transact(producer, TRANSACTIONS + number)
                cluster.restart(killed)
        extra = [TRANSACTIONS + number for number in range(TRANSACTIONS) if number % KILL_EVERY == KILL_EVERY - 1]
        wanted = sorted([*range(TRANSACTIONS), *extra])
        found = read(cluster, PARTITIONS * len(wanted))
        for partition in range(PARTITIONS):
            assert sorted(number for index, number in found if index == partition) == wanted
