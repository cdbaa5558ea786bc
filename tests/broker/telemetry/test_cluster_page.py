"""The pages of three nodes: what they say when one is killed, when one is cut off from its leader, and afterwards."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker.telemetry.pages import get
from peers.cluster import HeadraceCluster

import headrace.testing
from headrace.client import admin, moves
from headrace.client.producer import Producer
from headrace.testing import TestCluster

parser = pytest.importorskip("prometheus_client.parser")

PARTITIONS = 3
REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
RAFT = "kafka_server_raftmetrics_"
TOPICS = "kafka_server_brokertopicmetrics_"


class Pages:
    """The pages of those nodes that run, read at one moment. A sample that a node does not show is None."""

    def __init__(self, cluster: TestCluster) -> None:
        self._of: dict[int, dict[tuple[str, frozenset[tuple[str, str]]], float]] = {}
        for node in cluster.nodes.values():
            if node.is_running:
                port = node.inside.monitor.port
                assert port is not None
                families = parser.text_string_to_metric_families(get(port, "/metrics").body.decode())
                samples = [sample for family in families for sample in family.samples]
                self._of[node.id] = {(each.name, frozenset(each.labels.items())): each.value for each in samples}

    def each(self, name: str, **labels: str) -> dict[int, float | None]:
        return {node: page.get((name, frozenset(labels.items()))) for node, page in self._of.items()}

    def shown(self, name: str, **labels: str) -> list[float]:
        return [value for value in self.each(name, **labels).values() if value is not None]

    def at(self, node: int, name: str, **labels: str) -> float:
        value = self.each(name, **labels)[node]
        assert value is not None, (node, name)
        return value

    def sum(self, name: str, **labels: str) -> float:
        return sum(self.shown(name, **labels))


@pytest.fixture
def three() -> Iterator[TestCluster]:
    settings = {"metrics.listener": "127.0.0.1:0", "replica.lag.time.max.ms": "2500"}
    with headrace.testing.cluster(settings=settings) as made:
        yield made


def until(cluster: TestCluster, look: Callable[[Pages], bool], what: str) -> Pages:
    deadline = time.monotonic() + 60
    while not look(pages := Pages(cluster)):
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.02)
    return pages


def write(cluster: TestCluster, count: int = 20, *, acks: int = -1) -> None:
    with cluster.client() as client, Producer(client, acks=acks) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)


def in_order(pages: Pages) -> bool:
    """Nothing lacks, and nobody is missing."""
    lags = [pages.shown("headrace_follower_lag_messages", follower=str(node)) for node in (1, 2, 3)]
    return (
        pages.sum(REPLICAS + "underreplicatedpartitions") == 0
        and pages.shown(CONTROLLER + "offlinepartitionscount") == [0]
        and pages.shown(CONTROLLER + "fencedbrokercount") == [0]
        and pages.shown(CONTROLLER + "activebrokercount") == [3]
        and pages.sum(CONTROLLER + "activecontrollercount") == 1
        and pages.sum("kafka_brokers") == 3
        and not any(lag for each in lags for lag in each)
        and all(lags)
    )


def test_a_killed_node_is_seen_on_the_pages_of_the_others(three: TestCluster) -> None:
    victim = three.controller()
    with three.client() as client:
        admin.create_topic(client, "t", partitions=PARTITIONS)
        admin.create_topic(client, "alone", assignment={0: [victim]})
    write(three)
    before = until(three, in_order, "a cluster in order")
    leaders = before.each(REPLICAS + "leadercount")
    assert all(leaders.values()) and sum(filter(None, leaders.values())) == PARTITIONS + 1
    assert before.sum("kafka_topic_partitions", topic="t") == PARTITIONS
    assert before.each(RAFT + "current_leader") == {1: victim, 2: victim, 3: victim}
    assert before.sum(TOPICS + "replicationbytesin_total") == before.sum(TOPICS + "replicationbytesout_total") > 0
    assert before.sum(TOPICS + "bytesout_total") == 0, "what followers copy no client reads"
    assert before.sum(TOPICS + "messagesin_total", topic="t") == 20
    assert before.sum(TOPICS + "messagesin_total") == 20, "a follower takes what its leader has counted"

    three.kill(victim)
    away = until(
        three,
        lambda pages: (
            pages.sum(REPLICAS + "underreplicatedpartitions") == PARTITIONS
            and pages.shown(CONTROLLER + "offlinepartitionscount") == [1]
            and pages.shown(CONTROLLER + "fencedbrokercount") == [1]
        ),
        "the loss of a node",
    )
    (new_leader,) = set(away.shown(RAFT + "current_leader"))
    assert new_leader != victim
    assert away.each(CONTROLLER + "activecontrollercount")[int(new_leader)] == 1
    assert away.sum(REPLICAS + "leadercount") == PARTITIONS
    assert away.sum("headrace_follower_partitions_out_of_sync", follower=str(victim)) == PARTITIONS
    assert away.sum(REPLICAS + "underminisrpartitioncount") == 0
    assert away.sum(REPLICAS + "atminisrpartitioncount") == PARTITIONS, "two of three are in sync, and have to be"
    write(three)
    behind = until(
        three, lambda pages: pages.sum("headrace_follower_lag_messages", follower=str(victim)) >= 20, "the lag"
    )
    assert max(behind.shown("headrace_quorum_voter_lag_records", voter=str(victim))) > 0

    three.restart(victim)
    until(three, in_order, "a cluster in order again")
    others = set(three.nodes) - {victim}  # its own counter began again

    def expansions(pages: Pages) -> float:
        return sum(pages.at(node, REPLICAS + "isrexpands_total") for node in others)

    joined = expansions(before) + PARTITIONS
    until(three, lambda pages: expansions(pages) >= joined, "each leader that took it in again")


@pytest.mark.slow
def test_a_follower_that_cannot_fetch_shrinks_the_in_sync_set(three: TestCluster) -> None:
    """Its sessions with the controller go on, so that its leader sees it and nobody else."""
    leader, follower = sorted({1, 2, 3} - {three.controller()})
    with three.client() as client:
        admin.create_topic(client, "t", assignment={each: [leader, follower] for each in range(PARTITIONS)})
    write(three)
    before = until(three, in_order_of_two(follower), "both in sync")
    shrinks, expansions = (before.at(leader, REPLICAS + name) for name in ("isrshrinks_total", "isrexpands_total"))
    three.partition(leader, follower)
    write(three, acks=1)
    apart = until(three, lambda pages: pages.sum(REPLICAS + "underminisrpartitioncount") == PARTITIONS, "too few")
    counted = shrinks + PARTITIONS
    until(three, lambda pages: pages.at(leader, REPLICAS + "isrshrinks_total") >= counted, "the shrinking")
    assert apart.shown(CONTROLLER + "fencedbrokercount") == [0]
    assert apart.shown(CONTROLLER + "offlinepartitionscount") == [0]
    three.heal()
    until(three, in_order_of_two(follower), "both in sync again")
    grown = expansions + PARTITIONS
    until(three, lambda pages: pages.at(leader, REPLICAS + "isrexpands_total") >= grown, "the growing")


def test_an_unclean_election_is_counted(three: TestCluster) -> None:
    """The only replica in sync dies, and the other one lacks what was written meanwhile."""
    lost, other = sorted({1, 2, 3} - {three.controller()})
    counter = "kafka_controller_controllerstats_uncleanleaderelections_total"
    with three.client() as client:
        admin.create_topic(client, "t", assignment={0: [lost, other]}, configs={"min.insync.replicas": "1"})
        before = until(three, in_order_of_two(other), "both in sync")
        assert before.shown(counter) == [0, 0, 0]
        three.kill(other)
        until(three, lambda pages: pages.sum(REPLICAS + "underreplicatedpartitions") == 1, "one in sync")
        with Producer(client) as producer:
            producer.send("t", b"lost", partition=0)
        three.kill(lost)
        three.restart(other)
        until(three, lambda pages: pages.shown(CONTROLLER + "fencedbrokercount") == [1], "the other one")
        assert Pages(three).shown(counter) == [0, 0]
        moves.elect_leaders(client, moves.Election.UNCLEAN, [("t", 0)])
        after = until(three, lambda pages: max(pages.shown(counter)) == 1, "the election")
    assert after.each(counter)[three.controller()] == 1


def in_order_of_two(follower: int) -> Callable[[Pages], bool]:
    return lambda pages: (
        pages.sum(REPLICAS + "underreplicatedpartitions") == 0
        and pages.shown("headrace_follower_lag_messages", follower=str(follower)) == [0]
    )


@pytest.mark.slow
def test_brokers_beside_a_controller(tmp_path: Path) -> None:
    """Each kind of node shows what it is."""
    with HeadraceCluster(tmp_path, {"metrics.listener": "127.0.0.1:0"}, size=1, controllers=1) as cluster:
        ports = {
            node: int(re.findall(r"metrics are served .*port=(\d+)", peer.log.read_text())[-1])
            for node, peer in cluster.everybody.items()
        }
        assert {node: get(port, "/readyz").body for node, port in ports.items()} == {1: b"ready\n", 101: b"ready\n"}
        broker, controller = (get(ports[node], "/metrics").body.decode() for node in (1, 101))
    assert f'{RAFT}current_state{{current_state="observer"}} 1.0' in broker
    assert f'{RAFT}current_state{{current_state="leader"}} 1.0' in controller
    assert all(f"\n{RAFT}current_leader 101.0\n" in page for page in (broker, controller))
    assert f"\n{CONTROLLER}activecontrollercount 0.0\n" in broker
    assert f"\n{REPLICAS}leadercount 0.0\n" in broker
    assert f"\n{CONTROLLER}activecontrollercount 1.0\n" in controller
    assert f"\n{CONTROLLER}activebrokercount 1.0\n" in controller
    assert '\nheadrace_quorum_observer_lag_records{observer="1"} ' in controller
    assert REPLICAS not in controller and TOPICS not in controller


def test_each_node_of_a_test_has_its_port() -> None:
    with headrace.testing.cluster(2) as quiet:
        assert [node.inside.monitor.port for node in quiet.nodes.values()] == [None, None]
    with headrace.testing.cluster(2, {"metrics.listener": "127.0.0.1:0"}) as made:
        ports = [node.inside.monitor.port for node in made.nodes.values()]
        assert len({*ports, None}) == 3
        assert [get(port, "/readyz").status for port in ports if port is not None] == [200, 200]
