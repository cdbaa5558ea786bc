"""How far the voters are, as their leader sees it: what DescribeQuorum tells."""

from __future__ import annotations

from typing import NamedTuple

from headrace.raft.leader import Leader
from headrace.raft.machine import Raft
from headrace.raft.messages import ReplicaKey


class VoterProgress(NamedTuple):
    """A voter as its leader sees it: the end of what it has synced (-1: not heard of yet), and when, in ms since the
    epoch, it last fetched and last had all of it."""

    key: ReplicaKey
    end_offset: int
    fetched_ms: int
    caught_up_ms: int


def progress_of(raft: Raft, now_ms: int, steady_ms: int) -> list[VoterProgress]:
    """Every voter, this node first; nothing where it does not lead. `now_ms` and `steady_ms` are the same moment."""
    role = raft.role
    if not isinstance(role, Leader):
        return []

    def wall(at_ms: int | None) -> int:
        return -1 if at_ms is None else now_ms - (steady_ms - at_ms)

    found = [VoterProgress(raft.me, raft.log.end_offset, now_ms, now_ms)]
    for key, each in role.progress.items():
        end_offset = -1 if each.end_offset is None else each.end_offset
        found.append(VoterProgress(key, end_offset, wall(each.fetched_ms), wall(each.caught_up_ms)))
    return found
