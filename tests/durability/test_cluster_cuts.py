"""The ways between nodes cut, one way and both, slow and breaking, under load from clients that reach every node:
nothing acknowledged is lost, doubled or moved, and the logs of all nodes are equal in the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from durability.promises import TOPIC, Load, assert_kept, make_topic, read_all, until_in_sync
from peers.cluster import ClusterWithWays
from peers.waiting import until

SESSION_S = 3.0
SETTINGS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "2000",
    "offsets.topic.num.partitions": "1",
}
SLOW_S = 0.05


def leader_of(cluster: ClusterWithWays, asked: int = 1) -> int:
    """Who leads a partition, as a node says."""
    admin = AdminClient({"bootstrap.servers": cluster.nodes[asked].bootstrap, "log_level": 0})
    return admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions[0].leader


def a_leader_alone(cluster: ClusterWithWays, rng: random.Random, load: Load) -> None:
    """K-15489: its clients reach it; the two others go on."""
    alone = leader_of(cluster)
    cluster.ways.cut_off(alone)
    time.sleep(1.5 * SESSION_S)
    load.goes_on()
    other = next(node for node in cluster.nodes if node != alone)
    until(lambda: leader_of(cluster, asked=other) != alone, "another one leads")


def a_leader_unheard(cluster: ClusterWithWays, rng: random.Random, load: Load) -> None:
    """It hears the others, and none of them hears it."""
    leader = leader_of(cluster)
    cluster.ways.closed |= {(leader, other) for other in cluster.nodes if other != leader}
    time.sleep(1.5 * SESSION_S)
    load.goes_on()


def a_deaf_node(cluster: ClusterWithWays, rng: random.Random, load: Load) -> None:
    """It is heard, and hears none of the others."""
    deaf = rng.choice(sorted(cluster.nodes))
    cluster.ways.closed |= {(other, deaf) for other in cluster.nodes if other != deaf}
    time.sleep(1.5 * SESSION_S)
    load.goes_on()


def two_apart(cluster: ClusterWithWays, rng: random.Random, load: Load) -> None:
    """The third reaches both."""
    cluster.ways.cut(*rng.sample(sorted(cluster.nodes), 2))
    time.sleep(1.5 * SESSION_S)


def short_cuts(cluster: ClusterWithWays, rng: random.Random, load: Load) -> None:
    """Shorter than any timeout, in all directions."""
    for _ in range(10):
        cluster.ways.cut(*rng.sample(sorted(cluster.nodes), 2))
        time.sleep(rng.uniform(0.02, 0.3))
        cluster.ways.heal()


def slow_ways(cluster: ClusterWithWays, rng: random.Random, load: Load) -> None:
    cluster.ways.delay(SLOW_S)
    load.goes_on()
    time.sleep(SESSION_S / 2)
    load.goes_on()


def broken_connections(cluster: ClusterWithWays, rng: random.Random, load: Load) -> None:
    for _ in range(10):
        cluster.ways.break_all()
        time.sleep(rng.uniform(0.02, 0.4))
    load.goes_on()


TROUBLES = (a_leader_alone, a_leader_unheard, short_cuts, slow_ways, broken_connections)
LIKE_OTHERS = (a_deaf_node, two_apart)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "trouble",
    [*TROUBLES, *(pytest.param(trouble, marks=pytest.mark.soak) for trouble in LIKE_OTHERS)],
    ids=lambda trouble: trouble.__name__,
)
def test_the_ways_between_nodes_fail(
    tmp_path: Path, trouble: Callable[[ClusterWithWays, random.Random, Load], None]
) -> None:
    rng = random.Random(1)
    with ClusterWithWays(tmp_path, SETTINGS) as cluster:
        make_topic(cluster)
        with Load(cluster.bootstrap, "load", silence_ms=2000) as load:
            load.goes_on()
            trouble(cluster, rng, load)
            cluster.ways.heal()
            until_in_sync(cluster.bootstrap)
            load.goes_on()
        found = read_all(cluster.bootstrap)
        until_in_sync(cluster.bootstrap)
    assert_kept(cluster, load, found)
