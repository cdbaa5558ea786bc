"""Share and streams groups, which no member can join here: their records are kept, and the groups are listed.

Apache Kafka may have written them, and may coordinate them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.groups.classic import join, membership
from headrace.groups.classic.offsets import is_anonymous
from headrace.groups.classic.sync import sync
from headrace.groups.modern import lifecycle
from headrace.groups.records import UNSERVED_MEMBER_KEYS, UnservedRecord
from headrace.machine.outcome import Outcome
from headrace.machine.timeline import Timeline, TimelineTable
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headrace.groups.classic.offsets import CommitRequest
    from headrace.groups.group_client import GroupClient
    from headrace.groups.modern.group import ModernGroup
    from headrace.groups.records import Record
    from headrace.groups.shard_state import GroupShardState
    from headrace.groups.usage import MemberUsage
    from headrace.machine.outcome import Waiter
    from headrace.machine.timed_steps import TimedSteps
    from headrace.machine.timers import TimerKey
    from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup
    from headrace.wire.messages.k11_join_group import JoinGroupRequest


class UnservedGroup:
    """A share or streams group as its records describe it."""

    __slots__ = ("id", "keys", "members", "type")

    def __init__(self, group_id: str, group_type: str, timeline: Timeline) -> None:
        self.id = group_id
        self.type = group_type
        """The type as ListGroups names it: "share" or "streams"."""
        self.keys: TimelineTable[bytes, UnservedRecord] = TimelineTable(timeline)
        """The live records by key, for their tombstones if the group is deleted."""
        self.members: TimelineTable[bytes, UnservedRecord] = TimelineTable(timeline)
        """The live records of members."""

    @property
    def has_members(self) -> bool:
        """Whether it has members, as decisions see it."""
        return bool(self.members.latest)

    @property
    def is_gone(self) -> bool:
        """Whether none of its records is left in the log."""
        return not self.keys.latest

    @property
    def committed_state(self) -> str:
        """The name of the state that the committed records imply."""
        return "Stable" if self.members.committed_items() else "Empty"

    @property
    def assignment_bytes(self) -> int:
        """The memory of assignments: 0, because they are part of the records."""
        return 0

    def apply(self, record: UnservedRecord) -> None:
        """Applies one of its records."""
        tables = (self.keys, self.members) if record.kind in UNSERVED_MEMBER_KEYS else (self.keys,)
        for table in tables:
            table.remove(record.key)
            if record.value is not None:
                table.put(record.key, record)

    def tombstones(self) -> list[UnservedRecord]:
        """Returns the tombstones of all its records, those of members before that of the group."""
        return [
            UnservedRecord(self.id, record.kind, record.key, None)
            for record in sorted(self.keys.latest.values(), key=lambda record: (-record.kind, record.key))
        ]


class UnservedKind:
    """Share groups or streams groups."""

    timers = frozenset[str]()

    def __init__(self, name: str) -> None:
        self.name = name

    # --- the classic protocol: there is no classic group, so a member is unknown -------------------------------------

    sync = staticmethod(sync)
    heartbeat = staticmethod(membership.heartbeat)
    leave = staticmethod(membership.leave)

    def join(
        self, shard: GroupShardState, request: JoinGroupRequest, client: GroupClient, waiter: Waiter, now_ms: int
    ) -> Outcome:
        """Refuses a JoinGroup."""
        refused = join.refusal(shard, request, client) or join.refuse("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return refused.at_once(waiter)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def check_commit(
        self, shard: GroupShardState, request: CommitRequest, api_version: int, is_transactional: bool
    ) -> ErrorCode:
        """Accepts a commit that names no member: an administrator's while there are no members, and a transaction's."""
        passes = is_transactional and is_anonymous(request)
        if request.generation_id_or_member_epoch < 0 and not self.has_members(shard, request.group_id):
            passes = True
        return ErrorCode.NONE if passes else ErrorCode.UNKNOWN_MEMBER_ID

    def check_fetch(self, group: ModernGroup, request: OffsetFetchRequestGroup) -> ErrorCode:
        """Accepts every fetch."""
        return ErrorCode.NONE

    def check_delete_offsets(self, shard: GroupShardState, group_id: str) -> ErrorCode:
        """Accepts every OffsetDelete; each topic is checked separately."""
        return ErrorCode.NONE

    def is_subscribed(self, shard: GroupShardState, group_id: str, topic: str) -> bool:
        """Returns whether members may read the topic, whose subscriptions are unknown."""
        return self.has_members(shard, group_id)

    def expire(self, shard: GroupShardState, group_id: str, now_ms: int, out: Outcome) -> None:
        """Keeps the offsets and the group."""

    # --- the group ---------------------------------------------------------------------------------------------------

    def has_members(self, shard: GroupShardState, group_id: str) -> bool:
        """Returns whether the group has members."""
        return shard.modern.latest[group_id].has_members

    def tombstones(self, shard: GroupShardState, group_id: str) -> Sequence[Record]:
        """Returns the tombstones of the group's records."""
        return shard.modern.latest[group_id].tombstones()

    def apply(self, shard: GroupShardState, record: UnservedRecord) -> None:
        """Applies a record of such a group."""
        lifecycle.apply(shard, record, self._create)

    def _create(self, group_id: str, timeline: Timeline, _usage: MemberUsage) -> UnservedGroup:
        return UnservedGroup(group_id, self.name, timeline)

    def starting(self, shard: GroupShardState, now_ms: int, out: Outcome) -> TimedSteps[int]:
        """Makes no step: these groups have no in-memory state."""
        yield from ()
        return now_ms

    def uncommitted(self, shard: GroupShardState) -> Collection[str]:
        """Returns none: these groups have no in-memory state."""
        return ()

    def reverted(self, shard: GroupShardState, lost: Collection[str], now_ms: int) -> None:
        """Does nothing: these groups have no in-memory state."""

    def due(self, shard: GroupShardState, key: TimerKey, now_ms: int) -> Outcome:
        """Is never called: the groups have no timers."""
        raise AssertionError(f"{self.name} groups have no timer {key}")
