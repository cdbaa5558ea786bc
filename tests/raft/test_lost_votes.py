"""A voter that has lost its log and its votes: what it promised to others, it does not know any longer.

It may have helped to elect a leader and to commit its entries. A leader that was deposed and does not know it must not
get from it what it needs to go on: no vote, no entry that counts, and no word that this voter is complete.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from raft.cluster import Cluster, Message

from headrace.raft import events as ev
from headrace.raft.messages import Request, VoteRequest

PATIENCE_MS = 60_000


class Parted(Cluster):
    """Three or five voters, and pairs of them between which nothing passes."""

    def __init__(self, size: int) -> None:
        super().__init__(size, lambda node, n: n * node // 10)
        self.cut: set[frozenset[int]] = set()
        for node_id in self.nodes:
            self.start(node_id)

    def cut_off(self, node_id: int, *others: int) -> None:
        self.cut |= {frozenset((node_id, other)) for other in others or self.nodes if other != node_id}

    def rejoin(self, node_id: int, *others: int) -> None:
        self.cut -= {frozenset((node_id, other)) for other in others or self.nodes if other != node_id}

    def until(self, look: Callable[[], object], *, patience_ms: int = PATIENCE_MS) -> bool:
        """Time passes, and messages with it, until it is so; whether it came to be."""
        last = self.now + patience_ms
        while not look():
            if self.now >= last:
                return False
            if self.network:
                self._pass_on(self.network.pop(0))
                continue
            self.now += 10
            for node in self.nodes.values():
                due = None if node.raft is None else node.raft.deadline_ms()
                if due is not None and due <= self.now:
                    self.step(node.id, ev.Tick())
        return True

    def _pass_on(self, message: Message) -> None:
        if frozenset((message.source, message.target)) not in self.cut:
            self.deliver(message)
        elif isinstance(message.content, Request):
            self.lose(message)

    def leader(self, among: tuple[int, ...] = ()) -> int:
        """Waits for one that has committed something of its own."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [n.id for n in self.nodes.values() if n.raft is not None and n.raft.is_active]
            found[:] = [each for each in found if not among or each in among]
            return bool(found)

        assert self.until(look), "nobody leads"
        return found[0]

    def commit(self, leader: int, payload: str) -> bool:
        """Whether it is committed within an election or two."""
        assert self.propose(leader, [payload])
        return self.until(lambda: any(each.payload == payload for each in self.committed), patience_ms=5000)


def deposed(size: int) -> tuple[Parted, int, int, list[int]]:
    """A leader that does not know that another one was elected, with the help of the last of the others, which loses
    everything then; the nodes that the first leader does not reach, the second leader first."""
    cluster = Parted(size)
    first = cluster.leader()
    assert cluster.commit(first, "a")
    others = [node_id for node_id in cluster.nodes if node_id != first]
    cluster.cut_off(first)
    stands = others[0]
    raft = cluster.nodes[stands].raft
    assert raft is not None
    raft.become_leaderless()  # it looks as if the first leader's process were gone
    cluster.step(stands, ev.Tick())
    second = cluster.leader(tuple(others))
    forgetful = next(each for each in reversed(others) if each != second)
    if size == 5:
        silent = next(each for each in others if each not in (second, forgetful))
        cluster.cut_off(silent)
    assert cluster.commit(second, "b"), "by the second leader and the forgetful one, among others"
    cluster.crash(forgetful)
    cluster.forget(forgetful)
    leads = cluster.nodes[first].raft
    assert leads is not None and leads.leads, "the first leader does not know"
    apart = [second, *(each for each in others if each not in (second, forgetful))]
    return cluster, first, forgetful, apart


def test_a_deposed_leader_gets_nothing_from_a_voter_that_lost_its_votes() -> None:
    cluster, first, forgetful, apart = deposed(3)
    cluster.cut_off(forgetful, *apart)
    cluster.rejoin(first, forgetful)
    cluster.start(forgetful)
    assert not cluster.commit(first, "c"), "the checks of the cluster say what that would break"
    assert cluster.nodes[forgetful].is_incomplete
    for each in apart:
        cluster.rejoin(each)
    cluster.leader()
    assert cluster.until(lambda: not cluster.nodes[forgetful].is_incomplete)
    assert cluster.commit(cluster.leader(), "d")
    assert [each.payload for each in cluster.committed if len(each.payload) == 1] == ["a", "b", "d"]


def test_it_forgets_again_what_it_heard_before_it_heard_enough() -> None:
    cluster, first, forgetful, apart = deposed(3)
    cluster.cut_off(forgetful, *apart)
    cluster.rejoin(first, forgetful)
    for _ in range(2):
        cluster.start(forgetful)
        assert not cluster.until(lambda: False, patience_ms=300)
        assert cluster.nodes[forgetful].saved is None
        cluster.crash(forgetful)
    cluster.start(forgetful)
    assert not cluster.commit(first, "c")


@pytest.mark.parametrize("size", [3, 5])
def test_it_goes_on_when_as_many_are_there_as_might_know_better(size: int) -> None:
    cluster, first, forgetful, apart = deposed(size)
    for each in cluster.nodes:
        cluster.rejoin(each)
    if size == 5:
        cluster.cut_off(first)  # three of four others are enough, and two of two
    cluster.start(forgetful)
    assert cluster.until(lambda: not cluster.nodes[forgetful].is_incomplete)
    assert cluster.commit(cluster.leader((*apart, forgetful)), "d")


def test_a_voter_that_lost_its_log_alone_goes_by_the_leader() -> None:
    """Its votes say which epochs it has a part in, so one leader of the newest of them is enough."""
    cluster = Parted(3)
    first = cluster.leader()
    assert cluster.commit(first, "a")
    emptied, away = (node_id for node_id in cluster.nodes if node_id != first)
    cluster.crash(away)
    cluster.crash(emptied)
    cluster.empty(emptied)
    cluster.start(emptied)
    assert cluster.until(lambda: not cluster.nodes[emptied].is_incomplete)


def test_it_gives_no_vote_meanwhile() -> None:
    cluster, first, forgetful, _ = deposed(3)
    cluster.cut_off(forgetful)
    cluster.start(forgetful)
    raft = cluster.nodes[forgetful].raft
    assert raft is not None and not raft.may_campaign
    stale = cluster.nodes[first].raft
    assert stale is not None
    asked = VoteRequest(9, stale.key, raft.key, stale.log.last, pre_vote=False)
    out = raft.step(ev.Requested("t", asked), cluster.now)
    assert not out.reply[0].message.granted  # type: ignore[union-attr]
