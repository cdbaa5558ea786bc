"""How far voters and observers are, as their leader sees it: what DescribeQuorum tells."""

from __future__ import annotations

from typing import NamedTuple

from headrace.raft.leader import Leader, Progress
from headrace.raft.machine import Raft
from headrace.raft.messages import ReplicaKey


class ReplicaProgress(NamedTuple):
    """A voter or an observer as its leader sees it: the end of what it has synced (-1: not heard of yet), and when, in
    ms since the epoch, it last fetched and last had all of it (-1: it never did)."""

    key: ReplicaKey
    end_offset: int
    fetched_ms: int
    caught_up_ms: int


def progress_of(raft: Raft, now_ms: int, steady_ms: int) -> list[ReplicaProgress]:
    """Every voter, this node first; nothing where it does not lead. `now_ms` and `steady_ms` are the same moment."""
    role = raft.role
    if not isinstance(role, Leader):
        return []
    own = ReplicaProgress(raft.me, raft.log.end_offset, now_ms, now_ms)
    return [own, *(_seen(key, each, now_ms - steady_ms) for key, each in role.progress.items())]


def observers_of(raft: Raft, now_ms: int, steady_ms: int) -> list[ReplicaProgress]:
    """Every observer that has fetched within five minutes; nothing where this node does not lead."""
    role = raft.role
    if not isinstance(role, Leader):
        return []
    role.forget_silent_observers(steady_ms)
    return [_seen(key, each, now_ms - steady_ms) for key, each in role.observers.items()]


def _seen(key: ReplicaKey, progress: Progress, wall_ms: int) -> ReplicaProgress:
    def wall(at_ms: int | None) -> int:
        return -1 if at_ms is None else wall_ms + at_ms

    end_offset = -1 if progress.end_offset is None else progress.end_offset
    return ReplicaProgress(key, end_offset, wall(progress.fetched_ms), wall(progress.caught_up_ms))
