"""Members that go: they leave, are silent for too long, or give up too slowly what they have to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.groups.consumer.records import ConsumerRecord, Current, GroupEpoch, Kind, MemberState
from headrace.groups.consumer.topics import UNTOLD
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from headrace.groups.consumer.group import ConsumerGroup
    from headrace.groups.consumer.records import Held, Member
    from headrace.groups.outcome import ShardState

_AWAY = -2
"""The epoch of a static member that left for a while."""


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer that fences a silent member."""
    return ("consumer-session", group_id, member_id)


def rebalance_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer that fences a member which gives up too slowly what it has to."""
    return ("consumer-rebalance", group_id, member_id)


def touch(shard: ShardState, group_id: str, member_id: str, now_ms: int) -> None:
    """A sign of life: the member's session starts again."""
    key = session_key(group_id, member_id)
    shard.timers.schedule(key, now_ms + shard.settings_of(group_id).session_timeout_ms)


def await_revocation(
    shard: ShardState, group_id: str, member_id: str, member: Member, reached: Current, now_ms: int
) -> None:
    """A member that has to give something up gets its rebalance timeout for it."""
    key = rebalance_key(group_id, member_id)
    if reached.state is MemberState.UNREVOKED:
        shard.timers.schedule(key, now_ms + max(0, member.rebalance_timeout_ms))
    else:
        shard.timers.cancel(key)


def forget(shard: ShardState, group_id: str, member_id: str) -> None:
    """Nobody goes by this id any more: its timers end."""
    shard.timers.cancel(session_key(group_id, member_id))
    shard.timers.cancel(rebalance_key(group_id, member_id))


def stand_up(shard: ShardState, group: ConsumerGroup, now_ms: int) -> None:
    """After a load, or where records were lost: every member that has no timer gets its time in full."""
    group.checked_topics = None
    for member_id, member in group.members.latest.items():
        if session_key(group.id, member_id) not in shard.timers:
            touch(shard, group.id, member_id, now_ms)
        current = group.current(member_id)
        waits = current.state is MemberState.UNREVOKED and current.epoch != _AWAY
        if waits and rebalance_key(group.id, member_id) not in shard.timers:
            await_revocation(shard, group.id, member_id, member, current, now_ms)


# --- leaving ---------------------------------------------------------------------------------------------------------


def leave(shard: ShardState, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Outcome:
    """A heartbeat that says goodbye: for good, or for a while."""
    member_id = request.member_id
    if request.instance_id is not None:
        refused = check_instance(group, request.instance_id, member_id)
        if refused is not None:
            return refused
    elif member_id not in group.members.latest:
        return _refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.id}.")
    out = Outcome(ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch))
    if request.member_epoch == _AWAY:
        had = group.current(member_id)
        away = Current(_AWAY, had.previous_epoch, had.state, _of_no_epoch(had.assigned))
        out.records.append(ConsumerRecord(group.id, Kind.CURRENT, member_id, away))
        shard.timers.cancel(rebalance_key(group.id, member_id))
        out.notes.append(f"group {group.id}: static member {request.instance_id} leaves for a while")
    else:
        remove(shard, group, member_id, "it leaves", out)
    return out


def check_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> Outcome | None:
    """Unless the member goes by this instance id: who does instead, or that nobody does."""
    holder = group.instances.latest.get(instance_id)
    if holder is None:
        return _refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        return _refuse(
            ErrorCode.FENCED_INSTANCE_ID, f"Instance id {instance_id} belongs to member {holder}, not to {member_id}."
        )
    return None


def remove(shard: ShardState, group: ConsumerGroup, member_id: str, why: str, out: Outcome) -> None:
    """A member is out: the group's epoch rises, and the next heartbeat of another one computes new targets."""
    member = group.members.latest[member_id]
    for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
        out.records.append(ConsumerRecord(group.id, kind, member_id, None))
    if member.regex in group.regexes.latest and group.regex_readers.latest.get(member.regex) == 1:
        out.records.append(ConsumerRecord(group.id, Kind.REGEX, member.regex, None))
    if shard.topics is UNTOLD:
        known = group.epoch.metadata_hash
    else:
        known = shard.topics.hash(group.topics_with(member, None))
    out.records.append(ConsumerRecord(group.id, Kind.EPOCH, "", GroupEpoch(group.epoch.epoch + 1, known)))
    forget(shard, group.id, member_id)
    out.notes.append(f"group {group.id}: member {member_id} is out: {why}")


def _of_no_epoch(held: Held) -> Held:
    return {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in held.items()}


def _refuse(error: ErrorCode, why: str) -> Outcome:
    return Outcome(ConsumerGroupHeartbeatResponse(error_code=error, error_message=why))


# --- time ------------------------------------------------------------------------------------------------------------


def session_expired(shard: ShardState, group: ConsumerGroup, member_id: str, out: Outcome) -> None:
    """Nothing was heard of a member for its session."""
    if member_id in group.members.latest:
        remove(shard, group, member_id, "nothing was heard of it", out)


def rebalance_expired(shard: ShardState, group: ConsumerGroup, member_id: str, out: Outcome) -> None:
    """A member had its rebalance timeout to give something up."""
    if member_id in group.members.latest and group.current(member_id).state is MemberState.UNREVOKED:
        remove(shard, group, member_id, "it did not give up in time what it had to", out)
