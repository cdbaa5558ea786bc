"""The steps from one generation to the next: prepare, complete the join, hand out assignments, expire members.

Sources: the classic rebalance protocol as Kafka's clients know it, KIP-134 (initial delay), KIP-345 (static members),
KIP-394 (member ids).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.groups.classic.group import Group, Member
from headrace.groups.classic.states import GroupState
from headrace.groups.records import GroupRecord, StoredGroup
from headrace.groups.shard_state import GroupShardState
from headrace.machine.outcome import Outcome
from headrace.machine.timers import TimerKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.group_records import MemberMetadata
from headrace.wire.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.wire.messages.k14_sync_group import SyncGroupResponse

SYNC_LEAST_MS: Final = 1000
"""The minimum time for a member's SyncGroup: with a rebalance timeout of 0, kafkajs's default, it could never arrive in
time."""
NAMED_MAX: Final = 3
"""The number of member ids in a log line."""


def join_key(group_id: str) -> TimerKey:
    """Returns the key of the timer that ends the join phase."""
    return ("join", group_id)


def sync_key(group_id: str) -> TimerKey:
    """Returns the key of the timer that removes members which joined and did not sync."""
    return ("sync", group_id)


# --- sessions --------------------------------------------------------------------------------------------------------


def touch(shard: GroupShardState, member: Member, now_ms: int) -> None:
    """Restarts the member's session."""
    shard.timers.schedule(member.session_key, now_ms + member.session_timeout_ms)


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """Returns a failed JoinGroup response: without a protocol (null from v7 on, empty before)."""
    return JoinGroupResponse(member_id=member_id, error_code=error, protocol_name=None)


def answer_join(group: Group, member: Member, response: JoinGroupResponse, out: Outcome) -> None:
    """Answers the member's waiting JoinGroup, if it has one."""
    if member.join_waiter is not None:
        out.released.append((member.join_waiter, response))
        group.await_join(member, None)


def answer_sync(member: Member, response: SyncGroupResponse, out: Outcome) -> bool:
    """Answers the member's waiting SyncGroup; returns False if it has none."""
    if member.sync_waiter is None:
        return False
    out.released.append((member.sync_waiter, response))
    member.sync_waiter = None
    return True


def drop_member(shard: GroupShardState, group: Group, member: Member, error: ErrorCode, out: Outcome) -> None:
    """Removes a member from the group; answers its waiting requests with `error`."""
    assert group.members.get(member.id) is member
    answer_join(group, member, join_error("", error), out)
    answer_sync(member, SyncGroupResponse(error_code=error), out)
    shard.timers.cancel(member.session_key)
    group.remove(member.id)


# --- the join phase --------------------------------------------------------------------------------------------------


def rebalance_or_complete(shard: GroupShardState, group: Group, reason: str, now_ms: int, out: Outcome) -> None:
    """Starts a rebalance if the state allows it; otherwise completes the one in progress if it can."""
    if group.can_rebalance:
        prepare(shard, group, reason, now_ms, out)
    else:
        complete_if_joined(shard, group, now_ms, out)


def prepare(shard: GroupShardState, group: Group, reason: str, now_ms: int, out: Outcome) -> None:
    """Starts a rebalance: all members have to join again."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        hand_out_error(shard, group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)
    group.pending_syncs.clear()
    shard.timers.cancel(sync_key(group.id))
    initial = group.state is GroupState.EMPTY
    was = group.state.value
    out.note("group rebalances", group=group.id, was=was, generation=group.generation, why=reason)
    group.move(GroupState.PREPARING_REBALANCE, now_ms)
    if initial:
        # Members of a new group tend to start together: wait, so that they share the first generation (KIP-134).
        delay_ms = shard.settings.initial_rebalance_delay_ms
        group.member_joined_lately = False
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        shard.timers.schedule(join_key(group.id), now_ms + delay_ms)
    elif group.everyone_joined:
        complete_join(shard, group, now_ms, out)
    else:
        shard.timers.schedule(join_key(group.id), now_ms + group.rebalance_timeout_ms)


def complete_if_joined(shard: GroupShardState, group: Group, now_ms: int, out: Outcome) -> None:
    """Completes the join phase if no member is missing; an initial rebalance always waits for its delay."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.everyone_joined
    ):
        complete_join(shard, group, now_ms, out)


def join_phase_expired(shard: GroupShardState, group: Group, now_ms: int, out: Outcome) -> None:
    """Handles the join timer: extends the initial delay while members join, otherwise ends the phase."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.previous_state is GroupState.EMPTY and group.member_joined_lately and group.initial_remaining_ms > 0:
        group.member_joined_lately = False
        delay_ms = min(shard.settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms -= delay_ms
        shard.timers.schedule(join_key(group.id), now_ms + delay_ms)
        return
    complete_join(shard, group, now_ms, out)


def complete_join(shard: GroupShardState, group: Group, now_ms: int, out: Outcome) -> None:
    """Ends the join phase: removes dynamic members that did not join, and starts the next generation."""
    shard.timers.cancel(join_key(group.id))
    late = [m for m in group.members.values() if m.join_waiter is None and m.instance_id is None]
    for member in late:
        drop_member(shard, group, member, ErrorCode.UNKNOWN_MEMBER_ID, out)
    if late:
        out.note(
            "group goes on without members that did not join in time", group=group.id, members=_some(m.id for m in late)
        )
    if group.members and not group.elect_joined_leader():
        # Only static members are left and none of them joined: wait until their sessions end, or one joins.
        shard.timers.schedule(join_key(group.id), now_ms + group.rebalance_timeout_ms)
        return
    group.start_generation(now_ms)
    if group.state is GroupState.EMPTY:
        out.note("group is empty", group=group.id, generation=group.generation)
        out.records.append(GroupRecord(group.id, snapshot(group, {})))
        return
    out.note(
        "group has a new generation",
        group=group.id,
        generation=group.generation,
        members=len(group.members),
        protocol=group.protocol,
    )
    for member in group.members.values():
        answer_join(group, member, joined(group, member), out)
        touch(shard, member, now_ms)
        member.is_new = False
        group.pending_syncs.add(member.id)
    assert group.joined_count == 0, "every JoinGroup of the generation is answered"
    shard.timers.schedule(sync_key(group.id), now_ms + max(group.rebalance_timeout_ms, SYNC_LEAST_MS))


def joined(group: Group, member: Member) -> JoinGroupResponse:
    """Returns the answer to a member's JoinGroup in this generation: only the leader gets the list of members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.id,
        members=members_for_leader(group) if group.leader == member.id else [],
    )


def members_for_leader(group: Group) -> list[JoinGroupResponseMember]:
    """Returns all members with their metadata for the elected protocol."""
    assert group.protocol is not None
    return [
        JoinGroupResponseMember(member_id=m.id, group_instance_id=m.instance_id, metadata=m.protocols[group.protocol])
        for m in group.members.values()
    ]


# --- assignments -----------------------------------------------------------------------------------------------------


def snapshot(group: Group, assignments: dict[str, bytes]) -> StoredGroup:
    """Returns the generation to store, with these assignments by member id."""
    protocol = group.protocol
    return StoredGroup(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=protocol,
        leader=group.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[protocol] if protocol is not None else b"",
                assignment=assignments.get(member.id, b""),
            )
            for member in group.members.values()
        ],
    )


def hand_out(shard: GroupShardState, group: Group, assignments: dict[str, bytes], now_ms: int, out: Outcome) -> None:
    """Handles committed assignments: the group becomes stable, and waiting SyncGroups are answered."""
    for member in group.members.values():
        group.assign(member, assignments.get(member.id, b""))
        if answer_sync(member, synced(group, member), out):
            touch(shard, member, now_ms)
    group.move(GroupState.STABLE, now_ms)


def hand_out_error(shard: GroupShardState, group: Group, error: ErrorCode, now_ms: int, out: Outcome) -> None:
    """Answers waiting SyncGroups with `error`: there will be no assignment in this generation."""
    assert group.state is GroupState.COMPLETING_REBALANCE
    for member in group.members.values():
        group.assign(member, b"")
        if answer_sync(member, SyncGroupResponse(error_code=error), out):
            touch(shard, member, now_ms)


def synced(group: Group, member: Member) -> SyncGroupResponse:
    """Returns the answer to a member's SyncGroup."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


# --- expiry ----------------------------------------------------------------------------------------------------------


def _some(member_ids: Iterable[str]) -> str:
    """Returns a few of many ids, and their number, as text."""
    ids = list(member_ids)
    return ", ".join(ids[:NAMED_MAX]) + (f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else "")


def session_expired(shard: GroupShardState, group: Group, member_id: str, now_ms: int, out: Outcome) -> None:
    """Handles an expired session, or a pending member id that was not used."""
    if member_id in group.pending_joins:
        group.remove(member_id)
        complete_when_last_missing_left(shard, group, now_ms, out)
        return
    member = group.members.get(member_id)
    if member is None or member.survives_silence():
        return
    drop_member(shard, group, member, ErrorCode.UNKNOWN_MEMBER_ID, out)
    reason = f"member {member_id} is silent"
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        rebalance_or_complete(shard, group, reason, now_ms, out)
    else:
        out.note("member is out", group=group.id, member=member_id, why=reason)
        complete_when_last_missing_left(shard, group, now_ms, out)


def complete_when_last_missing_left(shard: GroupShardState, group: Group, now_ms: int, out: Outcome) -> None:
    """Ends the join phase, even an initial one, if only removed members were missing."""
    if group.state is GroupState.PREPARING_REBALANCE and group.everyone_joined:
        complete_join(shard, group, now_ms, out)


def sync_phase_expired(shard: GroupShardState, group: Group, now_ms: int, out: Outcome) -> None:
    """Handles the sync timer: removes members that joined this generation and did not sync."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
        return
    missing = sorted(group.pending_syncs)
    for member_id in missing:
        drop_member(shard, group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, out)
    prepare(shard, group, f"{_some(missing)} never sent SyncGroup", now_ms, out)
