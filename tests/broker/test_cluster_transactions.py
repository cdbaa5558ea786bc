"""Transactions on three brokers: markers find the leaders, whoever dies or moves between a decision and its markers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from broker.controllers import PATIENCE_S
from broker.raw import Raw
from broker.requests.apis.test_transactions import NONE, add, begin, describe, end, find, producers, until_state

import headrace.testing
from headrace.broker.broker import Broker
from headrace.testing import TestCluster
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages import k20_delete_topics as k20
from headrace.wire.messages import k26_end_txn as k26
from headrace.wire.messages import k65_describe_transactions as k65

T = TypeVar("T")

SMALL = {"transaction.state.log.num.partitions": "3", "request.timeout.ms": "20000"}
SOON_FENCED = {"broker.session.timeout.ms": "1500", "replica.lag.time.max.ms": "1500"}
"""For tests in which a node falls silent."""


@pytest.fixture
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster(settings={**SMALL, **SOON_FENCED}) as running:
        yield running


def make(cluster: TestCluster, name: str, *replicas: list[int]) -> None:
    """A topic whose partitions lie, and are led first, where they are told to."""
    assigned = [k19.CreatableReplicaAssignment(index, ids) for index, ids in enumerate(replicas)]
    topic = k19.CreatableTopic(name, -1, -1, assigned, [k19.CreatableTopicConfig("min.insync.replicas", "1")])
    with Raw(any_port(cluster)) as raw:
        made = raw.ask(k19.CreateTopicsRequest([topic], timeout_ms=30_000), 7).topics[0]
        assert made.error_code == 0, made.error_message
    for index in range(len(replicas)):
        cluster.leader(name, index)


def any_port(cluster: TestCluster) -> int:
    return next(node.port for node in cluster.nodes.values() if node.is_running)


def coordinated_by(cluster: TestCluster, node: int, count: int = 1) -> list[str]:
    """Transactional ids that a node coordinates."""
    with Raw(any_port(cluster)) as raw:
        names = [f"id-{number}" for number in range(40)]
        found = find(raw, *names)
    return [each.key for each in found if each.node_id == node][:count]


def coordinator(cluster: TestCluster, name: str) -> int:
    """Who coordinates an id, once somebody does."""
    running = next(node for node in cluster.nodes.values() if node.is_running)
    index = running.call(lambda broker: broker.transactions.partition_for(name))
    return cluster.leader("__transaction_state", index)


def all_see(cluster: TestCluster, name: str) -> None:
    """Returns when every broker knows a topic: it may be asked for it."""
    for node in cluster.nodes.values():
        if node.is_running:
            until(lambda node=node: node.call(lambda broker: broker.image.topics.by_name(name) is not None))  # type: ignore[misc]


def began(cluster: TestCluster, raw: Raw, name: str, topic: str, partitions: list[int]) -> tuple[int, int]:
    all_see(cluster, topic)
    producer = begin(raw, name, version=4)
    said = add(raw, 3, name, producer, **{topic: partitions})
    assert said == {(topic, each): NONE for each in partitions}
    return producer


def decide(cluster: TestCluster, name: str, producer: tuple[int, int], committed: bool) -> None:
    """Ends a transaction, whoever coordinates it by now; one that is answered too late is decided all the same."""

    def decided() -> bool:
        try:
            with Raw(cluster.nodes[coordinator(cluster, name)].port) as raw:
                code = raw.ask(k26.EndTxnRequest(name, *producer, committed), 4).error_code
        except ConnectionError:
            return False
        assert code in (0, 14, 15, 16, 51)
        return code in (0, 51)

    until(decided)


def ended(cluster: TestCluster, name: str, state: str) -> None:
    """Returns when a transaction is over, whoever coordinates it by now."""

    def is_over() -> bool:
        try:
            with Raw(cluster.nodes[coordinator(cluster, name)].port) as raw:
                return describe(raw, name).transaction_state == state
        except ConnectionError:
            return False

    until(is_over)


def has_marker(cluster: TestCluster, topic: str, index: int, producer: tuple[int, int]) -> bool:
    with Raw(cluster.nodes[cluster.leader(topic, index)].port) as raw:
        return producers(raw, topic, index).get(producer[0], (-1, -1))[0] == producer[1]


def test_every_leader_gets_its_marker(three: TestCluster) -> None:
    make(three, "t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    for node in (1, 2, 3):
        (name,) = coordinated_by(three, node)
        with Raw(three.nodes[node].port) as raw:
            producer = began(three, raw, name, "t", [0, 1, 2])
            assert end(raw, 4, name, producer, committed=True) == (0, -1, -1)
            until_state(raw, name, "CompleteCommit")
        assert all(has_marker(three, "t", index, producer) for index in range(3))
    other = next(node for node in (1, 2, 3) if node != coordinator(three, name))
    with Raw(three.nodes[other].port) as raw:
        assert describe(raw, name).error_code == ErrorCode.NOT_COORDINATOR


def test_a_marker_of_the_coordinators_own_broker_waits_for_nobodys_fetch_to_end() -> None:
    """The fetch that commits a decision makes it append the marker, and is to see it too. Fetches that wait end by
    themselves after so long that all of these would take minutes."""
    slow = {
        "replica.fetch.wait.max.ms": "4000",
        "replica.lag.time.max.ms": "8000",
        "replica.socket.timeout.ms": "30000",
    }
    with headrace.testing.cluster(settings={**SMALL, **slow}) as cluster:
        make(cluster, "t", [1, 2, 3], [1, 3, 2])
        (name,) = coordinated_by(cluster, 1)
        with Raw(cluster.nodes[1].port, timeout_s=PATIENCE_S) as raw:
            producer = began(cluster, raw, name, "t", [0, 1])
            end(raw, 4, name, producer, committed=True)
            until_state(raw, name, "CompleteCommit")  # by now followers fetch these partitions
            last = time.monotonic() + PATIENCE_S
            for _ in range(20):
                add(raw, 3, name, producer, t=[0, 1])
                assert end(raw, 4, name, producer, committed=True)[0] == NONE
                until_state(raw, name, "CompleteCommit")
            assert time.monotonic() < last


def test_the_next_coordinator_ends_what_was_decided(three: TestCluster) -> None:
    """Decided and answered, and no marker is written: then the coordinator dies."""
    make(three, "t", [1], [2])
    (name,) = coordinated_by(three, 1)
    with Raw(three.nodes[1].port) as raw:
        producer = began(three, raw, name, "t", [0, 1])
        three.nodes[1].call(cut_markers)
        assert end(raw, 4, name, producer, committed=True) == (0, -1, -1)
        told = describe(raw, name)
        assert (told.transaction_state, told.topics) == ("PrepareCommit", [k65.TopicData("t", [0, 1])])
    three.kill(1)
    three.restart(1)
    ended(three, name, "CompleteCommit")
    assert has_marker(three, "t", 0, producer) and has_marker(three, "t", 1, producer)


def cut_markers(broker: Broker) -> None:
    """From here on its markers go nowhere."""
    broker.transactions.markers.send = lambda *_: None  # type: ignore[method-assign]


@pytest.mark.slow
def test_a_coordinator_that_moves_leaves_its_markers_to_the_next(three: TestCluster) -> None:
    """It cannot reach the leader of a partition, and hands over to somebody who can."""
    first, leader = (node for node in (1, 2, 3) if node != three.controller())
    make(three, "t", [leader])
    (name,) = coordinated_by(three, first)
    with Raw(three.nodes[first].port) as raw:
        producer = began(three, raw, name, "t", [0])
        three.partition(first, leader)
        assert end(raw, 4, name, producer, committed=False) == (0, -1, -1)
        told = describe(raw, name)
        assert (told.transaction_state, told.topics) == ("PrepareAbort", [k65.TopicData("t", [0])])
    three.stop(first)
    ended(three, name, "CompleteAbort")
    assert has_marker(three, "t", 0, producer)


def until(look: Callable[[], T]) -> T:
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        if found := look():
            return found
        pause.wait(0.02)
    raise AssertionError("it has not come true in time")


PATIENT = {
    "request.timeout.ms": "600000",
    "broker.session.timeout.ms": "600000",
    "replica.lag.time.max.ms": "600000",
    "transaction.state.log.replication.factor": "1",
}
"""Nobody gives anything up while a test runs, and a coordinator needs no other node."""


def test_a_partition_whose_replicas_do_not_keep_up_holds_no_other_transaction_up() -> None:
    """Its leader has the marker, and its follower sleeps: the leader is asked for it again and again, does not write it
    again, and takes the markers of other transactions meanwhile."""
    with headrace.testing.cluster(settings={**SMALL, **PATIENT}) as three:
        sleeper, leader = (node for node in (1, 2, 3) if node != three.controller())
        here = three.nodes[three.controller()]
        make(three, "stuck", [leader, sleeper])
        make(three, "free", [leader])
        stuck, *free = coordinated_by(three, here.id, 4)
        with Raw(here.port) as raw:
            first = began(three, raw, stuck, "stuck", [0])
            others = [began(three, raw, name, "free", [0]) for name in free]
            three.pause(sleeper)
            assert end(raw, 4, stuck, first, committed=True) == (0, -1, -1)
            for name, producer in zip(free, others, strict=True):
                assert end(raw, 4, name, producer, committed=True) == (0, -1, -1)
                until_state(raw, name, "CompleteCommit")
            assert describe(raw, stuck).transaction_state == "PrepareCommit"
            sent_again = here.call(lambda broker: broker.metrics.counter("transactions.markers_sent_again"))
            until(lambda: sent_again.value >= 4)
            assert three.nodes[leader].call(lambda broker: len(broker.local_markers)) == 1
            three.resume(sleeper)
            until_state(raw, stuck, "CompleteCommit")
        leading = three.nodes[leader]
        written = leading.call(lambda broker: broker.replicas.by_name["stuck", 0].log.end_offset)
        assert written <= 2, "asked for once more after it was committed, at most"
        assert leading.call(lambda broker: len(broker.local_markers)) == 0


@pytest.mark.slow
def test_a_leader_that_dies_is_followed_by_the_next(three: TestCluster) -> None:
    make(three, "t", [2, 3])
    (name,) = coordinated_by(three, 1)
    with Raw(three.nodes[1].port) as raw:
        producer = began(three, raw, name, "t", [0])
    three.pause(2)
    decide(three, name, producer, committed=True)
    three.kill(2)
    ended(three, name, "CompleteCommit")
    assert has_marker(three, "t", 0, producer)


def test_a_deleted_topic_holds_no_transaction_up(three: TestCluster) -> None:
    make(three, "t", [2])
    make(three, "u", [3])
    (name,) = coordinated_by(three, 1)
    with Raw(three.nodes[1].port) as raw:
        all_see(three, "u")
        producer = began(three, raw, name, "t", [0])
        assert add(raw, 3, name, producer, u=[0]) == {("u", 0): NONE}
    three.kill(2)
    decide(three, name, producer, committed=True)
    deleted = k20.DeleteTopicsRequest([k20.DeleteTopicState("t")], timeout_ms=30_000)

    def is_deleted() -> bool:
        with Raw(three.nodes[3].port) as raw:
            return raw.ask(deleted, 6).responses[0].error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    until(is_deleted)
    ended(three, name, "CompleteCommit")
    assert has_marker(three, "u", 0, producer)


def test_one_broker_that_is_killed_ends_what_it_had_decided() -> None:
    with headrace.testing.cluster(1, settings=SMALL) as alone:
        make(alone, "t", [1])
        with Raw(alone.nodes[1].port) as raw:
            producer = began(alone, raw, "x", "t", [0])
            alone.nodes[1].call(cut_markers)
            assert end(raw, 4, "x", producer, committed=True) == (0, -1, -1)
            assert describe(raw, "x").transaction_state == "PrepareCommit"
        alone.kill(1)
        alone.restart(1)
        with Raw(alone.nodes[1].port) as raw:
            until_state(raw, "x", "CompleteCommit")
            assert add(raw, 3, "x", producer, t=[0]) == {("t", 0): NONE}
            assert end(raw, 4, "x", producer, committed=False) == (0, -1, -1)
            until_state(raw, "x", "CompleteAbort")
