"""Removes members: those that leave, are silent for too long, or revoke or rejoin too slowly.

If only classic members are left, the group becomes a classic one (`conversion`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.groups.consumer import conversion
from headrace.groups.consumer.member_timers import AWAY, forget, rebalance_key
from headrace.groups.consumer.records import ConsumerRecord, CurrentAssignment, Kind, MemberState
from headrace.groups.modern.epochs import GroupEpoch
from headrace.groups.modern.topics import NO_TOPICS
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from headrace.groups.consumer.group import ConsumerGroup
    from headrace.groups.consumer.records import Held
    from headrace.groups.shard_state import GroupShardState


def leave(shard: GroupShardState, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Outcome:
    """Decides the heartbeat of a member that leaves, for good or temporarily."""
    member_id = request.member_id
    if request.instance_id is not None:
        refused = check_instance(group, request.instance_id, member_id)
        if refused is not None:
            return refused
    elif member_id not in group.members.latest:
        return _refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.id}.")
    out = Outcome(ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch))
    if request.member_epoch == AWAY:
        had = group.current(member_id)
        away = CurrentAssignment(AWAY, had.previous_epoch, had.state, _of_no_epoch(had.assigned))
        out.records.append(ConsumerRecord(group.id, Kind.CURRENT, member_id, away))
        shard.timers.cancel(rebalance_key(group.id, member_id))
        out.note("static member leaves for a while", group=group.id, instance=request.instance_id)
    else:
        remove(shard, group, [member_id], "it leaves", now_ms, out)
    return out


def check_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> Outcome | None:
    """Returns the refusal of a member that does not own this instance id; None if it does."""
    holder = group.instances.latest.get(instance_id)
    if holder is None:
        return _refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        return _refuse(
            ErrorCode.FENCED_INSTANCE_ID, f"Instance id {instance_id} belongs to member {holder}, not to {member_id}."
        )
    return None


def remove(
    shard: GroupShardState, group: ConsumerGroup, member_ids: Collection[str], why: str, now_ms: int, out: Outcome
) -> None:
    """Removes members. The group's epoch rises, and the next heartbeat of another member computes new targets; or the
    group becomes a classic one, and its members rejoin."""
    if not member_ids:
        return
    for member_id in member_ids:
        out.note("member is out", group=group.id, member=member_id, why=why)
    if conversion.can_downgrade(shard, group, member_ids):
        conversion.downgrade(shard, group, conversion.Remains(member_ids), now_ms, out)
        return
    gone = {member_id: group.members.latest[member_id] for member_id in member_ids}
    for member_id in gone:
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            out.records.append(ConsumerRecord(group.id, kind, member_id, None))
    for regex in sorted({member.regex for member in gone.values()} & group.regexes.latest.keys()):
        if group.regex_readers.latest.get(regex) == sum(member.regex == regex for member in gone.values()):
            out.records.append(ConsumerRecord(group.id, Kind.REGEX, regex, None))
    known = group.epoch.metadata_hash
    if shard.topics is not NO_TOPICS:
        known = shard.topics.hash(group.topics_without(gone.values()))
    out.records.append(ConsumerRecord(group.id, Kind.EPOCH, "", GroupEpoch(group.epoch.epoch + 1, known)))
    for member_id in gone:
        forget(shard, group.id, member_id)


def _of_no_epoch(held: Held) -> Held:
    return {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in held.items()}


def _refuse(error: ErrorCode, why: str) -> Outcome:
    return Outcome(ConsumerGroupHeartbeatResponse(error_code=error, error_message=why))


# --- time ------------------------------------------------------------------------------------------------------------

_WHY_EXPIRED = {
    "consumer-session": "nothing was heard of it",
    "consumer-rebalance": "it did not give up in time what it had to",
    "consumer-join": "it did not rejoin in time",
    "consumer-sync": "it joined and did not sync in time",
}


def expired(
    shard: GroupShardState, group: ConsumerGroup, which: str, member_id: str, now_ms: int, out: Outcome
) -> None:
    """Handles a member's expired timer: `which` is the first word of its key."""
    if member_id not in group.members.latest:
        return
    if which == "consumer-rebalance" and group.current(member_id).state is not MemberState.UNREVOKED:
        return
    remove(shard, group, [member_id], _WHY_EXPIRED[which], now_ms, out)
