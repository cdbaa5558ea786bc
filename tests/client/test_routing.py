"""Conversations driven by hand: what is waited for, without a socket or a clock that goes by itself."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from headrace.client.conversation import Await, Connect, Pause, Step, Steps
from headrace.client.errors import RefusedError, UnreachableError
from headrace.client.routing import METADATA_MAX_AGE_S, Patience, Router
from headrace.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


def refused(router: Router, clock: Clock) -> tuple[list[Step], UnreachableError]:
    """Every step of a conversation to which nobody answers, and its failure."""
    steps: Steps[object] = router.refresh([])
    seen: list[Step] = []
    with pytest.raises(UnreachableError) as failed:
        step = next(steps)
        while True:
            seen.append(step)
            assert not isinstance(step, Await), "there is no connection to wait for"
            if isinstance(step, Pause):
                clock.now += step.seconds
                step = steps.send(None)
            else:
                step = steps.throw(RefusedError(f"cannot connect to {step.host}:{step.port}: refused"))
    return seen, failed.value


def test_each_address_is_tried_once_if_nothing_is_known_of_the_cluster() -> None:
    clock = Clock()
    seen, failure = refused(Router([("a", 1), ("b", 2)], Patience(), clock, Random(1)), clock)
    assert seen == [Connect("a", 1, 5.0), Connect("b", 2, 5.0)]
    assert str(failure) == "no broker answers: a:1: refused; b:2: refused"
    assert clock.now == 100.0


def test_a_client_that_awaits_its_bootstrap_pauses_for_longer_each_time_until_its_time_is_over() -> None:
    clock = Clock()
    patience = Patience(timeout_s=3.0, await_bootstrap=True)
    seen, _ = refused(Router([("a", 1)], patience, clock, Random(1)), clock)
    pauses = [step.seconds for step in seen if isinstance(step, Pause)]
    assert len(seen) == 2 * len(pauses) + 1
    assert all(0.8 * 0.02 * 2**at <= pause <= 1.2 * 0.02 * 2**at for at, pause in enumerate(pauses[:5]))
    assert 102.0 < clock.now < 103.0


class Answered:
    """A call whose response is there at once."""

    done, error = True, None

    def __init__(self, response: Any) -> None:
        self._response = response

    def result(self) -> Any:
        return self._response


class FakeBroker:
    """A broker that says of one partition who leads it, and of every group who coordinates it."""

    def __init__(self, node_id: int, leader: int, leader_epoch: int) -> None:
        self.host, self.port, self.peer, self.closed = f"host{node_id}", 9092, f"host{node_id}:9092", False
        self.channel: Any = SimpleNamespace(version_for=lambda _: 4)
        self.leader, self.leader_epoch = leader, leader_epoch
        self.asked = 0

    def send(self, request: Any, response_class: Any, *, version: int | None = None, expect_reply: bool = True) -> Any:
        self.asked += 1
        if isinstance(request, FindCoordinatorRequest):
            found = Coordinator(key="g", node_id=self.leader, host=f"host{self.leader}", port=9092)
            return Answered(FindCoordinatorResponse(coordinators=[found]))
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=self.leader, leader_epoch=self.leader_epoch, replica_nodes=[1, 2]
        )
        topic = MetadataResponseTopic(name="t", topic_id=b"t" * 16, partitions=[partition])
        brokers = [MetadataResponseBroker(node_id=each, host=f"host{each}", port=9092) for each in (1, 2)]
        return Answered(MetadataResponse(brokers=brokers, topics=[topic]))

    def close(self) -> None:
        self.closed = True


class Cluster:
    """Two brokers: the second is behind, and believes that it leads. `router` begins at the second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.brokers = {"host1": FakeBroker(1, 1, 7), "host2": FakeBroker(2, 2, 6)}
        self.down: set[str] = set()
        self.connects: list[Connect] = []
        self.router = Router([("host2", 9092)], Patience(), self.clock, Random(1))

    def run(self, steps: Steps[T]) -> T:
        """Runs a conversation to its end."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    self.clock.now += step.seconds
                    step = steps.send(None)
                    continue
                assert isinstance(step, Connect)
                self.connects.append(step)
                if step.host in self.down:
                    step = steps.throw(RefusedError(f"cannot connect to {step.host}: refused"))
                else:
                    step = steps.send(self.brokers[step.host])
        except StopIteration as stop:
            found: T = stop.value
            return found

    def leader(self) -> int | None:
        """Who leads, as the cluster says once what was known is forgotten."""
        self.router.forget(["t"])
        found = self.run(self.router.leader("t", 0))
        return None if found is None else found.leader


def test_a_broker_that_is_behind_is_not_asked_twice_in_a_row() -> None:
    cluster = Cluster()
    assert cluster.leader() == 2
    assert cluster.leader() == 1
    assert {broker.asked for broker in cluster.brokers.values()} == {1}


def test_a_leader_of_an_older_epoch_is_not_believed() -> None:
    cluster = Cluster()
    assert [cluster.leader() for _ in range(4)] == [2, 1, None, 1]


def test_a_leader_is_looked_up_again_after_a_while_although_nothing_failed() -> None:
    cluster = Cluster()
    assert cluster.leader() == 2
    cluster.clock.now += METADATA_MAX_AGE_S
    assert cluster.router.known_leader("t", 0) is not None
    cluster.clock.now += 1.0
    assert cluster.router.known_leader("t", 0) is None
    found = cluster.run(cluster.router.leader("t", 0))
    assert found is not None and found.leader == 1


def test_the_same_broker_is_asked_again_if_no_other_can_be_reached_soon() -> None:
    cluster = Cluster()
    cluster.down.add("host1")
    assert [cluster.leader(), cluster.leader()] == [2, 2]
    assert [(each.host, each.timeout_s) for each in cluster.connects] == [("host2", 5.0), ("host1", 1.0)]


def test_another_broker_says_who_coordinates_after_an_error() -> None:
    cluster = Cluster()
    cluster.run(cluster.router.refresh([]))
    found = set()
    for _ in range(2):
        found.add(cluster.run(cluster.router.coordinator("g")))
        cluster.router.forget_coordinator("g")
    assert found == {1, 2}
