"""The `GroupKind` of classic groups, and of simple ones that have offsets alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headrace.groups.classic import describe, lifecycle, membership, offsets, rebalance
from headrace.groups.classic.join import join
from headrace.groups.classic.states import GroupState
from headrace.groups.classic.sync import sync
from headrace.groups.records import GroupRecord
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.groups.modern.group import ModernGroup
    from headrace.groups.records import Record
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.timers import TimerKey
    from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup


class ClassicKind:
    """Classic groups, and simple ones, which only hold offsets."""

    name = "classic"
    timers = frozenset({"session", "join", "sync"})

    # --- the classic protocol ----------------------------------------------------------------------------------------

    join = staticmethod(join)
    sync = staticmethod(sync)
    heartbeat = staticmethod(membership.heartbeat)
    leave = staticmethod(membership.leave)

    # --- offsets -----------------------------------------------------------------------------------------------------

    check_commit = staticmethod(offsets.check_commit)

    def check_fetch(self, group: ModernGroup, request: OffsetFetchRequestGroup) -> ErrorCode:
        """Accepts every fetch."""
        return ErrorCode.NONE

    def check_delete_offsets(self, shard: GroupShardState, group_id: str) -> ErrorCode:
        """Returns NON_EMPTY_GROUP for members that are no consumers: what they read is not known."""
        group = shard.groups[group_id]
        is_refused = group.state is not GroupState.EMPTY and not group.is_consumer
        return ErrorCode.NON_EMPTY_GROUP if is_refused else ErrorCode.NONE

    def is_subscribed(self, shard: GroupShardState, group_id: str, topic: str) -> bool:
        """Returns whether a member may read the topic."""
        return offsets.is_subscribed(shard.groups[group_id], topic)

    expire = staticmethod(offsets.expire)

    # --- the group ---------------------------------------------------------------------------------------------------

    def has_members(self, shard: GroupShardState, group_id: str) -> bool:
        """Returns whether the group has members, or is just losing its last one."""
        return shard.groups[group_id].state is not GroupState.EMPTY

    def tombstones(self, shard: GroupShardState, group_id: str) -> Sequence[Record]:
        """Returns the tombstone of the group."""
        return [GroupRecord(group_id, None)]

    listed = staticmethod(describe.listed)
    apply = staticmethod(lifecycle.apply)
    starting = staticmethod(lifecycle.starting)
    reverted = staticmethod(lifecycle.reverted)

    def uncommitted(self, shard: GroupShardState) -> Collection[str]:
        """Returns the groups whose latest record is not committed."""
        return shard.classic.uncommitted()

    def due(self, shard: GroupShardState, key: TimerKey, now_ms: int) -> Outcome:
        """Decides what follows from a timer that fired."""
        out = Outcome()
        group = shard.groups.get(key[1])
        if group is None:
            return out
        if key[0] == "session":
            rebalance.session_expired(shard, group, key[2], now_ms, out)
        elif key[0] == "join":
            rebalance.join_phase_expired(shard, group, now_ms, out)
        else:
            rebalance.sync_phase_expired(shard, group, now_ms, out)
        return out
