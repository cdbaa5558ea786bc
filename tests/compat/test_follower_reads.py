"""Kafka's own consumer in a rack of ours: it reads from the follower there."""

from __future__ import annotations

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.kafka import kafka_tool

import headrace.testing

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RACKS = {1: "a", 2: "b", 3: "c"}
COUNT = 100


def test_the_java_consumer_reads_from_the_follower_in_its_rack() -> None:
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    nodes = {node: {"broker.rack": rack} for node, rack in RACKS.items()}
    with headrace.testing.cluster(settings=selector, nodes=nodes) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("near", 1, 3)])["near"].result(60)
        producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(COUNT):
            producer.produce("near", b"%d" % number)
        assert producer.flush(60) == 0
        leader = cluster.leader("near", 0)
        near = next(node for node in cluster.nodes if node != leader)
        read = kafka_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", "near", "--partition", "0", "--offset", "earliest"),
            *("--max-messages", str(COUNT), "--timeout-ms", "30000"),
            *("--command-property", f"client.rack={RACKS[near]}"),
        ).stdout
        assert [int(line) for line in read.split()] == list(range(COUNT))
        bytes_read = {
            id_: node.call(lambda inside: inside.fetches.follower_bytes.value) for id_, node in cluster.nodes.items()
        }
        assert {id_ for id_, count in bytes_read.items() if count} == {near}
