"""Three brokers, seen by clients that nobody changed: what replicas of a partition do together."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.waiting import until

import headrace.testing
from headrace.broker.broker import Broker
from headrace.testing import TestCluster

PATIENCE_S = 60.0
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = {1: "a", 2: "b", 3: "c"}


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster() as running:
        yield running


@pytest.fixture(scope="module")
def racked() -> Iterator[TestCluster]:
    """Three nodes in three racks, and consumers read in their own."""
    nodes = {node: {"broker.rack": rack} for node, rack in RACKS.items()}
    with headrace.testing.cluster(settings={"replica.selector.class": RACK_AWARE}, nodes=nodes) as running:
        yield running


def filled(cluster: TestCluster, topic: str, records: int) -> AdminClient:
    """A topic of one partition on three nodes with so many records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(records):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    return admin


def start_of(cluster: TestCluster, node: int, topic: str) -> int:
    def look(inside: Broker) -> int:
        replica = inside.replicas.held((topic, 0))
        return -1 if replica is None else replica.log.log_start_offset

    return cluster.nodes[node].call(look)


def all_in_sync(cluster: TestCluster, topic: str) -> bool:
    node = next(node for node in cluster.nodes.values() if node.is_running)
    found = node.inside.image.topics.partition(topic, 0)
    return found is not None and len(found.isr) == len(found.replicas)


def test_deleted_records_are_gone_on_every_node_that_runs_and_stay_so(three: TestCluster) -> None:
    admin = filled(three, "deleted", 10)
    leader = three.leader("deleted", 0)
    gone = admin.delete_records([ck.TopicPartition("deleted", 0, 4)])
    assert [each.result(60).low_watermark for each in gone.values()] == [4]
    assert [start_of(three, node, "deleted") for node in three.nodes] == [4, 4, 4]
    away = next(node for node in three.nodes if node != leader)
    three.kill(away)
    gone = admin.delete_records([ck.TopicPartition("deleted", 0, 7)])
    assert [each.result(60).low_watermark for each in gone.values()] == [7]
    three.restart(away)
    until(lambda: start_of(three, away, "deleted") == 7)
    three.restart(leader)
    consumer = ck.Consumer({"bootstrap.servers": three.bootstrap, "group.id": "g", "log_level": 0})
    try:
        assert consumer.get_watermark_offsets(ck.TopicPartition("deleted", 0), 60) == (7, 10)
    finally:
        consumer.close()
    until(lambda: [start_of(three, node, "deleted") for node in three.nodes] == [7, 7, 7])


def read_from_followers(cluster: TestCluster) -> dict[int, int]:
    """The bytes that consumers have read of what each node follows."""
    return {
        id_: node.call(lambda inside: inside.fetches.follower_bytes.value)
        for id_, node in cluster.nodes.items()
        if node.is_running
    }


def consume(consumer: ck.Consumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    last = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < last:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            got.append(message.value() or b"")
    return got


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_librdkafka_reads_from_the_follower_in_its_rack_also_when_nodes_go(racked: TestCluster, isolation: str) -> None:
    topic = f"near-{isolation}"
    filled(racked, topic, 50)
    leader = racked.leader(topic, 0)
    near, other = (node for node in racked.nodes if node != leader)
    before = read_from_followers(racked)
    settings = {
        "bootstrap.servers": racked.bootstrap,
        "group.id": "near",
        "client.rack": RACKS[near],
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }
    consumer = ck.Consumer(settings)
    producer = ck.Producer({"bootstrap.servers": racked.bootstrap, "acks": "all", "log_level": 0})
    try:
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
        assert consume(consumer, 50) == [b"%d" % number for number in range(50)]
        after = read_from_followers(racked)
        assert after[near] > before[near] and (after[leader], after[other]) == (before[leader], before[other])
        for gone in (near, leader):  # its replica goes, and then whoever leads
            racked.stop(gone)
            producer.produce(topic, b"without %d" % gone)
            assert producer.flush(60) == 0
            assert consume(consumer, 1) == [b"without %d" % gone]
            racked.restart(gone)
            until(lambda: all_in_sync(racked, topic))
    finally:
        consumer.close()
