"""Clients in every language, as they come, while the node that they write to and their group's coordinator are killed.

`--against kafka` runs the same against three nodes of Apache Kafka.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers import programs
from peers.cluster import HeadraceCluster
from peers.failing_over import PATIENCE_S, Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 3
NODES = (1, 2, 3)
OFFSETS = "__consumer_offsets"
SETTINGS = {"offsets.topic.num.partitions": "1"}
NOT_IDEMPOTENT = {"node"}
"""kafkajs sends again without a sequence, so that a record may be there twice."""
UPTIME_MAX_S = 2.0
SOAK_DEATHS = 20


def _marks(name: str) -> list[pytest.MarkDecorator]:
    """What is built with another language's tools is for those who have them."""
    if name in programs.TOOLS:
        return [pytest.mark.soak]
    return [pytest.mark.jvm] if name == "java" else []


CLIENTS = [pytest.param(name, marks=_marks(name)) for name in programs.NAMES]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[HeadraceCluster]:
    kafkas = NODES if request.config.getoption("--against") == "kafka" else ()
    cluster = HeadraceCluster(tmp_path_factory.mktemp("three"), SETTINGS, kafkas=kafkas)
    with cluster:
        yield cluster


def leader_of(cluster: HeadraceCluster, topic: str) -> int:
    """The leader of partition 0."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    last = time.monotonic() + PATIENCE_S
    while (leader := admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader) not in cluster.nodes:
        assert time.monotonic() < last, f"{topic}-0 has no leader"
        time.sleep(0.05)
    return int(leader)


def until_in_sync(cluster: HeadraceCluster, *topics: str) -> None:
    """Returns when every replica is in sync: then any node may be killed next."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    last = time.monotonic() + PATIENCE_S

    def behind(topic: str) -> bool:
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
        return any(len(partition.isrs) < len(NODES) for partition in partitions.values())

    while any(map(behind, topics)):
        assert time.monotonic() < last, f"not in sync: {topics}"
        time.sleep(0.05)


def program(cluster: HeadraceCluster, name: str) -> Program:
    """A program that is not started, and its topic. Skips the test by name where it cannot be had."""
    why = programs.missing(name)
    if why:
        pytest.skip(why)
    topic = f"{name}-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, len(NODES))])[topic].result(PATIENCE_S)
    return Program(name, cluster.bootstrap, topic, PARTITIONS, cluster.directory / f"{topic}.err")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_goes_on_when_its_leader_and_its_coordinator_are_killed(three: HeadraceCluster, name: str) -> None:
    with program(three, name) as client:
        client.goes_on()
        for topic in (client.topic, OFFSETS):
            until_in_sync(three, client.topic, OFFSETS)
            victim = three.nodes[leader_of(three, topic)]
            victim.kill()
            client.goes_on()
            victim.start()
            client.goes_on()
        client.finish()
    client.check(once=name not in NOT_IDEMPOTENT)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_goes_on_through_many_deaths(three: HeadraceCluster, name: str) -> None:
    """Any node, at any moment, killed or stopped in order, and back at once."""
    rng = random.Random(name)
    with program(three, name) as client:
        for _ in range(SOAK_DEATHS):
            client.goes_on()
            time.sleep(rng.uniform(0.0, UPTIME_MAX_S))  # the moment is what is drawn
            victim = three.nodes[rng.choice(NODES)]
            rng.choice([victim.kill, victim.stop])()
            victim.start()
        client.goes_on()
        client.finish()
    client.check(once=name not in NOT_IDEMPOTENT)
