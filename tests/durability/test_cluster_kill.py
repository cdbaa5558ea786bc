"""Brokers of a cluster of three killed with SIGKILL at random, one after the other, under load: nothing acknowledged is
lost, doubled or moved, and in the end the logs of all three are equal."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from durability.promises import PARTITIONS, TOPIC, Load, Promises, read_all, until_in_sync
from peers.cluster import HeadraceCluster

UPTIME_MAX_S = 2.0
FEWER = 6
"""A round takes about so many times as long as that of one broker."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1])
def test_what_was_acknowledged_survives_kills_of_any_node(
    tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(seed)
    settings = {"log.segment.bytes": str(1 << 20), "offsets.topic.num.partitions": "3"}
    with HeadraceCluster(tmp_path, settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        promises = Promises(cluster.bootstrap)
        with Load(cluster.bootstrap, "load") as load:
            for _ in range(max(1, request.config.getoption("--kills") // FEWER)):
                promises.killed.clear()
                worker = threading.Thread(target=promises.keep_until_killed)
                worker.start()
                time.sleep(rng.uniform(0.02, UPTIME_MAX_S))  # the moment of the kill is what is drawn
                victim = cluster.nodes[rng.choice(sorted(cluster.nodes))]
                victim.kill()
                promises.killed.set()
                victim.start()
                worker.join()
                promises.check()
        found = read_all(cluster.bootstrap)
        until_in_sync(cluster.bootstrap)
    assert load.failed == []
    assert len(load.acknowledged) == load.sent > 0
    assert promises.committed > 0 and promises.topics
    for partition, records in found.items():
        numbers = [number for _, number in records]
        assert numbers == list(range(partition, load.sent, PARTITIONS)), f"partition {partition}: lost, doubled, moved"
        assert all(load.acknowledged[partition, offset] == number for offset, number in records)
        logs = {cluster.log_of(node, TOPIC, partition) for node in cluster.nodes}
        assert len(logs) == 1, f"partition {partition}: the replicas differ"
