"""Random schedules in which voters come and go, lose their disks and join again, beside all that other schedules do.

`Cluster` checks the promises after every step: one leader an epoch, nothing committed lost, what is committed synced by
a majority of the newest set that the log names, and that set in force. Planted faults show that the checks find
something.
"""

from __future__ import annotations

import pytest
from peers.tried import tried
from raft.cluster import OUTSIDE, Cluster, Node
from raft.test_schedules import STEPS, Schedule

from headrace.raft.control import ControlType
from headrace.raft.machine import Raft
from headrace.raft.voter_changes import VoterChanges
from headrace.raft.voter_set import NOT_IN_LOG, VoterHistory

SEEDS = tried(50)


class VoterSchedule(Schedule):
    """One seed's run: some nodes vote at first, the others know where those are."""

    def __init__(self, seed: int, size: int = 3, others: int = 2) -> None:
        super().__init__(seed, size)
        cluster = self.cluster
        for node_id in cluster.nodes:
            cluster.crash(node_id)
        cluster.network.clear()
        cluster.leaders.clear()
        for node in cluster.nodes.values():
            node.log, node.synced, node.saved = [], 0, None
        cluster.committed, cluster.commit_epochs = [], []
        cluster.first_offset = NOT_IN_LOG
        cluster.names_itself = self.random.random() < 0.5
        for node_id in range(size + 1, size + 1 + others):
            cluster.add_observer(node_id, tuple(range(1, size + 1)))
        for node in cluster.nodes.values():
            cluster.start(node.id)
            node.holds_syncs = True
        self.changes = self.random.choice((0.02, 0.1))

    def act(self) -> None:
        if self.random.random() >= self.changes:
            super().act()
        else:
            self.change()

    def change(self) -> None:
        nodes = self.cluster.nodes
        leads = [node for node in nodes.values() if node.raft is not None and node.raft.leads]
        other = nodes[self.random.randrange(len(nodes)) + 1]
        if other.raft is None and not self.counts(other):
            self.cluster.wipe(other.id)
        elif leads and self.random.random() < 0.7:
            self.cluster.ask_to_add(leads[-1].id, other.id, OUTSIDE, acks_when_committed=self.random.random() < 0.5)
        elif leads:
            self.cluster.ask_to_remove(leads[-1].id, other.key, OUTSIDE)

    def counts(self, node: Node) -> bool:
        """Whether any log names this disk: its loss could be more than a minority's."""
        histories = [self.cluster.history(each) for each in self.cluster.nodes.values()]
        return any(node.key in voters.keys for history in histories for voters in history.since(0))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_change_of_the_voters_breaks_a_promise(size: int) -> None:
    changes = 0
    lines: list[str] = []
    for seed in range(SEEDS):
        schedule = VoterSchedule(seed, size)
        schedule.cluster.say = lines.append
        schedule.run(2 * STEPS)
        schedule.heal()
        changes += sum(entry.payload == ControlType.KRAFT_VOTERS.name for entry in schedule.cluster.committed)
    assert changes > 2 * SEEDS, "the schedules do nothing"


def found(seeds: int = 400, first: int = 0) -> str:
    """What the checks say of the first schedule that they object to; `first` is near the one that does so today."""
    for seed in range(first, first + seeds):
        schedule = VoterSchedule(seed)
        try:
            schedule.run(2 * STEPS)
        except AssertionError as objection:
            return f"{type(objection).__name__}: {objection}"
    return ""


def test_a_set_that_a_truncation_leaves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VoterHistory, "truncate", lambda *_: None)
    assert found()


def test_a_majority_of_the_set_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Raft._take_voters

    def late(self: Raft) -> None:
        before = getattr(self, "majority", 0)
        real(self)
        self.majority = min(before or self.majority, self.majority)

    monkeypatch.setattr(Raft, "_take_voters", late)
    assert found().startswith("Lost")


def test_changes_without_waiting_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sets that lie two changes apart, majorities need not have a voter in common."""
    monkeypatch.setattr(VoterChanges, "_refusal", lambda *_: None)
    assert found(first=20)


def test_a_crash_of_every_node_leaves_the_voters_as_they_were() -> None:
    schedule = VoterSchedule(3)
    schedule.run(2 * STEPS)
    schedule.heal()
    cluster: Cluster = schedule.cluster
    before = {node.id: cluster.history(node).newest for node in cluster.nodes.values()}
    for node_id in cluster.nodes:
        cluster.crash(node_id)
    for node_id in cluster.nodes:
        cluster.start(node_id)
    after = {node.id: node.raft.sets.newest for node in cluster.nodes.values() if node.raft is not None}
    assert after == before
