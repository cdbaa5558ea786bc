"""A quorum of one: what its start stores and appends, to the byte what Apache Kafka's lone controller does."""

from __future__ import annotations

import pytest

from headrace.raft.control import ControlType, Voter, VoterEndpoint, voters_of
from headrace.raft.events import Output, Synced
from headrace.raft.log_view import LogView
from headrace.raft.machine import Raft
from headrace.raft.messages import Position, ReplicaKey
from headrace.raft.quorum_state import QuorumState
from headrace.raft.voter_set import NOT_IN_LOG, VoterHistory, VoterSet

VOTER = Voter(1, b"d" * 16, (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),))


def started(
    saved: QuorumState | None, last_epoch: int, *, kraft_version: int = 1, in_log: bool = True
) -> tuple[Raft, Output]:
    log = LogView(0, 5, [Position(last_epoch, 0)]) if last_epoch else LogView()
    sets = VoterHistory(VoterSet((VOTER,), kraft_version), 0 if in_log else NOT_IN_LOG)
    raft = Raft(ReplicaKey(1, b"d" * 16), sets, log, saved, jitter=lambda _: 0)
    return raft, raft.start(7)


@pytest.mark.parametrize(
    ("saved", "last_epoch", "epoch"),
    [
        (None, 0, 1),
        (QuorumState(1, 7), 3, 8),
        (QuorumState(1, 2), 5, 6),
        (QuorumState(-1, 4, 1, b"d" * 16), 3, 5),
        (QuorumState(-1, 4), 3, 5),
    ],
    ids=["fresh", "led since", "an old file", "voted since", "knew of an epoch"],
)
def test_the_new_epoch_is_above_all_that_was_seen(saved: QuorumState | None, last_epoch: int, epoch: int) -> None:
    raft, out = started(saved, last_epoch)
    assert (raft.epoch, raft.leads, raft.deadline_ms()) == (epoch, True, None)
    assert out.store == QuorumState(leader_id=1, leader_epoch=epoch)
    assert [record.type for record in out.append[0].payload] == [ControlType.LEADER_CHANGE]
    assert out.append[0].epoch == epoch
    assert not out.send and not out.reply


def test_nothing_is_committed_before_it_is_synced() -> None:
    raft, out = started(QuorumState(1, 2), 2)
    assert out.committed is None and not raft.is_active
    assert raft.step(Synced(raft.log.last), 8).committed == 6
    assert raft.is_active


def test_the_first_leader_writes_the_voters_of_the_format_into_the_log() -> None:
    _, out = started(None, 0, in_log=False)
    (entries,) = out.append
    assert [record.type for record in entries.payload] == [
        ControlType.LEADER_CHANGE,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
    ]
    assert entries.count == 3
    assert voters_of(entries.payload[2].message) == (VOTER,)


def test_a_static_quorum_has_no_voters_in_its_log() -> None:
    _, out = started(None, 0, kraft_version=0, in_log=False)
    assert out.store is not None and out.store.data_version == 0
    assert out.append[0].count == 1


def test_a_sync_that_began_before_a_truncation_says_nothing_of_what_lies_there_now() -> None:
    log = LogView(0, 5, [Position(1, 0), Position(2, 3)])
    before = log.last
    log.truncate(3)
    log.synced(before)
    assert log.last_synced == (1, 3)


def test_a_shorter_log_keeps_its_epochs() -> None:
    log = LogView(0, 9, [Position(1, 0), Position(2, 3), Position(4, 7)])
    log.snapshotted(Position(2, 5))
    log.shorten(Position(2, 5))
    assert (log.start_offset, log.start_epoch, log.last) == (5, 2, (4, 9))
    assert log.end_of(2) == (2, 7) and log.end_of(3) == (2, 7) and log.end_of(4) == (4, 9)
    log.snapshotted(Position(4, 9))
    log.shorten(Position(4, 9))
    assert log.last == (4, 9) == log.end_of(4) and log.last_synced == (4, 9)
    log.start_at(Position(6, 20))
    assert log.last == (6, 20) and log.epoch_below(20) == 6
