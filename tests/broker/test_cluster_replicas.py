"""Three brokers, seen by clients that nobody changed: what replicas of a partition do together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace.testing
from headrace.testing import TestCluster

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster() as running:
        yield running


def until(look: Callable[[], object]) -> None:
    last = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < last, "it has not come true in time"
        time.sleep(0.01)


def filled(cluster: TestCluster, topic: str, records: int) -> AdminClient:
    """A topic of one partition on three nodes with so many records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(20)
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(records):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(20) == 0
    return admin


def start_of(cluster: TestCluster, node: int, topic: str) -> int:
    return cluster.nodes[node].call(lambda inside: inside.replicas.held((topic, 0)).log.log_start_offset)


def test_deleted_records_are_gone_on_every_node_that_runs_and_stay_so(three: TestCluster) -> None:
    admin = filled(three, "deleted", 10)
    leader = three.leader("deleted", 0)
    gone = admin.delete_records([ck.TopicPartition("deleted", 0, 4)])
    assert [each.result(20).low_watermark for each in gone.values()] == [4]
    assert [start_of(three, node, "deleted") for node in three.nodes] == [4, 4, 4]
    away = next(node for node in three.nodes if node != leader)
    three.kill(away)
    gone = admin.delete_records([ck.TopicPartition("deleted", 0, 7)])
    assert [each.result(20).low_watermark for each in gone.values()] == [7]
    three.restart(away)
    until(lambda: start_of(three, away, "deleted") == 7)
    three.restart(leader)
    consumer = ck.Consumer({"bootstrap.servers": three.bootstrap, "group.id": "g", "log_level": 0})
    try:
        assert consumer.get_watermark_offsets(ck.TopicPartition("deleted", 0), 20) == (7, 10)
    finally:
        consumer.close()
    until(lambda: [start_of(three, node, "deleted") for node in three.nodes] == [7, 7, 7])
