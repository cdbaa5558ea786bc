"""A follower that loads a snapshot, piece by piece, and a leader that hands it out: single steps of the machine."""

from __future__ import annotations

import pytest
from raft.test_machine import KEYS, follower, leader

from headrace.raft import events as ev
from headrace.raft.leader import SNAPSHOT_BYTES_MAX
from headrace.raft.log_view import LogView
from headrace.raft.machine import Raft
from headrace.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
)
from headrace.raft.roles import Follower, Prospective
from headrace.wire.errors import ErrorCode

END = Position(1, 7)


def loading(end: Position = END) -> tuple[Raft, ev.Send]:
    """A follower of node 1 in epoch 1, with its question for the first piece."""
    raft, fetch = follower()
    out = raft.step(ev.Answered(1, fetch.number, FetchResponse(1, 1, 9, snapshot=end)), 10)
    (send,) = out.send
    assert send.message == FetchSnapshotRequest(1, KEYS[2], end, 0, 1024 * 1024)
    return raft, send


def piece(position: int, data: bytes, size: int, end: Position = END) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(1, 1, end, position, size, data)


def test_pieces_are_asked_for_as_they_are_stored() -> None:
    raft, send = loading()
    out = raft.step(ev.Answered(1, send.number, piece(0, b"abcd", 6)), 20)
    assert out.piece == ev.Piece(END, 0, b"abcd", False) and not out.send
    (send,) = raft.step(ev.PieceStored(END, 4), 30).send
    assert isinstance(send.message, FetchSnapshotRequest) and send.message.position == 4
    out = raft.step(ev.Answered(1, send.number, piece(4, b"ef", 6)), 40)
    assert out.piece == ev.Piece(END, 4, b"ef", True)
    out = raft.step(ev.SnapshotLoaded(END), 50)
    assert (out.install, out.committed, raft.log.last, raft.high_watermark) == (END, 7, END, 7)
    (send,) = out.send
    assert isinstance(send.message, FetchRequest) and (send.message.last_fetched_epoch, send.message.offset) == END


def test_a_follower_that_stores_for_long_stays_in_contact() -> None:
    raft, send = loading()
    raft.step(ev.Answered(1, send.number, piece(0, b"abcdef", 6)), 20)
    now = 20
    for _ in range(20):
        due = raft.deadline_ms()
        assert due is not None and due > now, "it does not ask without a pause"
        now = due
        (send,) = raft.step(ev.Tick(), now).send
        assert isinstance(send.message, FetchRequest) and send.message.wait_ms == 0
        out = raft.step(ev.Answered(1, send.number, FetchResponse(1, 1, 9, snapshot=END)), now)
        assert out.piece is None and not out.send
    assert now > 5 * raft.settings.fetch_timeout_ms
    assert isinstance(raft.role, Follower)
    assert raft.step(ev.SnapshotLoaded(END), now).install == END


def test_without_a_leader_nobody_waits_for_a_snapshot() -> None:
    raft, _ = loading()
    raft.step(ev.Tick(), 10 + raft.settings.fetch_timeout_ms)
    assert isinstance(raft.role, Prospective)
    assert raft.step(ev.SnapshotLoaded(END), 2100) == ev.Output()


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_a_snapshot_that_is_gone_is_followed_by_a_fetch(error: ErrorCode) -> None:
    raft, send = loading()
    raft.step(ev.Answered(1, send.number, FetchSnapshotResponse(1, 1, END, error=error)), 20)
    (send,) = raft.step(ev.Tick(), 40).send
    assert isinstance(send.message, FetchRequest) and send.message.offset == 0


def test_a_new_leader_begins_again() -> None:
    raft, send = loading()
    raft.step(ev.Answered(1, send.number, piece(0, b"abcd", 6)), 20)
    out = raft.step(ev.Requested("t", BeginQuorumEpochRequest(2, 3, KEYS[2])), 30)
    (send,) = out.send
    assert (send.peer, type(send.message)) == (3, FetchRequest)
    assert raft.step(ev.PieceStored(END, 4), 40) == ev.Output()
    out = raft.step(ev.Answered(3, send.number, FetchResponse(2, 3, 9, snapshot=END)), 50)
    assert isinstance(out.send[0].message, FetchSnapshotRequest) and out.send[0].message.position == 0
    assert raft.step(ev.SnapshotLoaded(END), 60).install is None, "the one before was, this one is not there yet"


@pytest.mark.parametrize(
    "wrong",
    [
        piece(1, b"x", 6),
        piece(0, b"", 6),
        piece(0, b"abcdefg", 6),
        piece(0, b"abcd", 6, Position(1, 8)),
    ],
    ids=["another position", "nothing", "more than all", "another snapshot"],
)
def test_what_is_no_piece_is_asked_for_again_after_a_pause(wrong: FetchSnapshotResponse) -> None:
    raft, send = loading()
    out = raft.step(ev.Answered(1, send.number, wrong), 20)
    assert out.piece is None and not out.send
    (send,) = raft.step(ev.Tick(), 40).send
    assert isinstance(send.message, FetchSnapshotRequest) and send.message.position == 0


def test_a_snapshot_that_cannot_be_used_is_fetched_again_after_a_pause() -> None:
    raft, send = loading()
    raft.step(ev.Answered(1, send.number, piece(0, b"abcdef", 6)), 20)
    out = raft.step(ev.SnapshotUnusable(END), 30)
    assert out.install is None and not out.send
    assert raft.deadline_ms() == 30 + raft.settings.fetch_wait_ms
    (send,) = raft.step(ev.Tick(), 530).send
    assert isinstance(send.message, FetchRequest)


def test_a_snapshot_below_what_is_known_is_not_loaded() -> None:
    raft, fetch = follower(log=LogView(5, 8, [Position(1, 6)], start_epoch=1))
    out = raft.step(ev.Answered(1, fetch.number, FetchResponse(1, 1, 9, snapshot=Position(1, 6))), 10)
    assert not out.send and raft.deadline_ms() == 510


# --- the leader


def served(raft: Raft, request: FetchSnapshotRequest, now: int = 1000) -> ev.Reply:
    (reply,) = raft.step(ev.Requested("s", request), now).reply
    assert isinstance(reply.message, FetchSnapshotResponse)
    return reply


def test_a_leader_hands_out_pieces() -> None:
    raft = leader(LogView(5, 8, [Position(3, 6)], start_epoch=2))
    asked = FetchSnapshotRequest(raft.epoch, KEYS[2], Position(2, 5), 10, 50)
    reply = served(raft, asked)
    assert (reply.read_from, reply.read_to) == (10, 60)
    assert reply.message == FetchSnapshotResponse(raft.epoch, 1, Position(2, 5), 10)
    much = FetchSnapshotRequest(raft.epoch, KEYS[2], Position(2, 5), 10, 2**31 - 1)
    assert served(raft, much).read_to == 10 + SNAPSHOT_BYTES_MAX


@pytest.mark.parametrize(
    ("epoch", "end", "position", "max_bytes", "error"),
    [
        (3, Position(2, 5), 0, 9, ErrorCode.FENCED_LEADER_EPOCH),
        (5, Position(2, 5), 0, 9, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, Position(0, 0), 0, 9, ErrorCode.SNAPSHOT_NOT_FOUND),
        (4, Position(2, 5), -1, 9, ErrorCode.POSITION_OUT_OF_RANGE),
        (4, Position(2, 5), 0, 0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_leader_refuses(epoch: int, end: Position, position: int, max_bytes: int, error: ErrorCode) -> None:
    raft = leader(LogView(5, 8, [Position(3, 6)], start_epoch=2))
    assert raft.epoch == 4
    reply = served(raft, FetchSnapshotRequest(epoch, KEYS[2], end, position, max_bytes))
    assert reply.message.error is error and reply.read_from == reply.read_to


def test_a_follower_refuses() -> None:
    raft, _ = follower()
    reply = served(raft, FetchSnapshotRequest(1, KEYS[3], END, 0, 9), 10)
    assert isinstance(reply.message, FetchSnapshotResponse)
    assert reply.message.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and reply.message.leader_id == 1


def test_whoever_loads_is_in_contact() -> None:
    """A leader that only hands out a snapshot does not resign."""
    raft = leader(LogView(5, 8, [Position(3, 6)], start_epoch=2))
    now = 1000
    for _ in range(10):
        now += 1000
        served(raft, FetchSnapshotRequest(raft.epoch, KEYS[2], Position(2, 5), 0, 9), now)
    assert raft.leads
    raft.step(ev.Tick(), now + 3000)
    assert not raft.leads


def test_an_older_snapshot_lies_below_the_log_that_is_kept() -> None:
    """The log begins where the oldest snapshot ends; whoever lacks that gets the newest."""
    log = LogView(5, 12, [Position(3, 6)], start_epoch=2, snapshot=Position(3, 9))
    raft = leader(log)
    assert raft.high_watermark == 9
    for last_epoch, offset, snapshot in ((0, 0, (3, 9)), (2, 4, (3, 9)), (2, 5, None), (3, 7, None)):
        out = raft.step(ev.Requested("f", FetchRequest(raft.epoch, KEYS[2], last_epoch, offset)), 1000)
        message = out.reply[0].message
        assert isinstance(message, FetchResponse) and message.snapshot == snapshot


def test_an_empty_replica_gets_the_snapshot_though_the_log_begins_at_0() -> None:
    raft = leader(LogView(0, 12, [Position(3, 0)], snapshot=Position(3, 9)))
    out = raft.step(ev.Requested("f", FetchRequest(raft.epoch, KEYS[2], 0, 0)), 1000)
    message = out.reply[0].message
    assert isinstance(message, FetchResponse) and message.snapshot == (3, 9)
