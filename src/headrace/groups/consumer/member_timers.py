"""The timers of a consumer group's members.

Every member has a session. A member of the newer protocol has its rebalance timeout to revoke partitions; a classic
member has it twice: to rejoin when it has to, and to sync once it has joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.groups.consumer.records import CurrentAssignment, Member, MemberState
from headrace.groups.modern.member_timers import MemberTimers
from headrace.machine.timed_steps import TimedSteps, in_one_turn

if TYPE_CHECKING:
    from headrace.groups.consumer.group import ConsumerGroup
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.timers import TimerKey

AWAY: Final = -2
"""The epoch of a static member that left temporarily."""
_TIMERS: Final = MemberTimers("consumer")
session_key: Final = _TIMERS.session_key
rebalance_key: Final = _TIMERS.rebalance_key
_JOIN: Final = "consumer-join"
_SYNC: Final = "consumer-sync"
KEYS: Final = (_TIMERS.session, _TIMERS.rebalance, _JOIN, _SYNC)
"""The first words of these timers' keys."""


def join_key(group_id: str, member_id: str) -> TimerKey:
    """Returns the key of the timer that fences a classic member that has to rejoin and does not."""
    return (_JOIN, group_id, member_id)


def sync_key(group_id: str, member_id: str) -> TimerKey:
    """Returns the key of the timer that fences a classic member that joined and does not sync."""
    return (_SYNC, group_id, member_id)


def touch(shard: GroupShardState, group_id: str, member_id: str, member: Member, now_ms: int) -> None:
    """Restarts the member's session; a classic member has its own timeout."""
    if member.classic is None:
        session_timeout_ms = shard.settings_of(group_id).session_timeout_ms
    else:
        session_timeout_ms = member.classic.session_timeout_ms
    shard.timers.schedule(session_key(group_id, member_id), now_ms + session_timeout_ms)


def await_revocation(
    shard: GroupShardState, group_id: str, member_id: str, member: Member, reached: CurrentAssignment, now_ms: int
) -> None:
    """Starts the rebalance timeout of a member that has to revoke partitions; for a classic member it starts with its
    first REBALANCE_IN_PROGRESS."""
    key = rebalance_key(group_id, member_id)
    if reached.state is MemberState.UNREVOKED and member.classic is None:
        shard.timers.schedule(key, now_ms + max(0, member.rebalance_timeout_ms))
    else:
        shard.timers.cancel(key)


def await_join(shard: GroupShardState, group_id: str, member_id: str, member: Member, now_ms: int) -> None:
    """Starts the time in which a classic member has to rejoin; it runs from the first REBALANCE_IN_PROGRESS."""
    key = join_key(group_id, member_id)
    if key not in shard.timers:
        shard.timers.schedule(key, now_ms + max(0, member.rebalance_timeout_ms))


def await_sync(shard: GroupShardState, group_id: str, member_id: str, member: Member, now_ms: int) -> None:
    """Starts the time in which a classic member that joined has to sync."""
    shard.timers.cancel(join_key(group_id, member_id))
    shard.timers.schedule(sync_key(group_id, member_id), now_ms + max(0, member.rebalance_timeout_ms))


def await_neither(shard: GroupShardState, group_id: str, member_id: str) -> None:
    """Cancels the join and sync timers of a member that is done, or now speaks the newer protocol."""
    shard.timers.cancel(join_key(group_id, member_id))
    shard.timers.cancel(sync_key(group_id, member_id))


def forget(shard: GroupShardState, group_id: str, member_id: str) -> None:
    """Cancels all timers of a member id that is gone."""
    for key in (session_key, rebalance_key, join_key, sync_key):
        shard.timers.cancel(key(group_id, member_id))


def restart(shard: GroupShardState, group: ConsumerGroup, now_ms: int) -> None:
    """Starts the full time of every member without a timer, after a load or the loss of records."""
    in_one_turn(restarting(shard, group, now_ms), now_ms)


def restarting(shard: GroupShardState, group: ConsumerGroup, now_ms: int) -> TimedSteps[int]:
    """Starts the full time of every member without a timer, a member a step. Returns the time that it was last sent."""
    group.checked_topics = None
    for member_id, member in list(group.members.latest.items()):
        if session_key(group.id, member_id) not in shard.timers:
            touch(shard, group.id, member_id, member, now_ms)
        current = group.current(member_id)
        if current.state is MemberState.UNREVOKED and current.epoch != AWAY:
            if member.classic is not None:
                await_join(shard, group.id, member_id, member, now_ms)
            elif rebalance_key(group.id, member_id) not in shard.timers:
                await_revocation(shard, group.id, member_id, member, current, now_ms)
        now_ms = yield 1
    return now_ms
