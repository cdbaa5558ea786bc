"""Voter sets by offset, and what a leader answers to whoever wants to change them."""

from __future__ import annotations

import pytest
from raft.test_machine import KEYS, VOTERS, leader

from headrace.raft import events as ev
from headrace.raft.control import Voter, VoterEndpoint, kraft_version, voters_record
from headrace.raft.leader import Leader
from headrace.raft.log_view import LogView
from headrace.raft.machine import Raft
from headrace.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    SupportResponse,
    UpdateVoterRequest,
    VoterResponse,
)
from headrace.raft.voter_set import NOT_IN_LOG, VoterHistory, VoterSet
from headrace.wire.errors import ErrorCode

ENDPOINTS = (VoterEndpoint("CONTROLLER", "node9", 9093),)
ADD = AddVoterRequest(KEYS[9], ENDPOINTS)


def sets(*sizes: int) -> list[VoterSet]:
    return [VoterSet(tuple(VOTERS[:size])) for size in sizes]


def test_a_set_is_in_force_from_its_record_on() -> None:
    one, two, three = sets(1, 2, 3)
    history = VoterHistory(one)
    history.note_all(4, [None, kraft_version(1), voters_record(two.voters)])
    history.note(9, voters_record(three.voters))
    assert (history.newest, history.newest_offset) == (three, 9)
    assert [history.at(end) for end in (0, 6, 7, 9, 10, 99)] == [one, one, two, two, three, three]
    history.truncate(9)
    assert (history.newest, history.newest_offset) == (two, 6)
    history.shorten(7)
    assert history.at(0) == two, "what was before a snapshot is gone"
    history.start_at(20, three)
    assert (history.newest, history.newest_offset) == (three, 19)
    history.start_at(30, None)
    assert history.newest == three


def test_a_truncation_of_everything_leaves_what_the_settings_name() -> None:
    one, two = sets(1, 2)
    history = VoterHistory(one)
    history.note(0, voters_record(two.voters))
    history.truncate(0)
    assert (history.newest, history.newest_offset) == (one, NOT_IN_LOG)


def test_a_set_is_in_the_order_of_its_ids() -> None:
    (three,) = sets(3)
    moved = VOTERS[0]._replace(endpoints=ENDPOINTS)
    assert three.with_voter(moved).voters == (moved, *VOTERS[1:])
    assert three.without(KEYS[2]).voters == (VOTERS[0], VOTERS[2])
    assert three.without(ReplicaKey(2, b"x" * 16)) == three, "another directory is another voter"


# --- the leader


def asked(raft: Raft, request: Request, now: int = 1000) -> ev.Output:
    return raft.step(ev.Requested("q", request), now)


def established(fetches_of_9: bool = True) -> Raft:
    """Node 1 leads epoch 1 with one entry, which is committed; node 9 follows as an observer."""
    raft = leader()
    asked(raft, FetchRequest(1, KEYS[2], 1, 1))
    assert raft.is_active
    if fetches_of_9:
        asked(raft, FetchRequest(1, KEYS[9], 1, 1))
    return raft


def answer(out: ev.Output) -> tuple[ErrorCode, str | None]:
    (message,) = (reply.message for reply in out.reply if isinstance(reply.message, VoterResponse))
    return message.error, message.message


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (AddVoterRequest(ReplicaKey(9), ENDPOINTS), ErrorCode.INVALID_REQUEST),
        (AddVoterRequest(KEYS[9], ()), ErrorCode.INVALID_REQUEST),
        (AddVoterRequest(ReplicaKey(2, b"n" * 16), ENDPOINTS), ErrorCode.DUPLICATE_VOTER),
        (RemoveVoterRequest(ReplicaKey(2)), ErrorCode.INVALID_REQUEST),
        (RemoveVoterRequest(ReplicaKey(2, b"n" * 16)), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoterRequest(0, VOTERS[1]), ErrorCode.FENCED_LEADER_EPOCH),
        (UpdateVoterRequest(2, VOTERS[1]), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (UpdateVoterRequest(1, VOTERS[1]._replace(directory_id=b"n" * 16)), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoterRequest(1, VOTERS[1]._replace(max_kraft_version=0)), ErrorCode.INVALID_REQUEST),
        (UpdateVoterRequest(1, VOTERS[1]._replace(endpoints=())), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_done_is_refused(request_: Request, error: ErrorCode) -> None:
    raft = established()
    out = asked(raft, request_)
    assert answer(out)[0] is error and not out.append


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (SupportResponse((0, 0)), ErrorCode.INVALID_REQUEST),
        (SupportResponse((2, 3)), ErrorCode.INVALID_REQUEST),
        (SupportResponse((0, 1), ErrorCode.UNSUPPORTED_VERSION), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_node_that_does_not_run_the_finalized_level_is_not_added(said: SupportResponse, error: ErrorCode) -> None:
    raft = established()
    (send,) = asked(raft, ADD).send
    assert (send.peer, send.endpoint) == (9, ENDPOINTS[0])
    out = raft.step(ev.Answered(9, send.number, said), 1000)
    assert answer(out)[0] is error and not out.append
    assert asked(raft, ADD, 1100).send, "it may be asked for again"


def test_a_node_that_lacks_something_is_not_added() -> None:
    raft = established(fetches_of_9=False)
    (send,) = asked(raft, ADD).send
    out = raft.step(ev.Answered(9, send.number, SupportResponse((0, 1))), 1000)
    assert answer(out)[0] is ErrorCode.REQUEST_TIMED_OUT


def test_a_node_that_cannot_be_reached_is_not_added() -> None:
    raft = established()
    (send,) = asked(raft, ADD).send
    assert answer(raft.step(ev.Unreachable(9, send.number), 1000))[0] is ErrorCode.REQUEST_TIMED_OUT


def test_one_change_at_a_time_and_the_next_after_its_commit() -> None:
    raft = established()
    out = asked(raft, RemoveVoterRequest(KEYS[3]))
    assert out.append and not out.reply and raft.majority == 2
    for request in (ADD, RemoveVoterRequest(KEYS[2]), UpdateVoterRequest(1, VOTERS[1])):
        assert answer(asked(raft, request))[0] is ErrorCode.REQUEST_TIMED_OUT
    out = raft.step(ev.Tick(), 1000 + raft.settings.request_timeout_ms)
    assert answer(out)[0] is ErrorCode.REQUEST_TIMED_OUT, "who asked waits no longer"
    assert answer(asked(raft, RemoveVoterRequest(KEYS[2]), 3000))[0] is ErrorCode.REQUEST_TIMED_OUT
    raft.step(ev.Synced(raft.log.last), 3000)
    asked(raft, FetchRequest(1, KEYS[2], 1, 2), 3000)
    assert raft.high_watermark == 2
    assert asked(raft, RemoveVoterRequest(KEYS[2]), 3000).append


def test_a_leader_that_is_deposed_says_so_to_whoever_waits() -> None:
    raft = established()
    asked(raft, RemoveVoterRequest(KEYS[3]))
    out = raft.step(ev.Resign(), 1000)
    assert answer(out) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


def test_before_something_of_its_epoch_is_committed_a_leader_changes_nothing() -> None:
    raft = leader(LogView())
    assert isinstance(raft.role, Leader) and not raft.is_active
    assert answer(asked(raft, ADD))[0] is ErrorCode.REQUEST_TIMED_OUT


def test_at_kraft_version_0_the_voters_stay() -> None:
    voter = Voter(1, bytes(16), ENDPOINTS)
    raft = Raft(ReplicaKey(1), VoterHistory(VoterSet((voter,), kraft_version=0)), LogView(), None, jitter=lambda _: 0)
    raft.start(0)
    raft.step(ev.Synced(raft.log.last), 0)
    for request in (ADD, RemoveVoterRequest(KEYS[2])):
        assert answer(asked(raft, request))[0] is ErrorCode.UNSUPPORTED_VERSION
    assert answer(asked(raft, UpdateVoterRequest(1, VOTERS[2])))[0] is ErrorCode.VOTER_NOT_FOUND
    assert raft.sets.newest.voters == (voter,)
