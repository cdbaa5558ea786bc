"""SyncGroup: the leader's assignment is stored, then all members get their parts."""

from __future__ import annotations

from typing import Final

from headrace.groups.classic.group import Group, Member
from headrace.groups.classic.rebalance import (
    hand_out,
    hand_out_error,
    prepare,
    snapshot,
    sync_key,
    synced,
)
from headrace.groups.classic.states import GroupState
from headrace.groups.records import GroupRecord
from headrace.groups.shard_state import GroupShardState
from headrace.machine.outcome import Outcome, Waiter
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

ASSIGNMENTS_MAX: Final = 10_000
"""The limit of members in a leader's assignment."""


def sync(shard: GroupShardState, request: SyncGroupRequest, waiter: Waiter, _now_ms: int) -> Outcome:
    """Decides a SyncGroup. `waiter` is answered now, or when the assignment is stored."""
    return _decide(shard, request, waiter).at_once(waiter)


def _decide(shard: GroupShardState, request: SyncGroupRequest, waiter: Waiter) -> Outcome:
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    group = shard.groups.get(request.group_id)
    if group is None or group.state is GroupState.EMPTY:
        return _refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    error = _check(group, request)
    if error is not ErrorCode.NONE:
        return _refuse(error)
    if group.state is GroupState.PREPARING_REBALANCE:
        return _refuse(ErrorCode.REBALANCE_IN_PROGRESS)
    member = group.members[request.member_id]
    if group.leader == member.id and group.state is not GroupState.STABLE:
        if len(request.assignments) > ASSIGNMENTS_MAX:
            return _refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        size = sum(len(each.assignment) for each in request.assignments)
        if not shard.has_room_for(member.principal, size):
            return _refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.pending_syncs.discard(member.id)
    if group.state is GroupState.STABLE:
        if not group.pending_syncs:
            shard.timers.cancel(sync_key(group.id))
        return Outcome(synced(group, member))
    out = Outcome()
    if member.sync_waiter is not None:
        # A member that syncs twice waits once: the older request gets a retriable error.
        out.released.append((member.sync_waiter, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
    member.sync_waiter = waiter
    if group.leader == member.id:
        _store_assignment(shard, group, member, request, out)
    return out


def _refuse(error: ErrorCode) -> Outcome:
    return Outcome(SyncGroupResponse(error_code=error))


def _check(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _differ(requested: str | None, chosen: str | None) -> bool:
    return requested is not None and chosen is not None and requested != chosen


def _store_assignment(
    shard: GroupShardState, group: Group, member: Member, request: SyncGroupRequest, out: Outcome
) -> None:
    generation = group.generation
    assignments = {each.member_id: each.assignment for each in request.assignments}
    out.records.append(GroupRecord(group.id, snapshot(group, assignments)))
    principal, size = member.principal, sum(map(len, assignments.values()))
    shard.member_bytes.reserve(principal, size)

    def stored(error: ErrorCode, now_ms: int) -> Outcome:
        shard.member_bytes.give_back(principal, size)
        done = Outcome()
        # If a member joined or left while the record was in flight, this generation is over.
        if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
            return done
        if error is ErrorCode.NONE:
            hand_out(shard, group, assignments, now_ms, done)
            done.note("group is stable", group=group.id, generation=generation)
            if not group.pending_syncs:
                shard.timers.cancel(sync_key(group.id))
        else:
            hand_out_error(shard, group, error, now_ms, done)
            prepare(shard, group, f"storing the assignment failed: {error.name}", now_ms, done)
        return done

    out.then = stored
