"""Brokers of a cluster of three killed with SIGKILL at random under load, one after the other and two at a time:
nothing acknowledged is lost, doubled or moved, and in the end the logs of all three are equal."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from durability.promises import Load, Promises, assert_kept, make_topic, read_all, until_in_sync
from peers.cluster import HeadraceCluster

UPTIME_MAX_S = 2.0
DOWN_MAX_S = 1.5
"""How long two nodes stay down, beyond what an acknowledgement takes from the last of them to the producer."""
ON_ITS_WAY_S = 0.5
TWO_DOWN_EVERY = 3
"""A round with two nodes down takes about as long as so many with one."""
SETTINGS = {"log.segment.bytes": str(1 << 20), "offsets.topic.num.partitions": "3"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1])
def test_what_was_acknowledged_survives_kills_of_any_node(
    tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(seed)
    with HeadraceCluster(tmp_path, SETTINGS) as cluster:
        make_topic(cluster)
        promises = Promises(cluster.bootstrap)
        with Load(cluster.bootstrap, "load") as load:
            for _ in range(request.config.getoption("--cluster-kills")):
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
    assert promises.committed > 0 and promises.topics
    assert_kept(cluster, load, found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1])
def test_one_node_of_three_acknowledges_nothing(tmp_path: Path, seed: int, request: pytest.FixtureRequest) -> None:
    rng = random.Random(seed)
    with HeadraceCluster(tmp_path, SETTINGS) as cluster:
        make_topic(cluster)
        with Load(cluster.bootstrap, "load") as load:
            for _ in range(request.config.getoption("--cluster-kills") // TWO_DOWN_EVERY):
                load.goes_on()
                time.sleep(rng.uniform(0.0, UPTIME_MAX_S))
                victims = [cluster.nodes[node] for node in rng.sample(sorted(cluster.nodes), 2)]
                for victim in victims:
                    victim.kill()
                time.sleep(ON_ITS_WAY_S)
                acknowledged = len(load.acknowledged)
                time.sleep(rng.uniform(0.0, DOWN_MAX_S))
                assert len(load.acknowledged) == acknowledged, "one replica alone has acknowledged records"
                for victim in victims:
                    victim.launch()
                for victim in victims:
                    victim.wait()
        found = read_all(cluster.bootstrap)
        until_in_sync(cluster.bootstrap)
    assert_kept(cluster, load, found)
