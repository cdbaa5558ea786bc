"""A topic of very many partitions on three nodes: its creation is one batch of the metadata log, and that is larger
than what is read of the log at a time."""

from __future__ import annotations

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.waiting import until

import headrace.testing
from headrace.broker.broker import Broker
from headrace.testing import TestCluster

PARTITIONS = 1500
PATIENT = {
    "controller.quorum.fetch.timeout.ms": "20000",
    "broker.session.timeout.ms": "30000",
}
"""Three nodes make thousands of files in one process: nobody is to take a busy one for a dead one."""
PATIENCE_S = 60.0


def in_sync(cluster: TestCluster, node: int, count: int) -> bool:
    """Whether all partitions have so many replicas in sync, as a node knows."""
    topic = cluster.nodes[node].inside.image.topics.topics_by_name.get("many")
    return topic is not None and [len(each.isr) for each in topic.partitions] == [count] * PARTITIONS


def end_on(cluster: TestCluster, node: int, index: int) -> int:
    def look(inside: Broker) -> int:
        replica = inside.replicas.held(("many", index))
        return -1 if replica is None else replica.log.end_offset

    return cluster.nodes[node].call(look)


@pytest.mark.slow
def test_a_node_comes_back_to_very_many_partitions() -> None:
    with headrace.testing.cluster(settings=PATIENT) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("many", PARTITIONS, 3)])["many"].result(PATIENCE_S)
        until(lambda: all(in_sync(cluster, node, 3) for node in cluster.nodes))
        led = cluster.nodes[2].inside.image.topics.topics_by_name["many"].partitions
        index = next(each.index for each in led if each.leader == 2)
        cluster.stop(2)
        producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        producer.produce("many", b"while it was away", partition=index)
        assert producer.flush(PATIENCE_S) == 0
        cluster.restart(2)
        until(lambda: all(in_sync(cluster, node, 3) for node in cluster.nodes))
        assert end_on(cluster, 2, index) == 1
