"""Single answers of the machine that no transcript shows: old peers, observers, answers that come late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.raft import events as ev
from headrace.raft import leader as leading
from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.log_view import LogView
from headrace.raft.machine import Raft
from headrace.raft.messages import (
    BeginQuorumEpochRequest,
    Entries,
    FetchRequest,
    FetchResponse,
    Position,
    ReplicaKey,
    VoteResponse,
)
from headrace.raft.peers import RaftSettings
from headrace.raft.roles import Candidate, Follower, Unattached
from headrace.raft.voter_set import VoterHistory, VoterSet
from headrace.wire.errors import ErrorCode

KEYS = {i: ReplicaKey(i, bytes([i]) * 16) for i in (1, 2, 3, 9)}
VOTERS = [Voter(i, KEYS[i].directory_id, (VoterEndpoint("CONTROLLER", f"node{i}", 9093),)) for i in (1, 2, 3)]


def node(node_id: int, log: LogView | None = None) -> Raft:
    # The voters are in the log: a leader's first entry stands alone.
    sets = VoterHistory(VoterSet(tuple(VOTERS)), 0)
    raft = Raft(KEYS[node_id], sets, log or LogView(), None, jitter=lambda _: 0)
    raft.start(0)
    return raft


def follower(node_id: int = 2, log: LogView | None = None) -> tuple[Raft, ev.Send]:
    """A follower of node 1 in epoch 1, with its first fetch."""
    raft = node(node_id, log)
    out = raft.step(ev.Requested("t", BeginQuorumEpochRequest(1, 1, KEYS[node_id])), 0)
    (fetch,) = out.send
    assert isinstance(raft.role, Follower)
    return raft, fetch


def leader(log: LogView | None = None) -> Raft:
    """Node 1, elected with the vote of node 2."""
    raft = node(1, log)
    out = raft.step(ev.Tick(), 1000)
    for pre_vote in (True, False):
        send = next(send for send in out.send if send.peer == 2)
        out = raft.step(ev.Answered(2, send.number, VoteResponse(raft.epoch, None, True, pre_vote)), 1000)
    assert raft.leads
    raft.step(ev.Synced(raft.log.last), 1000)
    return raft


def test_what_an_earlier_leader_wrote_is_committed_with_an_entry_of_this_epoch_alone() -> None:
    """A majority may have it, and a later leader still lack it (the Raft paper's figure 8)."""
    raft = leader(LogView(0, 3, [Position(1, 0)]))
    assert raft.log.last == (2, 4)
    out = raft.step(ev.Requested("f", FetchRequest(2, KEYS[2], 1, 3)), 1000)
    assert out.committed is None and raft.high_watermark == -1 and not raft.is_active
    out = raft.step(ev.Requested("f", FetchRequest(2, KEYS[2], 2, 4)), 1000)
    assert out.committed == 4 and raft.is_active


def test_who_lacks_what_a_snapshot_replaced_gets_the_snapshot() -> None:
    raft = leader(LogView(5, 8, [Position(3, 6)], start_epoch=2))
    for last_epoch, offset in ((0, 0), (1, 6), (2, 4)):
        out = raft.step(ev.Requested("f", FetchRequest(raft.epoch, KEYS[2], last_epoch, offset)), 1000)
        message = out.reply[0].message
        assert isinstance(message, FetchResponse) and message.snapshot == (2, 5)
    out = raft.step(ev.Requested("f", FetchRequest(raft.epoch, KEYS[2], 2, 5)), 1000)
    assert (out.reply[0].read_from, out.reply[0].read_to) == (5, 9)


def test_a_voter_that_does_not_know_pre_votes_is_asked_for_its_vote() -> None:
    raft = node(1)
    out = raft.step(ev.Tick(), 1000)
    answer = VoteResponse(0, None, False, True, ErrorCode.UNSUPPORTED_VERSION)
    raft.step(ev.Answered(2, out.send[0].number, answer), 1000)
    assert isinstance(raft.role, Candidate) and raft.epoch == 1


def test_an_observer_never_stands() -> None:
    raft = node(9)
    assert isinstance(raft.role, Unattached)
    raft.step(ev.Tick(), 0)
    out = raft.step(ev.Requested("t", BeginQuorumEpochRequest(1, 1, KEYS[9])), 0)
    assert isinstance(raft.role, Follower)
    assert [send.peer for send in out.send] == [1]
    out = raft.step(ev.Tick(), 2000)
    assert isinstance(raft.role, Unattached), "it asks who leads now"
    raft.step(ev.Answered(1, out.send[0].number, FetchResponse(1, 1, error=ErrorCode.FENCED_LEADER_EPOCH)), 2000)
    assert isinstance(raft.role, Follower)


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    raft, fetch = follower()
    entries = (Entries(0, 1, 2, ("a", "b")),)
    late = ev.Answered(1, fetch.number, FetchResponse(1, 1, 1, entries))
    assert raft.step(late, 10).append == list(entries)
    assert raft.step(late, 11) == ev.Output()


def test_entries_that_do_not_continue_the_log_are_left_out() -> None:
    for wrong in (Entries(3, 1, 1, ("x",)), Entries(2, 7, 1, ("x",)), Entries(2, 0, 1, ("x",))):
        raft, fetch = follower()
        first = Entries(0, 1, 2, ("a", "b"))
        out = raft.step(ev.Answered(1, fetch.number, FetchResponse(1, 1, 9, (first, wrong))), 10)
        assert out.append == [first] and raft.log.last == (1, 2)
        assert out.committed == 2
        assert raft.heard_high_watermark == 9  # of what it knows to lack seven


def test_a_follower_fetches_on_once_it_has_synced() -> None:
    raft, fetch = follower()
    answer = FetchResponse(1, 1, 0, (Entries(0, 1, 2, ("a", "b")),))
    assert not raft.step(ev.Answered(1, fetch.number, answer), 10).send
    (again,) = raft.step(ev.Synced(raft.log.last), 20).send
    assert isinstance(again.message, FetchRequest) and again.message.offset == 2


def test_a_leader_that_is_unreachable_is_asked_again_after_a_pause() -> None:
    raft, fetch = follower()
    assert not raft.step(ev.Unreachable(1, fetch.number), 10).send
    assert raft.deadline_ms() == 30
    assert len(raft.step(ev.Tick(), 30).send) == 1


def test_fetches_that_wait_are_answered_when_the_leader_is_deposed() -> None:
    raft = leader()
    request = FetchRequest(1, KEYS[2], 1, 1, 1, wait_ms=500)
    raft.step(ev.Requested("f", request), 1000)
    assert not raft.step(ev.Requested("g", replace(request, replica=KEYS[3])), 1000).reply
    out = raft.step(ev.Requested("t", BeginQuorumEpochRequest(2, 2, KEYS[1])), 1100)
    answers = {reply.token: reply.message.error for reply in out.reply}
    assert answers == {
        "t": ErrorCode.NONE,
        "f": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "g": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }


def test_a_fetch_that_waited_long_enough_is_answered_with_nothing() -> None:
    raft = leader()
    raft.step(ev.Requested("f", FetchRequest(1, KEYS[2], 1, 1, 1, wait_ms=500)), 1000)
    assert raft.deadline_ms() == 1500
    (reply,) = raft.step(ev.Tick(), 1500).reply
    assert reply.token == "f" and reply.read_from == reply.read_to


def test_no_more_fetches_wait_than_the_bound_says() -> None:
    raft = leader()
    request = FetchRequest(1, KEYS[2], 1, 1, 1, wait_ms=500)
    raft.step(ev.Requested("first", request), 1000)
    for number in range(leading.PARKED_MAX + 10):
        out = raft.step(ev.Requested(number, replace(request, replica=ReplicaKey(100 + number))), 1000)
        assert bool(out.reply) == (number >= leading.PARKED_MAX - 1)


def test_at_kraft_version_0_a_voter_is_known_by_its_id_and_an_observer_by_its_directory_too() -> None:
    voters = [voter._replace(directory_id=bytes(16)) for voter in VOTERS]
    sets = VoterHistory(VoterSet(tuple(voters), kraft_version=0))
    raft = Raft(ReplicaKey(1), sets, LogView(), None, jitter=lambda _: 0)
    raft.start(0)
    out = raft.step(ev.Tick(), 1000)
    for pre_vote in (True, False):
        send = next(send for send in out.send if send.peer == 2)
        out = raft.step(ev.Answered(2, send.number, VoteResponse(raft.epoch, None, True, pre_vote)), 1000)
    raft.step(ev.Synced(raft.log.last), 1000)
    assert isinstance(raft.role, leading.Leader)
    assert raft.step(ev.Requested("v", FetchRequest(1, KEYS[2], 1, 1)), 1000).committed == 1
    raft.step(ev.Requested("o", FetchRequest(1, KEYS[9], 1, 1)), 1000)
    assert list(raft.role.observers) == [KEYS[9]]


def test_a_replica_that_had_all_when_it_last_fetched_was_caught_up_then() -> None:
    raft = leader()
    assert isinstance(raft.role, leading.Leader)
    request = FetchRequest(1, KEYS[9], 1, 1)
    raft.step(ev.Requested("f", request), 1000)
    for now in (1200, 1300):
        raft.step(ev.Propose(1, ("x",)), now)
        raft.step(ev.Synced(raft.log.last), now)
    raft.step(ev.Requested("f", request), 1300)
    seen = raft.role.observers[KEYS[9]]
    assert (seen.end_offset, seen.fetched_ms, seen.caught_up_ms) == (1, 1300, 1000)
    raft.step(ev.Requested("f", replace(request, offset=2)), 1400)
    assert (seen.end_offset, seen.fetched_ms, seen.caught_up_ms) == (2, 1400, 1000), "it lacked one the time before"
    raft.step(ev.Requested("f", replace(request, offset=3)), 1500)
    assert seen.caught_up_ms == 1500


def test_a_leader_remembers_no_more_observers_than_the_bound_says() -> None:
    raft = leader()
    assert isinstance(raft.role, leading.Leader)
    for number in range(leading.OBSERVERS_MAX + 10):
        raft.step(ev.Requested(number, FetchRequest(1, ReplicaKey(100 + number), 1, 1)), 1000)
    assert len(raft.role.observers) == leading.OBSERVERS_MAX
    raft.role.forget_silent_observers(1000 + leading.OBSERVER_SESSION_MS)
    assert not raft.role.observers


def test_a_leader_that_was_not_known_is_followed_where_voters_come_and_go() -> None:
    unknown = FetchResponse(3, 7, error=ErrorCode.FENCED_LEADER_EPOCH)
    raft = Raft(KEYS[9], VoterHistory(VoterSet()), LogView(), None, jitter=lambda _: 0, bootstrap=1)
    (asked,) = raft.start(0).send
    assert asked.peer == -2
    (fetch,) = raft.step(ev.Answered(-2, asked.number, unknown), 5).send
    assert fetch.peer == 7 and isinstance(raft.role, Follower)
    for level, role in ((0, Unattached), (1, Follower)):
        sets = VoterHistory(VoterSet(tuple(VOTERS), level), 0)
        voter = Raft(KEYS[2], sets, LogView(), None, jitter=lambda _: 0)
        voter.start(0)
        (fetch,) = voter.step(ev.Requested("t", BeginQuorumEpochRequest(1, 1, KEYS[2])), 0).send
        voter.step(ev.Answered(1, fetch.number, unknown), 5)
        assert isinstance(voter.role, role) and voter.epoch == 3


def test_an_observer_whose_leader_refuses_connections_asks_the_others_after_a_pause() -> None:
    raft = node(9)
    (fetch,) = raft.step(ev.Requested("t", BeginQuorumEpochRequest(1, 3, KEYS[9])), 0).send
    out = raft.step(ev.Unreachable(3, fetch.number, refused=True), 10)
    assert isinstance(raft.role, Unattached) and not out.send
    deadline = raft.deadline_ms()
    assert deadline == 10 + raft.settings.early_election_ms
    assert [send.peer for send in raft.step(ev.Tick(), deadline).send] == [1]


def test_voters_that_notice_a_death_together_do_not_share_out_the_votes() -> None:
    """They stand one after the other, whatever they draw, the next one in a ring after the dead one first."""
    early_ms = RaftSettings().early_election_ms

    def stands_after_ms(voter: Raft, dead: int, draw: Callable[[int], int]) -> int:
        voter.jitter = draw
        begin = BeginQuorumEpochRequest(1, dead, voter.me)
        (fetch,) = voter.step(ev.Requested("t", begin), 0).send
        voter.step(ev.Unreachable(dead, fetch.number, refused=True), 0)
        until_ms = voter.deadline_ms()
        return until_ms if isinstance(voter.role, Unattached) and until_ms is not None else 0

    for dead, first, second in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        latest = stands_after_ms(node(first), dead, lambda below: below - 1)
        assert stands_after_ms(node(first), dead, lambda _: 0) == 0 < latest < early_ms // 2
        assert stands_after_ms(node(second), dead, lambda _: 0) == early_ms


@pytest.mark.parametrize(
    ("kraft_version", "directory_id", "me"),
    [
        (0, bytes(16), ReplicaKey(1, bytes(16))),  # what all others call it
        (1, KEYS[1].directory_id, KEYS[1]),
        (1, KEYS[2].directory_id, KEYS[1]),  # the voter is what it was before its disk was lost
    ],
)
def test_a_node_votes_under_the_name_that_the_others_know(
    kraft_version: int, directory_id: bytes, me: ReplicaKey
) -> None:
    voters = (VOTERS[0]._replace(directory_id=directory_id), *VOTERS[1:])
    sets = VoterHistory(VoterSet(voters, kraft_version=kraft_version))
    assert Raft(KEYS[1], sets, LogView(), None, jitter=lambda _: 0).me == me


def test_an_observer_is_known_by_its_directory() -> None:
    sets = VoterHistory(VoterSet(tuple(VOTERS), kraft_version=0))
    assert Raft(KEYS[9], sets, LogView(), None, jitter=lambda _: 0).me == KEYS[9]
