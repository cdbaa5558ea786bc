"""The cluster for tests: clients see no more of a fault than the fault, and nothing of the cluster stays."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from testing.acknowledged import PARTITIONS, Load, read_all, until

import headrace.testing
from headrace.client import admin
from headrace.config import ConfigError
from headrace.testing import TestCluster

pytest_plugins = ["pytester"]

SESSION_S = 1.5
SOON_FENCED = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": str(int(SESSION_S * 1000)),
}
"""For tests in which a node falls silent."""
KAFKAS_SESSION_S = 9.0
"""A dead node may keep a client waiting for less than this, however busy the machine is."""


@pytest.fixture
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster() as running:
        yield running


@pytest.fixture
def impatient() -> Iterator[TestCluster]:
    with headrace.testing.cluster(settings=SOON_FENCED) as running:
        yield running


def create(cluster: TestCluster, topic: str = "t", partitions: int = PARTITIONS) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    client.create_topics([NewTopic(topic, partitions, 3)])[topic].result(60)


def test_three_brokers_are_ready_quickly() -> None:
    took = []
    for _ in range(3):
        began = time.monotonic()
        with headrace.testing.cluster() as three:
            took.append(time.monotonic() - began)
            with three.client() as client:
                client.topics()
                assert set(client.nodes) == {1, 2, 3}
    assert min(took) < 5, "an election and three registrations; how quick it is, docs/testing.md says"


def test_nothing_is_left_behind() -> None:
    with headrace.testing.cluster():
        pass
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with headrace.testing.cluster() as three:
        admin_client = three.client()
        with admin_client as client:
            admin.create_topic(client, "t", partitions=3)
        three.kill(three.leader("t", 0))
        killed = next(id_ for id_, node in three.nodes.items() if not node.is_running)
        three.partition(*(id_ for id_ in three.nodes if id_ != killed))
        data, ports = three.data, [int(each.rpartition(":")[2]) for each in three.bootstrap.split(",")]
        assert data.is_dir()
    assert not data.exists()
    until(lambda: threading.active_count() <= threads, "the end of each thread")
    assert len(os.listdir("/proc/self/fd")) <= files
    for port in ports:
        until(lambda port=port: can_be_listened_at(port), f"the port {port}")  # type: ignore[misc]


def can_be_listened_at(port: int) -> bool:
    """Whether the port is free; the system may have given it to a connection of another process for a moment."""
    with socket.socket() as free, suppress(OSError):
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended linger for a minute
        free.bind(("127.0.0.1", port))
        free.listen()
        return True
    return False


def test_a_cluster_that_cannot_start_leaves_nothing() -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        with headrace.testing.cluster(settings={"num.partitions": "many"}):
            pass
    with pytest.raises(ValueError, match="at least one"):
        with headrace.testing.cluster(0):
            pass
    assert threading.active_count() == threads


def test_one_broker_or_five() -> None:
    for count in (1, 5):
        with headrace.testing.cluster(count, {"num.partitions": 2}) as running, running.client() as client:
            admin.create_topic(client, "t")
            assert len(client.topic("t").partitions) == 2
            assert len(client.topic("t").partitions[0].replicas) == min(3, count)
            assert running.controller() in running.nodes


def test_a_killed_leader_costs_moments_and_no_record(three: TestCluster) -> None:
    create(three)
    with Load(three.bootstrap) as load:
        leader = three.leader("t", 0)
        began = time.monotonic()
        three.kill(leader)
        assert not three.nodes[leader].is_running
        until(lambda: load.acked_after(began, 0), "an acknowledgement of the next leader")
        until(lambda: three.leader("t", 0) != leader, "another leader")
        three.restart(leader)
        until(lambda: _in_sync(three) == {1, 2, 3}, "the killed node back in sync")
    assert load.gap_s(0) < KAFKAS_SESSION_S
    load.is_kept()


def _in_sync(cluster: TestCluster) -> set[int]:
    with cluster.client() as client:
        return set.intersection(*(set(each.isr) for each in client.topic("t").partitions))


def test_a_killed_controller_is_replaced(three: TestCluster) -> None:
    create(three)
    active = three.controller()
    began = time.monotonic()
    three.kill(active)
    until(lambda: three.controller() != active, "another controller")
    assert time.monotonic() - began < KAFKAS_SESSION_S
    create(three, "u", 1)
    three.restart(active)
    assert three.leader("u", 0) in three.nodes


@pytest.mark.slow
def test_a_leader_apart_from_both_others_is_replaced_after_its_session(impatient: TestCluster) -> None:
    create(impatient)
    with Load(impatient.bootstrap) as load:
        leader = impatient.leader("t", 0)
        others = [id_ for id_ in impatient.nodes if id_ != leader]
        began = time.monotonic()
        for other in others:
            impatient.partition(leader, other)
        until(lambda: impatient.leader("t", 0) != leader, "another leader")
        assert time.monotonic() - began > SESSION_S / 2, "nobody can tell at once that it is not only slow"
        led = time.monotonic()
        until(lambda: load.acked_after(led, 0), "an acknowledgement of the next leader")
        impatient.heal()
        until(lambda: _in_sync(impatient) == {1, 2, 3}, "all in sync after the partition")
    assert load.gap_s(0) < 2 * KAFKAS_SESSION_S
    load.is_kept()


@pytest.mark.slow
def test_a_controller_apart_takes_the_leads_of_no_other_broker_with_it(impatient: TestCluster) -> None:
    """Their heartbeats wait at a controller that answers no more: the next one hears of them in time none the less."""
    create(impatient)
    before = {at: impatient.leader("t", at) for at in range(PARTITIONS)}
    alone = impatient.controller()
    own = next(at for at, leader in before.items() if leader == alone)
    for other in impatient.nodes:
        if other != alone:
            impatient.partition(alone, other)
    until(lambda: impatient.leader("t", own) != alone, "another leader")
    rest = [at for at in before if at != own]
    assert [impatient.leader("t", at) for at in rest] == [before[at] for at in rest]
    impatient.heal()


def test_two_nodes_apart_are_reached_by_clients_and_by_the_third(three: TestCluster) -> None:
    create(three)
    apart = [id_ for id_ in three.nodes if id_ != three.controller()]
    three.partition(*apart)
    for node in three.nodes.values():
        with socket.create_connection(("127.0.0.1", node.port), timeout=60):
            pass
    create(three, "while-apart", 1)
    three.heal()
    create(three, "healed", 3)


def test_nothing_reaches_a_node_that_is_apart_and_all_of_it_when_healed(three: TestCluster) -> None:
    alone = next(id_ for id_ in three.nodes if id_ != three.controller())
    others = [id_ for id_ in three.nodes if id_ != alone]
    for other in others:
        three.partition(alone, other)
    three.kill(others[0])
    restarting = threading.Thread(target=three.restart, args=(others[0],))
    restarting.start()
    restarting.join()
    client = AdminClient({"bootstrap.servers": f"127.0.0.1:{three.nodes[others[1]].port}", "log_level": 0})
    client.create_topics([NewTopic("while-apart", 1, 2)])["while-apart"].result(60)

    def knows() -> bool:
        return three.nodes[alone].call(lambda inside: inside.image.topics.partition("while-apart", 0)) is not None

    time.sleep(0.5)
    assert not knows()
    three.heal()
    until(knows, "the topic at the node that was apart")


@pytest.mark.slow
def test_a_paused_leader_is_replaced_and_comes_back(impatient: TestCluster) -> None:
    create(impatient)
    with Load(impatient.bootstrap) as load:
        leader = impatient.leader("t", 0)
        began = time.monotonic()
        impatient.pause(leader)
        until(lambda: impatient.leader("t", 0) != leader, "another leader")
        assert time.monotonic() - began > SESSION_S / 2
        led = time.monotonic()
        until(lambda: load.acked_after(led, 0), "an acknowledgement of the next leader")
        impatient.resume(leader)
        until(lambda: _in_sync(impatient) == {1, 2, 3}, "the paused node back in sync")
    load.is_kept()


def test_a_paused_node_can_be_killed_and_a_stopped_one_restarted(three: TestCluster) -> None:
    create(three)
    three.pause(1)
    three.kill(1)
    three.restart(1)
    port = three.nodes[2].port
    three.stop(2)
    with pytest.raises(ValueError, match="node 2 does not run"):
        three.kill(2)
    assert three.restart(2).port == port
    create(three, "u", 3)


@pytest.mark.slow
def test_a_slow_node_is_slow_both_ways_and_correct(three: TestCluster) -> None:
    create(three)
    leader = three.leader("t", 0)
    producer = ck.Producer({"bootstrap.servers": three.bootstrap, "linger.ms": 0, "log_level": 0})

    def written_in() -> float:
        began = time.monotonic()
        producer.produce("t", os.urandom(100_000), partition=0)
        assert producer.flush(60) == 0
        return time.monotonic() - began

    written_in()
    three.slow(leader, 0.2)
    assert 0.4 < written_in() < KAFKAS_SESSION_S, "there and back"
    found = read_all(three.bootstrap)
    three.slow(leader, 0)
    assert min(written_in() for _ in range(5)) < 0.4
    assert {key: value for key, value in read_all(three.bootstrap).items() if key in found} == found
    with pytest.raises(ValueError, match="negative"):
        three.slow(leader, -1)


def test_aiokafka_goes_on_when_a_leader_is_killed(three: TestCluster) -> None:
    create(three)

    async def conversation() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=three.bootstrap, acks="all", enable_idempotence=True)
        await producer.start()
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
        await asyncio.to_thread(three.kill, three.leader("t", 0))
        for number in range(20, 40):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=three.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition("t", 0)])
        await consumer.seek_to_beginning()
        read = [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(40)]
        assert read == [b"%d" % number for number in range(40)]
        await consumer.stop()

    asyncio.run(conversation())


@pytest.mark.slow
def test_a_directory_of_ones_own_stays_and_is_the_same_cluster(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        with headrace.testing.cluster(data=tmp_path / "my data") as three, three.client() as client:
            admin.create_topic(client, "kept", partitions=1, exist_ok=True)
            ids.append(three.nodes[1].call(lambda inside: inside.cluster_id))
    assert ids[0] == ids[1]
    assert (tmp_path / "my data" / "3" / "meta.properties").is_file()


@contextmanager
def planted(cluster: TestCluster, node: int) -> Iterator[None]:
    """A defect in one node."""
    cluster.nodes[node].call(lambda inside: inside.node.defects.report(RuntimeError("planted"), "a test"))
    yield


@pytest.mark.parametrize("how", ["runs", "is killed"])
def test_a_defect_of_any_node_fails_the_block(how: str) -> None:
    with pytest.raises(headrace.testing.DefectError) as raised:
        with headrace.testing.cluster() as three, planted(three, 2):
            if how == "is killed":
                three.kill(2)
    assert str(raised.value.__cause__) == "planted"


def test_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def headrace_settings():
            return {"num.partitions": 7}

        def test_it(headrace_cluster):
            assert len(headrace_cluster.nodes) == 3
            assert headrace_cluster.nodes[1].call(lambda inside: inside.config.num_partitions) == 7
        """
    )
    installed = any(point.value == "headrace.testing.plugin" for point in entry_points(group="pytest11"))
    plugins = [] if installed else ["-p", "headrace.testing.plugin"]
    pytester.runpytest_subprocess("-p", "no:randomly", *plugins).assert_outcomes(passed=1)
