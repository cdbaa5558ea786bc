"""Classic groups and the log: records, load, the loss of uncommitted records, and the end of leadership."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.groups.classic import rebalance
from headrace.groups.classic.group import Group, restored, restoring, session_key
from headrace.groups.classic.states import GroupState
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k14_sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from headrace.groups.records import GroupRecord
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.outcome import Outcome
    from headrace.machine.timed_steps import TimedSteps


def apply(shard: GroupShardState, record: GroupRecord) -> None:
    """Applies a completed generation, or the tombstone of a group."""
    group_id = record.group_id
    group = shard.groups.get(group_id)
    if record.stored is None:
        shard.classic.remove(group_id)
        if group is not None:
            shard.remove_group(group_id)
            _retire(shard, group)
        return
    shard.classic.put(group_id, record.stored)
    if shard.is_loading:
        if group is None:
            shard.add_group(Group(group_id))  # restored once all records are loaded
    elif group is None or (group.protocol_type is None and record.stored.members):
        # A consumer group became a classic one: the stored generation is its state.
        shard.add_group(restored(group_id, record.stored))


def starting(shard: GroupShardState, now_ms: int, out: Outcome) -> TimedSteps[int]:
    """Restores every group from its stored generation, a member a step; the members' sessions start again."""
    for group_id, stored in list(shard.classic.latest.items()):
        now_ms = yield 1
        group = Group(group_id)
        shard.add_group(group)
        for member in restoring(group, stored):
            rebalance.touch(shard, member, now_ms)
            now_ms = yield 1
        if len(group.members) > shard.settings.max_size:
            rebalance.prepare(shard, group, "group.max.size is lower than its size now", now_ms, out)
    return now_ms


def reverted(shard: GroupShardState, lost: Collection[str], now_ms: int) -> None:
    """Restores the groups whose latest records were lost from those that are left, as after a load."""
    for group_id in lost:
        if group_id in shard.classic.latest:
            _restore(shard, group_id, now_ms)


def unload(shard: GroupShardState, now_ms: int, out: Outcome) -> None:
    """Answers every waiting member of every group with NOT_COORDINATOR."""
    for group in shard.groups.values():
        _send_away(group, now_ms, out)


def dissolve(shard: GroupShardState, group_id: str, now_ms: int, out: Outcome) -> None:
    """Drops the in-memory state of a group that is not in the log, and answers its waiting members with
    NOT_COORDINATOR."""
    group = shard.remove_group(group_id)
    if group is not None:
        _retire(shard, group)
        _send_away(group, now_ms, out)


def _restore(shard: GroupShardState, group_id: str, now_ms: int) -> None:
    group = restored(group_id, shard.classic.latest[group_id])
    shard.add_group(group)
    for member in group.members.values():
        rebalance.touch(shard, member, now_ms)


def _retire(shard: GroupShardState, group: Group) -> None:
    for member_id in group.pending_joins:
        shard.timers.cancel(session_key(group.id, member_id))
    for member in group.members.values():
        shard.timers.cancel(member.session_key)
    shard.timers.cancel(rebalance.join_key(group.id))
    shard.timers.cancel(rebalance.sync_key(group.id))
    group.state = GroupState.DEAD


def _send_away(group: Group, now_ms: int, out: Outcome) -> None:
    error = ErrorCode.NOT_COORDINATOR
    group.move(GroupState.DEAD, now_ms)
    for member in group.members.values():
        rebalance.answer_join(group, member, rebalance.join_error(member.id, error), out)
        rebalance.answer_sync(member, SyncGroupResponse(error_code=error), out)
