"""Owners of partitions, and leaders of them, are looked for at each step: what overlaps for a moment is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from headrace.broker.broker import Broker
from headrace.broker.partitions.replica import Replica
from headrace.log.log import Log
from headrace.metadata.image import Broker as BrokerImage
from headrace.metadata.image import ClusterImage, Endpoint, Partition, Topic, TopicsImage
from headrace.replicas.partition import Role
from headrace.sim.checkers.owners import OFFSETS, Owners
from headrace.sim.checkers.replication import Replication
from headrace.sim.found_at import seeds_of
from headrace.sim.ownership_sabotage import ownership_plants
from headrace.sim.run import run_seed
from headrace.sim.sabotage import planted
from headrace.sim.world import World

P, Q = ("log", 0), ("log", 1)
AT = "node1"


def _image(leader: int = 1, epoch: int = 3) -> ClusterImage:
    nodes = {node: (Endpoint("PLAINTEXT", f"node{node}", 9092, 0),) for node in (1, 2)}
    brokers = {node: BrokerImage(node, 0, bytes(16), at, (), None, False, False, ()) for node, at in nodes.items()}
    topic = Topic(OFFSETS, b"o" * 16, (Partition(0, (1, 2), (), (1, 2), leader, epoch, 0),))
    return ClusterImage(brokers=brokers, topics=TopicsImage({topic.id: topic}, {OFFSETS: topic}))


class _Group:
    """A group in a world that passes time when it is asked to; `image` is what its nodes know."""

    def __init__(self) -> None:
        self.world = World(1)
        self.image = _image()
        self.owners = Owners(self.world, lambda: self.image)

    def takes(self, who: str, epoch: int, *places: tuple[str, int], at: str = AT) -> None:
        now = self.world.loop.time()
        self.owners.takes("g", who, epoch, places, now, 6.0, at)

    def objection(self) -> str:
        return str(self.world.objection or "")


def test_an_epoch_gives_a_partition_to_one_member() -> None:
    group = _Group()
    group.takes("a", 1, P)
    group.takes("b", 1, Q)
    group.owners.gives_up("g", "a")
    group.takes("a", 1, P)
    assert not group.objection()
    group.takes("b", 1, Q, P)
    assert group.objection() == "group g: epoch 1 gives log-0 to b, and it gave it to a"


def test_a_partition_is_not_given_on_while_its_lease_runs() -> None:
    group = _Group()
    group.takes("a", 1, P)
    group.world.loop.pass_time(5.0)
    group.owners.keeps("g", "a", 1, 5.0, 6.0, AT)
    group.world.loop.pass_time(5.5)
    group.takes("b", 2, P)
    assert "gives log-0 to b, and a has it since epoch 1: by a lease that ends at 10.714 s" in group.objection()


def test_what_was_given_up_or_has_lapsed_is_given_on() -> None:
    group = _Group()
    group.takes("a", 1, P, Q)
    group.takes("a", 2, Q)
    group.takes("b", 2, P)
    group.world.loop.pass_time(6.0)
    group.takes("b", 3, P, Q)
    assert not group.objection()


def test_what_a_coordinator_says_that_has_been_replaced_is_no_lease() -> None:
    group = _Group()
    group.takes("a", 1, P)
    group.world.loop.pass_time(5.0)
    group.image = _image(leader=2, epoch=4)
    group.owners.keeps("g", "a", 1, 5.0, 6.0, AT)
    group.world.loop.pass_time(1.5)
    group.takes("b", 2, P, at="node2")
    assert not group.objection()


def test_what_a_late_answer_gives_in_an_earlier_epoch_is_held_against_nobody() -> None:
    group = _Group()
    group.takes("b", 2, P)
    group.takes("a", 1, P)
    assert not group.objection()


def test_what_a_member_says_it_owns_is_not_given_on_in_that_generation() -> None:
    group = _Group()
    group.takes("a", 1, P)
    group.world.loop.pass_time(60.0)
    group.owners.claims("g", "a", 2, AT)
    group.takes("b", 2, P)
    assert group.objection().endswith("a has it since epoch 1: it said so when it joined this generation")


def test_a_claim_is_of_one_coordinator() -> None:
    group = _Group()
    group.takes("a", 1, P)
    group.world.loop.pass_time(60.0)
    group.owners.claims("g", "a", 2, AT)
    group.image = _image(leader=2, epoch=4)
    group.takes("b", 2, P, at="node2")
    assert not group.objection()


def test_two_leaders_of_an_epoch_are_found_when_the_second_begins() -> None:
    world = World(1)

    def leader(node: int) -> Replica:
        state = SimpleNamespace(leader_epoch=7, node_id=node, isr=[1], replicas=[1, 2])
        found = SimpleNamespace(topic_id=bytes(16), index=0, topic="log", key=P, state=state)
        return cast(Replica, found)

    no_brokers: list[Broker] = []
    replication = Replication(world, lambda: no_brokers, lambda: None)
    real = Replica.become_leader
    Replica.become_leader = lambda *_: False  # type: ignore[method-assign]
    try:
        with replication.listening():
            Replica.become_leader(leader(1), cast(Partition, None))
            Replica.become_leader(leader(1), cast(Partition, None))
            assert world.objection is None
            Replica.become_leader(leader(2), cast(Partition, None))
    finally:
        Replica.become_leader = real  # type: ignore[method-assign]
    assert str(world.objection) == "epoch 7 of log-0 has two leaders: 1 and 2"


class _Cluster:
    """Two replicas of a partition, of which the first leads; `cut` has the log of the second one cut."""

    def __init__(self) -> None:
        self.world = World(1)
        self.image = _image()
        topic = self.image.topics.by_name(OFFSETS)
        assert topic is not None
        self.states = {
            node: SimpleNamespace(role=role, leader_epoch=3, node_id=node, isr=[1], replicas=[1, 2], high_watermark=10)
            for node, role in ((1, Role.LEADER), (2, Role.FOLLOWER))
        }
        self.logs = {node: SimpleNamespace(topic_partition=(OFFSETS, 0), end_offset=10) for node in (1, 2)}
        replicas = {
            node: SimpleNamespace(
                key=(OFFSETS, 0),
                topic=OFFSETS,
                index=0,
                topic_id=topic.id,
                state=state,
                log=self.logs[node],
                is_being_cut=True,
            )
            for node, state in self.states.items()
        }
        table = {
            node: SimpleNamespace(by_name={0: each} if node == 1 else {}, held=lambda _, each=each: each)
            for node, each in replicas.items()
        }
        brokers = [cast(Broker, SimpleNamespace(node_id=node, replicas=each)) for node, each in table.items()]
        self.replication = Replication(self.world, lambda: brokers, lambda: self.image)

    def cut(self, monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
        monkeypatch.setattr(Log, "truncate_to", lambda log, to: setattr(log, "end_offset", to))
        with self.replication.listening():
            Log.truncate_to(cast(Log, self.logs[2]), offset)


def test_a_high_watermark_that_goes_back_in_an_epoch_is_found() -> None:
    cluster = _Cluster()
    cluster.replication.look()
    cluster.states[1].high_watermark = 9
    cluster.states[1].leader_epoch = 4
    cluster.replication.look()
    assert cluster.world.objection is None, "the next leader may know less"
    cluster.states[1].high_watermark = 8
    cluster.replication.look()
    assert str(cluster.world.objection) == f"{OFFSETS}-0 was committed to 9 in epoch 4, and is to 8"


def test_a_log_that_is_cut_below_what_is_committed_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Cluster()
    cluster.cut(monkeypatch, 10)
    assert cluster.world.objection is None
    cluster.cut(monkeypatch, 9)
    assert f"{OFFSETS}-0 is committed to 10, and was cut to 9 on 2" in str(cluster.world.objection)


@pytest.mark.slow
@pytest.mark.parametrize("name", ownership_plants())
def test_two_owners_of_a_moment_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else finds them: the same seed holds where nobody looks at each step."""
    with planted(name):
        for seed in seeds_of(name):
            found = run_seed(seed).objection
            if found is not None:
                break
        assert found is not None and " has it since epoch " in str(found)
        monkeypatch.setattr(Owners, "takes", lambda *_: None)
        assert run_seed(seed).objection is None
