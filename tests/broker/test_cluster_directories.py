"""Three brokers, and what becomes of the folders of replicas: directories that fail, and topics that go meanwhile."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.waiting import until

import headrace.testing
from headrace.broker.broker import Broker
from headrace.client.moves import move_partitions
from headrace.testing import TestCluster

NODES = (1, 2, 3)
PARTITIONS = 8


def admin_of(cluster: TestCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def fill(cluster: TestCluster, topic: str, partitions: int, records: int, size: int = 1) -> None:
    """So many records in each partition, each confirmed."""
    failed: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 1}
    producer = ck.Producer(settings)
    for number in range(records):
        for partition in range(partitions):
            producer.produce(
                topic,
                b"%d" % number * size,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed


def in_sync(cluster: TestCluster, topic: str) -> list[set[int]] | None:
    """The in-sync replicas of each partition, as the active controller has them."""
    found = cluster.nodes[cluster.controller()].inside.image.topics.by_name(topic)
    return None if found is None else [set(each.isr) for each in found.partitions]


def end_of(cluster: TestCluster, node: int, topic: str, index: int) -> int:
    """Where the log of a replica ends; -1 where the node has none."""

    def look(inside: Broker) -> int:
        replica = inside.replicas.held((topic, index))
        return -1 if replica is None else replica.log.end_offset

    return cluster.nodes[node].call(look)


def folders(home: Path) -> set[str]:
    """The folders of partitions, without what makes the names of those that are set aside unique."""
    return {re.sub(r"\.[0-9a-f]{32}", "", each.name) for each in home.iterdir() if each.is_dir()}


@pytest.mark.slow
def test_a_failed_directory_takes_its_own_replicas_alone(tmp_path: Path) -> None:
    homes = {n: {"log.dirs": f"{tmp_path}/{n}/one,{tmp_path}/{n}/two"} for n in NODES}
    with headrace.testing.cluster(nodes=homes) as cluster:
        config = {"min.insync.replicas": "2", "segment.bytes": str(1 << 20)}
        admin = admin_of(cluster)
        admin.create_topics([NewTopic("t", PARTITIONS, 3, config=config)])["t"].result(60)
        fill(cluster, "t", PARTITIONS, 1)
        victim = cluster.leader("t", 0)
        failing = tmp_path / str(victim) / "two"  # the other one has the metadata
        lost = {int(each.name.partition("-")[2]) for each in failing.glob("t-*")}
        assert 0 < len(lost) < PARTITIONS

        failing.rename(tmp_path / "aside")
        failing.write_text("no directory")
        fill(cluster, "t", PARTITIONS, 300, 5000)  # the next segment cannot be made there
        others = set(NODES) - {victim}
        wanted = [others if each in lost else set(NODES) for each in range(PARTITIONS)]
        until(lambda: in_sync(cluster, "t") == wanted, "the directory's replicas alone are out of sync")
        node = cluster.nodes[victim]
        assert {index for _, index in node.call(lambda inside: dict(inside.replicas.offline))} == lost
        assert all(cluster.leader("t", each) != victim for each in lost)
        fill(cluster, "t", PARTITIONS, 1)

        cluster.stop(victim)
        failing.unlink()
        (tmp_path / "aside").rename(failing)
        cluster.restart(victim)
        until(lambda: in_sync(cluster, "t") == [set(NODES)] * PARTITIONS, "all are in sync again")
        ends = {end_of(cluster, node, "t", each) for node in NODES for each in range(PARTITIONS)}
        assert ends == {302}


def has_another_leader(cluster: TestCluster, topic: str, index: int, node: int) -> bool:
    return cluster.leader(topic, index) != node


@pytest.mark.slow
def test_a_log_that_lacks_files_is_led_by_another(tmp_path: Path) -> None:
    """The active controller's own too: whoever leads loses one log, and the other replicas of its directory stay."""
    homes = {n: {"log.dirs": f"{tmp_path}/{n}"} for n in NODES}
    with headrace.testing.cluster(nodes=homes) as cluster:
        config = {"min.insync.replicas": "2", "segment.bytes": str(1 << 20)}
        admin = admin_of(cluster)
        admin.create_topics([NewTopic("t", PARTITIONS, 3, config=config)])["t"].result(60)
        fill(cluster, "t", PARTITIONS, 1)
        controller = cluster.controller()
        led = {node: next(p for p in range(PARTITIONS) if cluster.leader("t", p) == node) for node in NODES}
        for node in (controller, next(n for n in NODES if n != controller)):
            folder = tmp_path / str(node) / f"t-{led[node]}"
            folder.rename(folder.with_name("aside"))
        fill(cluster, "t", PARTITIONS, 300, 5000)
        for node in (controller, next(n for n in NODES if n != controller)):
            place = ("t", led[node])
            until(partial(has_another_leader, cluster, *place, node), "another one leads")
            assert cluster.nodes[node].call(lambda inside: set(inside.replicas.offline)) == {place}
        lost = {led[node]: node for node in led if cluster.leader("t", led[node]) != node}
        wanted = [set(NODES) - {lost[each]} if each in lost else set(NODES) for each in range(PARTITIONS)]
        until(lambda: in_sync(cluster, "t") == wanted, "the lost replicas alone are out of sync")
        for node in set(lost.values()):
            cluster.stop(node)
            cluster.restart(node)
        until(lambda: in_sync(cluster, "t") == [set(NODES)] * PARTITIONS, "all are in sync again")
        ends = {end_of(cluster, node, "t", each) for node in NODES for each in range(PARTITIONS)}
        assert ends == {301}


@pytest.mark.slow
def test_replicas_of_what_went_meanwhile_are_set_aside_once_the_metadata_are_known(tmp_path: Path) -> None:
    homes = {n: {"log.dirs": f"{tmp_path}/{n}"} for n in NODES}
    with headrace.testing.cluster(nodes=homes) as cluster:
        admin = admin_of(cluster)
        away = next(n for n in NODES if n != cluster.controller())
        others = [n for n in NODES if n != away]
        for topic in ("kept", "deleted", "moved", "again"):
            admin.create_topics([NewTopic(topic, 1, replica_assignment=[[away, others[0]]])])[topic].result(60)
            fill(cluster, topic, 1, 10)
        cluster.kill(away)
        admin.delete_topics(["deleted", "again"])
        until(lambda: in_sync(cluster, "deleted") is in_sync(cluster, "again") is None, "they are deleted")
        admin.create_topics([NewTopic("again", 1, replica_assignment=[[away, others[0]]])])["again"].result(60)
        with cluster.client() as client:
            assert set(move_partitions(client, {("moved", 0): others}).values()) == {None}
        until(lambda: in_sync(cluster, "moved") == [set(others)], "it is moved away")

        before = folders(tmp_path / str(away))
        assert {"kept-0", "deleted-0", "moved-0", "again-0"} <= before
        for other in others:
            cluster.partition(away, other)
        starting = started(lambda: cluster.restart(away))
        time.sleep(0.5)  # it runs, and hears of nothing
        assert folders(tmp_path / str(away)) == before
        cluster.heal()
        starting.join(60)
        assert not starting.is_alive()
        until(lambda: in_sync(cluster, "again") == in_sync(cluster, "kept") == [{away, others[0]}], "it is in sync")
        expected = {"kept-0", "again-0", "again-0-stray", "deleted-0-stray", "moved-0-stray"}
        until(lambda: expected <= folders(tmp_path / str(away)), "what went is set aside")
        after = folders(tmp_path / str(away))
        assert not {"deleted-0", "moved-0", "kept-0-stray"} & after
        assert end_of(cluster, away, "again", 0) == 0


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread
