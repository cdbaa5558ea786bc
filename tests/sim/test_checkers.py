"""What the checkers of the simulator object to, and what hears of every call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.uncommitted import Change
from headrace.metadata.delta import ImageDelta
from headrace.metadata.image import ClusterImage
from headrace.raft.control import Voter, kraft_version, voters_record
from headrace.raft.log_view import LogView
from headrace.raft.machine import Raft
from headrace.raft.messages import Position, ReplicaKey
from headrace.raft.voter_set import VoterHistory, VoterSet
from headrace.sim.checkers.deliveries import Claim, Deliveries, Found
from headrace.sim.checkers.history import History
from headrace.sim.checkers.levels import Levels
from headrace.sim.checkers.quorum import Quorum
from headrace.sim.disk import SimDisk
from headrace.sim.moments import after_each, before_each
from headrace.sim.workloads.raising import VersionRaiser
from headrace.sim.world import World

PLACE = ("log", 0)


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> int:
        self.count += number
        return self.count


def test_every_call_is_heard_of_inside_the_block_alone() -> None:
    heard: list[tuple[str, int, int]] = []
    counter = Counter()
    with (
        before_each(Counter, "add", lambda self, number: heard.append(("before", self.count, number))),
        after_each(Counter, "add", lambda self, number: heard.append(("after", self.count, number))),
    ):
        assert counter.add(3) == 3
    counter.add(1)
    assert heard == [("before", 0, 3), ("after", 3, 3)]


def _history() -> tuple[World, History]:
    world = World(1)
    history = History(world)
    history.track(PLACE)
    history.sends(PLACE, "one", 0, [(None, b"a"), (None, b"b")])
    return world, history


def test_what_a_reader_saw_is_there_at_the_end() -> None:
    world, history = _history()
    for offset, value in enumerate((b"a", b"b")):
        history.reads(PLACE, offset, None, value)
    history.is_whole(PLACE, 0, 2, [(0, None, b"a"), (1, None, b"b")])
    assert world.objection is None
    history.is_whole(PLACE, 0, 1, [(0, None, b"a")])
    assert str(world.objection) == "log-0: offset 1 holds None, and b'b' was seen there"
    world.end()


def _raft(node: int, end: int) -> Raft:
    sets = VoterHistory(VoterSet(tuple(Voter(each, bytes(16), ()) for each in (1, 2, 3)), kraft_version=0))
    epochs = [Position(1, 0)] if end else []
    return Raft(ReplicaKey(node), sets, LogView(0, end, epochs), None, jitter=lambda _: 0)


def test_an_epoch_of_the_quorum_has_one_leader() -> None:
    world = World(1)
    voters = {node: _raft(node, 5) for node in (1, 2, 3)}
    quorum = Quorum(world, lambda: voters)
    for node in (1, 1, 2):
        assert world.objection is None
        voters[node].epoch = 2
        quorum._elected(voters[node])
    assert str(world.objection) == "epoch 2 of the quorum has two leaders: 1 and 2"
    assert quorum.newest_epoch == 2
    world.end()


@pytest.mark.parametrize("leaves", [True, False])
def test_a_leader_that_is_gone_has_committed_by_its_own_voters(leaves: bool) -> None:
    """It was left alone in them, and told how far it had committed before anyone had read that."""
    world = World(1)
    running: dict[int, Raft | None] = {1: _raft(1, 0), 2: _raft(2, 5), 3: _raft(3, 0)}
    leader = running[2]
    assert leader is not None
    quorum = Quorum(world, lambda: running)
    leader.epoch = 1
    quorum._elected(leader)
    if leaves:
        leader.sets.note(4, voters_record([Voter(2, bytes(16), ())]))
    running[2] = None
    image = ClusterImage(offset=3, epoch=1)
    driver = cast("QuorumDriver", SimpleNamespace(node_id=1, sets=_raft(1, 0).sets))
    quorum._applied(driver, Change(image, image, ImageDelta(image)))
    says = "node 1 applies metadata up to offset 3 of epoch 1, which voters [1, 3] do not have"
    assert (None if world.objection is None else str(world.objection)) == (None if leaves else says)
    world.end()


def _raised(world: World) -> tuple[dict[int, QuorumDriver], Levels]:
    """Two nodes, of which the first has appended what raises kraft.version, at offsets 3 and 4."""
    rafts = {node: _raft(node, 5) for node in (1, 2)}
    rafts[1].sets.note_all(
        3, [kraft_version(1), voters_record([Voter(node, bytes([node]) * 16, ()) for node in (1, 2)])]
    )
    nodes = {node: cast("QuorumDriver", SimpleNamespace(raft=raft, sets=raft.sets)) for node, raft in rafts.items()}
    for raft in rafts.values():
        raft._take_voters()
    return nodes, Levels(world, lambda: nodes)


@pytest.mark.parametrize("committed", [True, False])
def test_a_level_that_is_committed_is_that_of_every_leader(committed: bool) -> None:
    world = World(1)
    nodes, levels = _raised(world)
    nodes[1].raft.high_watermark = 5 if committed else 3
    levels._elected(nodes[2].raft)
    says = "node 2 leads epoch 0 at kraft.version 0, which was raised before"
    assert (None if world.objection is None else str(world.objection)) == (says if committed else None)
    assert levels.is_final is committed
    world.end()


def test_at_rest_all_nodes_are_at_the_level_that_was_confirmed() -> None:
    world = World(1)
    nodes, levels = _raised(world)
    (differ,) = levels.differences()
    assert differ.startswith("the nodes' voters differ")
    del nodes[1]
    assert levels.differences() == []
    raiser = cast("VersionRaiser", SimpleNamespace(confirmed=True))
    levels.hear(raiser)
    assert levels.differences() == ["node 2 is at kraft.version 0"]
    world.end()


def test_nothing_is_left_behind_by_a_checker() -> None:
    world = World(1)
    real = vars(QuorumDriver)["_publish"]
    with Quorum(world, dict).listening():
        assert vars(QuorumDriver)["_publish"] is not real
    assert vars(QuorumDriver)["_publish"] is real
    world.end()


def test_a_new_disk_is_empty() -> None:
    world = World(1)
    disk = SimDisk(world.rng("disk"))
    disk.make_dirs("/data/a")
    disk.write_file_atomically("/data/a/file", b"synced")
    disk.empty()
    disk.crash()
    assert disk.is_dir("/data")
    assert disk.list("/data") == []
    world.end()


def delivered(*found: tuple[int, int], ends: tuple[int, ...] = (2, 5), **known: Any) -> list[str]:
    """What is wrong with records in one partition, each by its write and number."""
    deliveries = Deliveries("q", lambda write, number: write == 0 or number % 3 == 0, 2)
    deliveries.found["t", 0] = [Found(offset, *each) for offset, each in enumerate(found)]
    deliveries.ends, deliveries.marked = ends, (len(ends) - 1, 2)
    for name, value in known.items():
        setattr(deliveries, name, value)
    return list(deliveries.faults())


WHOLE = ((0, 0), (0, 1), (1, 0), (0, 2), (0, 4), (0, 3), (1, 3))


def test_deliveries_that_are_whole_and_in_order_have_no_fault() -> None:
    assert delivered(*WHOLE) == []
    claims = [Claim("run", 1, 0, 2, 5), Claim("late", 7, 0, 5, 9)]
    assert delivered(*WHOLE, claims=claims, spans=[(("t", 0), 3, 4)]) == []


@pytest.mark.parametrize(
    ("found", "known", "fault"),
    [
        (WHOLE[1:], {}, "records [0] of write 0 of q are lost"),
        ((*WHOLE, (1, 3)), {}, "records [3] of write 1 of q are there more than once"),
        ((*WHOLE, (0, 5)), {}, "records [5] of write 0 of q are there, and of no batch that is done"),
        ((WHOLE[3], *WHOLE[:3], *WHOLE[4:]), {}, "lie in ('t', 0) in the order [1, 0, 0, 1, 1]"),
        (WHOLE, {"claims": [Claim("run", 1, 0, 2, 6)]}, "run got write 0 of batch 1 of q confirmed"),
        (WHOLE, {"marked": (1, 1)}, "the mark of q names batch (1, 1)"),
        (WHOLE, {"spans": [(("t", 0), 3, 3)]}, "the last batch of q is reported at"),
    ],
)
def test_deliveries_that_break_a_promise(found: Any, known: Any, fault: str) -> None:
    assert any(fault in each for each in delivered(*found, **known))
