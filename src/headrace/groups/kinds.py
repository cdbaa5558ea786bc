"""The kinds of groups: the interface that the shard uses, and the table of all kinds.

A group id has one kind at a time. A new kind is a row here, its records in `records`, and its own requests in `shard`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.groups.classic.kind import ClassicKind
from headrace.groups.consumer.kind import ConsumerKind
from headrace.groups.unserved import UnservedKind

if TYPE_CHECKING:
    from headrace.groups.classic.offsets import CommitRequest
    from headrace.groups.group_client import GroupClient
    from headrace.groups.modern.group import ModernGroup
    from headrace.groups.records import Record
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.outcome import Outcome, Waiter
    from headrace.machine.timed_steps import TimedSteps
    from headrace.machine.timers import TimerKey
    from headrace.wire.errors import ErrorCode
    from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup
    from headrace.wire.messages.k11_join_group import JoinGroupRequest
    from headrace.wire.messages.k13_leave_group import MemberIdentity
    from headrace.wire.messages.k14_sync_group import SyncGroupRequest


class GroupKind(Protocol):
    """One kind of groups. Methods with a group id require that the group exists, as decisions see it."""

    @property
    def name(self) -> str:
        """The group type, as ListGroups names it."""
        ...

    @property
    def timers(self) -> Collection[str]:
        """The first words of the keys of its timers."""
        ...

    # --- the classic protocol ----------------------------------------------------------------------------------------

    def join(
        self, shard: GroupShardState, request: JoinGroupRequest, client: GroupClient, waiter: Waiter, now_ms: int, /
    ) -> Outcome:
        """Decides a JoinGroup: the answer is the reply, or is released to `waiter` later."""
        ...

    def sync(self, shard: GroupShardState, request: SyncGroupRequest, waiter: Waiter, now_ms: int, /) -> Outcome:
        """Decides a SyncGroup: the answer is the reply, or is released to `waiter` later."""
        ...

    def heartbeat(
        self,
        shard: GroupShardState,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        /,
    ) -> ErrorCode:
        """Decides a Heartbeat; returns the error of its answer. It never writes a record."""
        ...

    def leave(self, shard: GroupShardState, group_id: str, members: list[MemberIdentity], now_ms: int, /) -> Outcome:
        """Decides a LeaveGroup of all `members`."""
        ...

    # --- offsets -----------------------------------------------------------------------------------------------------

    def check_commit(
        self, shard: GroupShardState, request: CommitRequest, api_version: int, is_transactional: bool, /
    ) -> ErrorCode:
        """Returns why a whole commit is refused, or NONE."""
        ...

    def check_fetch(self, group: ModernGroup, request: OffsetFetchRequestGroup, /) -> ErrorCode:
        """Returns why a whole fetch is refused, or NONE; looks at committed state."""
        ...

    def check_delete_offsets(self, shard: GroupShardState, group_id: str, /) -> ErrorCode:
        """Returns why a whole OffsetDelete is refused, or NONE."""
        ...

    def is_subscribed(self, shard: GroupShardState, group_id: str, topic: str, /) -> bool:
        """Returns whether a member may read the topic."""
        ...

    def expire(self, shard: GroupShardState, group_id: str, now_ms: int, out: Outcome, /) -> None:
        """Removes the expired offsets of the group, and the group itself if it is empty."""
        ...

    # --- the group ---------------------------------------------------------------------------------------------------

    def has_members(self, shard: GroupShardState, group_id: str, /) -> bool:
        """Returns whether the group has members, so that it cannot be deleted."""
        ...

    def tombstones(self, shard: GroupShardState, group_id: str, /) -> Sequence[Record]:
        """Returns the tombstones of the group, without those of its offsets."""
        ...

    def apply(self, shard: GroupShardState, record: Any, /) -> None:
        """Applies a record of this kind that is in the log, live or at a load."""
        ...

    def starting(self, shard: GroupShardState, now_ms: int, out: Outcome, /) -> TimedSteps[int]:
        """Restores the in-memory state after all records of the log are applied, about a member a step. Returns the
        time that it was last sent."""
        ...

    def uncommitted(self, shard: GroupShardState, /) -> Collection[str]:
        """Returns the groups of this kind with uncommitted changes that `reverted` would restore."""
        ...

    def reverted(self, shard: GroupShardState, lost: Collection[str], now_ms: int, /) -> None:
        """Brings the in-memory state of the `lost` groups in line with the tables, which were reverted to the committed
        state. `lost` is what `uncommitted` returned before."""
        ...

    def due(self, shard: GroupShardState, key: TimerKey, now_ms: int, /) -> Outcome:
        """Decides what follows from an expired timer."""
        ...


CLASSIC: Final = ClassicKind()
CONSUMER: Final = ConsumerKind()

KINDS: Final[tuple[GroupKind, ...]] = (CLASSIC, CONSUMER, UnservedKind("share"), UnservedKind("streams"))
"""All kinds, in the order of a load."""
KIND_OF: Final = {kind.name: kind for kind in KINDS}
"""The kind of each group type."""
KIND_OF_TIMER: Final = {timer: kind for kind in KINDS for timer in kind.timers}
"""The kind of each timer, by the first word of its key."""


def kind_of(shard: GroupShardState, group_id: str) -> GroupKind:
    """Returns the kind of a group as decisions see it; an id without a group counts as classic."""
    group = shard.modern.latest.get(group_id)
    return CLASSIC if group is None else KIND_OF[group.type]
