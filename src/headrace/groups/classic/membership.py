"""Heartbeat and LeaveGroup."""

from __future__ import annotations

from headrace.groups.classic.group import Group, session_key
from headrace.groups.classic.rebalance import complete_if_joined, drop_member, rebalance_or_complete, touch
from headrace.groups.classic.states import GroupState
from headrace.groups.shard_state import GroupShardState
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k13_leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse


def heartbeat(
    shard: GroupShardState, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> ErrorCode:
    """Decides a Heartbeat. Nothing is written, and the common path allocates nothing."""
    group = shard.groups.get(group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    touch(shard, group.members[member_id], now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


def leave(shard: GroupShardState, group_id: str, leaving: list[MemberIdentity], now_ms: int) -> Outcome:
    """Removes members that leave, or static members that an administrator names by instance id alone."""
    if not group_id:
        return Outcome(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    group = shard.groups.get(group_id)
    if group is not None and group.state is GroupState.DEAD:
        return Outcome(LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
    out = Outcome()
    answers = []
    left = []
    for identity in leaving:
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = _leave_one(shard, group, identity, out)
        if error is ErrorCode.NONE:
            left.append(f"{identity.member_id or identity.group_instance_id} ({identity.reason or 'no reason given'})")
        answers.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
        )
    if group is not None and left:
        reason = f"left: {', '.join(left)}"
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            rebalance_or_complete(shard, group, reason, now_ms, out)
        else:
            complete_if_joined(shard, group, now_ms, out)
    out.reply = LeaveGroupResponse(members=answers)
    return out


def _leave_one(shard: GroupShardState, group: Group, identity: MemberIdentity, out: Outcome) -> ErrorCode:
    member_id = identity.member_id
    if not member_id:
        if identity.group_instance_id is None or identity.group_instance_id not in group.static_members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = group.static_members[identity.group_instance_id]
    elif member_id in group.pending_joins:
        shard.timers.cancel(session_key(group.id, member_id))
        group.remove(member_id)
        return ErrorCode.NONE
    else:
        error = group.check_member(member_id, identity.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    drop_member(shard, group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, out)
    return ErrorCode.NONE
