"""Nodes that are not what their cluster takes them for: started twice, under another's id, with another cluster's
directory, with an emptied disk, without a meta.properties. The others go on, and nothing committed is lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker.raw import Raw, batch, fetch, produce
from broker.test_cluster import topic_of
from peers.kafka import free_port
from peers.link import Link
from peers.waiting import until

import headrace.testing
from headrace.broker.quorum.metadata_start import format_storage
from headrace.broker.storage.storage_format import StorageError
from headrace.config import BrokerConfig
from headrace.env.posix import PosixEnvironment
from headrace.log.manager import LogDirLocked
from headrace.metadata.meta_properties import FILE_NAME
from headrace.testing import TestCluster, TestNode
from headrace.testing.faults import Faults
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch

WAIT_MS = 1500
"""How long a node that nobody registers tries."""


SLOW_TO_ELECT = {"controller.quorum.fetch.timeout.ms": "6000"}
"""The leader of the quorum stays, however busy the machine is; one that is dead is replaced at once all the same."""


@pytest.fixture
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster(settings=SLOW_TO_ELECT) as running:
        yield running


def write(cluster: TestCluster, topic: str, *values: bytes) -> None:
    """Each in a batch of its own, acknowledged by all in sync; who does not lead, or not yet, is asked again."""
    for value in values:
        until(lambda value=value: write_once(cluster, topic, value) == ErrorCode.NONE)  # type: ignore[misc]


def write_once(cluster: TestCluster, topic: str, value: bytes) -> int:
    node = cluster.nodes[cluster.leader(topic, 0)]
    if not node.is_running:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # it was killed a moment ago
    with Raw(node.port, timeout_s=60) as raw:
        request = produce(topic, batch(value))
        request.timeout_ms = 60_000
        code: int = raw.ask(request, 9).responses[0].partition_responses[0].error_code
        assert code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return code


def read(cluster: TestCluster, topic: str) -> list[bytes]:
    """As far as its leader knows it to be committed."""
    found: list[bytes] = []
    with Raw(cluster.nodes[cluster.leader(topic, 0)].port, timeout_s=60) as raw:
        while True:
            data = raw.ask(fetch(topic, len(found)), 11).responses[0].partitions[0]
            if data.error_code or not data.records:
                return found
            found += [record.value or b"" for record in decode_batch(bytes(data.records))]


def make(cluster: TestCluster, topic: str) -> None:
    with Link(next(node.port for node in cluster.nodes.values() if node.is_running)) as link:
        made = link.ask(topic_of(topic), 7).topics[0]
        assert made.error_code == 0, made.error_message


def all_in_sync(cluster: TestCluster, topic: str) -> bool:
    def isr(node: TestNode) -> set[int]:
        known = node.call(lambda inside: inside.image.topics.partition(topic, 0))
        return set() if known is None else set(known.isr)

    return all(isr(node) == set(cluster.nodes) for node in cluster.nodes.values())


def log_of(cluster: TestCluster, node: int, topic: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((cluster.data / str(node) / f"{topic}-0").glob("*.log")))


@contextmanager
def unchanged(cluster: TestCluster) -> Iterator[None]:
    """The same node leads the quorum before and after, in the same epoch."""
    before = cluster.controller(), cluster.nodes[cluster.controller()].call(lambda inside: inside.quorum.epoch)
    yield
    assert (cluster.controller(), cluster.nodes[before[0]].call(lambda inside: inside.quorum.epoch)) == before


def double(cluster: TestCluster, node: int, data: Path, ports: tuple[int, int]) -> TestNode:
    """Another node under the id of one that runs."""
    settings = {
        **cluster.nodes[node].settings,
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}",
        "initial.broker.registration.timeout.ms": str(WAIT_MS),
        "log.dirs": str(data),
    }
    return TestNode(node, data, settings, Faults({}, []))


def test_a_node_is_not_started_twice_on_one_directory(three: TestCluster) -> None:
    make(three, "t")
    with unchanged(three):
        second = double(three, 1, three.nodes[1].data, (free_port(), free_port()))
        with pytest.raises((LogDirLocked, StorageError), match="in use"):
            second.start()
        write(three, "t", b"a")
    until(lambda: read(three, "t") == [b"a"])


def test_a_second_node_of_one_id_is_not_registered(three: TestCluster, tmp_path: Path) -> None:
    make(three, "t")
    write(three, "t", b"a")
    follower = next(id_ for id_ in three.nodes if id_ != three.controller())
    with unchanged(three):
        second = double(three, follower, tmp_path, (free_port(), free_port()))
        cluster_id = three.nodes[1].inside.cluster_id
        format_storage(PosixEnvironment(), BrokerConfig.load(second.settings), cluster_id)
        epoch = three.nodes[1].inside.image.brokers[follower].epoch
        with pytest.raises(StorageError, match="no controller registered this broker within 1.5 s"):
            second.start()
        write(three, "t", b"b")
        assert three.nodes[1].inside.image.brokers[follower].epoch == epoch
    until(lambda: read(three, "t") == [b"a", b"b"])
    until(lambda: all_in_sync(three, "t"))


def test_a_directory_of_another_cluster_is_told_by_its_node(
    three: TestCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(three, "t")
    away = next(id_ for id_ in three.nodes if id_ != three.controller())
    ports = tuple(listener.port for listener in three.nodes[away].inside.server.listeners)
    three.stop(away)
    stranger = double(three, away, tmp_path, (ports[0], ports[1]))
    format_storage(PosixEnvironment(), BrokerConfig.load(stranger.settings), "YW5vdGhlci1jbHVzdGVyLg")
    with unchanged(three):
        with pytest.raises(StorageError, match="no controller registered this broker"):
            stranger.start()
        assert "voter belongs to another cluster" in caplog.text
        write(three, "t", b"a")
    three.restart(away)
    until(lambda: all_in_sync(three, "t"))
    until(lambda: read(three, "t") == [b"a"])


@pytest.mark.slow
def test_an_emptied_disk_is_filled_again_and_costs_nothing(three: TestCluster) -> None:
    """Every node in turn loses its disk; each time the two others have all, and it comes back to have it too."""
    make(three, "t")
    expected: list[bytes] = []
    for emptied in list(three.nodes):
        expected += [b"%d of round %d" % (number, emptied) for number in range(5)]
        write(three, "t", *expected[-5:])
        cluster_id = three.nodes[emptied].inside.cluster_id
        three.kill(emptied)
        shutil.rmtree(three.nodes[emptied].data)
        with pytest.raises(StorageError, match="not formatted"):
            three.restart(emptied)
        format_storage(PosixEnvironment(), BrokerConfig.load(three.nodes[emptied].settings), cluster_id)
        three.restart(emptied)
        until(lambda expected=expected: read(three, "t") == expected)  # type: ignore[misc]
        until(lambda: all_in_sync(three, "t"))
    write(three, "t", b"last")
    until(lambda: len({log_of(three, node, "t") for node in three.nodes}) == 1)
    until(lambda: read(three, "t") == [*expected, b"last"])


def test_an_emptied_voter_wins_no_election(three: TestCluster) -> None:
    """It comes back while the leader dies: whoever has the metadata leads, and they are all there."""
    make(three, "t")
    write(three, "t", b"a")
    leader = three.controller()
    emptied, other = (id_ for id_ in three.nodes if id_ != leader)
    cluster_id = three.nodes[leader].inside.cluster_id
    committed = three.nodes[other].call(lambda inside: inside.image.offset)
    three.kill(emptied)
    shutil.rmtree(three.nodes[emptied].data)
    format_storage(PosixEnvironment(), BrokerConfig.load(three.nodes[emptied].settings), cluster_id)
    three.kill(leader)
    three.restart(emptied)
    assert three.controller() == other
    assert three.nodes[other].call(lambda inside: inside.image.offset) >= committed
    until(lambda: three.leader("t", 0) == other)  # the emptied one has none of it
    three.restart(leader)
    until(lambda: all_in_sync(three, "t"))
    until(lambda: read(three, "t") == [b"a"])


@pytest.mark.slow
def test_an_emptied_disk_of_the_last_in_sync_is_no_empty_log(three: TestCluster) -> None:
    """K-14139: the two others are behind, and whoever was in sync alone comes back with nothing."""
    make(three, "t")
    write(three, "t", b"a")
    keeper, *others = three.nodes
    cluster_id = three.nodes[keeper].inside.cluster_id
    first, second = others
    three.kill(first)
    write(three, "t", b"b")
    three.kill(second)
    three.kill(keeper)
    shutil.rmtree(three.nodes[keeper].data)
    format_storage(PosixEnvironment(), BrokerConfig.load(three.nodes[keeper].settings), cluster_id)
    restart_together(three, [keeper, second])
    three.restart(first)
    until(lambda: all_in_sync(three, "t"))
    until(lambda: read(three, "t") == [b"a", b"b"])


def test_an_emptied_disk_of_the_only_replica_is_no_empty_log(three: TestCluster) -> None:
    """Nobody else has its records: it takes none in their place, and says so."""
    with Link(three.nodes[1].port) as link:
        assert link.ask(topic_of("t", 1), 7).topics[0].error_code == 0
    emptied = three.leader("t", 0)
    write(three, "t", b"a")
    cluster_id = three.nodes[emptied].inside.cluster_id
    three.kill(emptied)
    shutil.rmtree(three.nodes[emptied].data)
    format_storage(PosixEnvironment(), BrokerConfig.load(three.nodes[emptied].settings), cluster_id)
    three.restart(emptied)
    with Raw(three.nodes[emptied].port, timeout_s=60) as raw:
        for _ in range(10):
            said = raw.ask(produce("t", batch(b"b")), 9).responses[0].partition_responses[0]
            assert said.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
            time.sleep(0.05)
    assert not (three.data / str(emptied) / "t-0").exists()


def restart_together(cluster: TestCluster, nodes: list[int]) -> None:
    """None of them serves before a majority is there."""
    for node in nodes:
        cluster._nodes[node] = cluster._new_node(node)
    for node in nodes:
        cluster.nodes[node].begin()
    for node in nodes:
        cluster.nodes[node].await_ready()


def test_a_directory_without_its_meta_properties(three: TestCluster, tmp_path: Path) -> None:
    """It counts as a fresh one, as in Kafka: its replicas are there under another directory's id, and stay."""
    node = next(id_ for id_ in three.nodes if id_ != three.controller())
    first = three.nodes[node].data
    three._settings = {"log.dirs": f"{first},{tmp_path / 'second'}"}
    three.restart(node)
    topics = [f"t{number}" for number in range(4)]
    for topic in topics:
        make(three, topic)
        write(three, topic, b"a")
        until(lambda topic=topic: all_in_sync(three, topic))  # type: ignore[misc]
    assert {path.name for path in (tmp_path / "second").glob("t*-*")}, "both directories have replicas"
    before = three.nodes[node].inside.layout.directory_ids
    three.kill(node)
    (tmp_path / "second" / FILE_NAME).unlink()
    three.restart(node)
    after = three.nodes[node].inside.layout.directory_ids
    assert after[str(first)] == before[str(first)]
    assert after[str(tmp_path / "second")] != before[str(tmp_path / "second")]
    for topic in topics:
        until(lambda topic=topic: all_in_sync(three, topic))  # type: ignore[misc]
        write(three, topic, b"b")
        until(lambda topic=topic: read(three, topic) == [b"a", b"b"])  # type: ignore[misc]

    def assigned() -> bool:
        known = set(after.values())
        image = three.nodes[three.controller()].inside.image
        partitions = [partition for topic in topics for partition in image.topics.topics_by_name[topic].partitions]
        return all(each.directories[each.replicas.index(node)] in known for each in partitions)

    until(assigned)
