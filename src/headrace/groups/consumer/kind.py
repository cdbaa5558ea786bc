"""Consumer groups as the table of kinds has them (`groups.kinds`); members may speak the classic protocol there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headrace.groups.classic import join as classic_join
from headrace.groups.classic.lifecycle import dissolve
from headrace.groups.consumer import classic_members, fencing, member_timers, offsets
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.modern import lifecycle
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.groups.classic.offsets import CommitRequest
    from headrace.groups.consumer.records import ConsumerRecord
    from headrace.groups.group_client import GroupClient
    from headrace.groups.modern.group import ModernGroup
    from headrace.groups.records import Record
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.outcome import Waiter
    from headrace.machine.timed_steps import TimedSteps
    from headrace.machine.timers import TimerKey
    from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup
    from headrace.wire.messages.k11_join_group import JoinGroupRequest
    from headrace.wire.messages.k13_leave_group import MemberIdentity
    from headrace.wire.messages.k14_sync_group import SyncGroupRequest


class ConsumerKind:
    """Consumer groups."""

    name = ConsumerGroup.type
    timers = frozenset(member_timers.KEYS)

    # --- the classic protocol ----------------------------------------------------------------------------------------

    def join(
        self, shard: GroupShardState, request: JoinGroupRequest, client: GroupClient, waiter: Waiter, now_ms: int
    ) -> Outcome:
        """Decides a JoinGroup: of a member of the group, or into the classic group that an empty one becomes."""
        refused = classic_join.refusal(shard, request, client)
        if refused is not None:
            return refused.at_once(waiter)
        group = _group(shard, request.group_id)
        if group.has_members:
            out = classic_members.join(shard, group, request, client, now_ms)
        else:
            out = classic_join.decide(shard, request, client, waiter, now_ms, replaced=group)
        return restored_on_failure(shard, request.group_id, out)

    def sync(self, shard: GroupShardState, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> Outcome:
        """Decides a SyncGroup: the reply is the assignment of the member."""
        return classic_members.sync(shard, _group(shard, request.group_id), request, now_ms)

    heartbeat = staticmethod(classic_members.heartbeat)

    def leave(self, shard: GroupShardState, group_id: str, members: list[MemberIdentity], now_ms: int) -> Outcome:
        """Decides a LeaveGroup."""
        out = classic_members.leave(shard, _group(shard, group_id), members, now_ms)
        return restored_on_failure(shard, group_id, out)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def check_commit(
        self, shard: GroupShardState, request: CommitRequest, api_version: int, is_transactional: bool
    ) -> ErrorCode:
        """Returns why a commit is refused."""
        group = _group(shard, request.group_id)
        return offsets.check_commit(group, request, api_version, is_transactional, shard.topics)

    def check_fetch(self, group: ModernGroup, request: OffsetFetchRequestGroup) -> ErrorCode:
        """Returns why a fetch is refused."""
        assert isinstance(group, ConsumerGroup)
        return offsets.check_fetch(group, request)

    def check_delete_offsets(self, shard: GroupShardState, group_id: str) -> ErrorCode:
        """Accepts every OffsetDelete; a topic that is read is refused by itself."""
        return ErrorCode.NONE

    def is_subscribed(self, shard: GroupShardState, group_id: str, topic: str) -> bool:
        """Returns whether a member reads the topic."""
        return _group(shard, group_id).is_subscribed(topic)

    def expire(self, shard: GroupShardState, group_id: str, now_ms: int, out: Outcome) -> None:
        """Removes expired offsets, and the group if it is empty and has none left."""
        offsets.expire(shard, _group(shard, group_id), now_ms, out)

    # --- the group ---------------------------------------------------------------------------------------------------

    def has_members(self, shard: GroupShardState, group_id: str) -> bool:
        """Returns whether the group has members."""
        return _group(shard, group_id).has_members

    def tombstones(self, shard: GroupShardState, group_id: str) -> Sequence[Record]:
        """Returns the tombstones of the group's records."""
        return _group(shard, group_id).tombstones()

    def apply(self, shard: GroupShardState, record: ConsumerRecord) -> None:
        """Applies a record of a consumer group."""
        lifecycle.apply(shard, record, ConsumerGroup)

    def starting(self, shard: GroupShardState, now_ms: int, out: Outcome) -> TimedSteps[int]:
        """Starts the sessions of all members, a member a step."""
        for group in _groups(shard):
            now_ms = yield 1
            now_ms = yield from member_timers.restarting(shard, group, now_ms)
        return now_ms

    def uncommitted(self, shard: GroupShardState) -> Collection[str]:
        """Returns the groups of which a record of a member is not committed."""
        lost = dict.fromkeys(shard.modern.uncommitted())
        for group_id, group in shard.modern.latest.items():
            if isinstance(group, ConsumerGroup) and group.has_uncommitted_members:
                lost[group_id] = None
        return lost.keys()

    def reverted(self, shard: GroupShardState, lost: Collection[str], now_ms: int) -> None:
        """Starts the sessions of members that are back because the records which removed them were lost."""
        for group_id in lost:
            group = shard.modern.latest.get(group_id)
            if isinstance(group, ConsumerGroup):
                member_timers.restart(shard, group, now_ms)

    def due(self, shard: GroupShardState, key: TimerKey, now_ms: int) -> Outcome:
        """Decides what follows from a timer that fired."""
        out = Outcome()
        group = shard.modern.latest.get(key[1])
        if isinstance(group, ConsumerGroup):
            fencing.expired(shard, group, key[0], key[2], now_ms, out)
        return restored_on_failure(shard, key[1], out)


def _group(shard: GroupShardState, group_id: str) -> ConsumerGroup:
    group = shard.modern.latest[group_id]
    assert isinstance(group, ConsumerGroup)
    return group


def _groups(shard: GroupShardState) -> list[ConsumerGroup]:
    """Returns all consumer groups, in order of their ids."""
    return [group for _, group in sorted(shard.modern.latest.items()) if isinstance(group, ConsumerGroup)]


def restored_on_failure(shard: GroupShardState, group_id: str, out: Outcome) -> Outcome:
    """Returns the outcome, which restores what lives in memory if the log refuses its records: members that were to go
    get their timers back, and a classic group that was to take the place of an empty consumer group goes."""
    if not out.records:
        return out
    then = out.then

    def stored(error: ErrorCode, now_ms: int) -> Outcome:
        follows = Outcome() if then is None else then(error, now_ms)
        group = shard.modern.latest.get(group_id)
        if error is not ErrorCode.NONE and isinstance(group, ConsumerGroup):
            member_timers.restart(shard, group, now_ms)
            dissolve(shard, group_id, now_ms, follows)
        return follows

    out.then = stored
    return out
