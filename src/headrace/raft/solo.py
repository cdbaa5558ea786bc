"""A quorum of one: the node that votes is the node that leads, from the moment it starts.

Apache Kafka's controller takes the same steps when it is the only voter, so a directory moves between the two: the
election goes to quorum-state before the first record of its epoch is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.raft.control import ControlRecord, Voter, kraft_version, leader_change, voters_record
from headrace.raft.quorum_state import QuorumState


@dataclass(frozen=True, slots=True)
class LogState:
    """What the metadata log and its snapshots say of the quorum when a node starts.

    `voters` is empty at kraft.version 0, where the configuration names them. `voters_are_in_log` is false while they
    stand in the snapshot of a fresh format alone: then the first leader writes them into the log.
    """

    last_epoch: int
    kraft_version: int
    voters: tuple[Voter, ...]
    voters_are_in_log: bool


@dataclass(frozen=True, slots=True)
class Leadership:
    """The epoch that a node leads: what to store first, and what to append then, as one control batch."""

    epoch: int
    state: QuorumState
    state_version: int
    records: tuple[ControlRecord, ...]


def lead(node_id: int, previous: QuorumState | None, log: LogState) -> Leadership:
    """The election that a lone voter wins: an epoch above all that it has seen or voted in."""
    epoch = max(log.last_epoch, 0 if previous is None else previous.leader_epoch) + 1
    state = QuorumState(leader_id=node_id, leader_epoch=epoch, voters=(node_id,))
    records = [leader_change(node_id, [node_id], [node_id])]
    if log.kraft_version > 0 and not log.voters_are_in_log:
        records += [kraft_version(log.kraft_version), voters_record(log.voters)]
    return Leadership(epoch, state, 1 if log.kraft_version > 0 else 0, tuple(records))


def foreign_voters(node_id: int, voters: Sequence[Voter], previous: QuorumState | None) -> list[int]:
    """Voters other than this node: a directory of theirs is part of a larger quorum, which one node cannot lead."""
    ids = {voter.id for voter in voters}
    if previous is not None:
        ids.update(previous.voters)
    return sorted(ids - {node_id})
