"""DescribeGroups, and the classic groups of ListGroups. Both read committed state only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.groups.classic.group import Group, restored
from headrace.groups.classic.states import GroupState
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k15_describe_groups import DescribedGroup, DescribedGroupMember
from headrace.wire.messages.k16_list_groups import ListedGroup

if TYPE_CHECKING:
    from headrace.groups.records import StoredGroup
    from headrace.groups.shard_state import GroupShardState
    from headrace.wire.messages.group_records import MemberMetadata


def describe(shard: GroupShardState, group_id: str) -> DescribedGroup:
    """Returns a classic group as it is committed; Dead, with GROUP_ID_NOT_FOUND, if there is none."""
    stored = shard.classic.committed(group_id)
    if stored is None:
        exists = shard.modern.committed(group_id) is not None
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} is not a classic group." if exists else f"Group {group_id} not found.",
            group_id=group_id,
            group_state=GroupState.DEAD.value,
        )
    group = _as_committed(shard, group_id, stored)
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(stored.protocol or "") if is_stable else "",
        members=_stored_members(stored.members) if is_stable else _living_members(group),
    )


def listed(shard: GroupShardState) -> Iterator[ListedGroup]:
    """Yields every committed classic group."""
    for group_id, stored in shard.classic.committed_items():
        group = _as_committed(shard, group_id, stored)
        yield ListedGroup(group_id, group.protocol_type or "", group.state.value, "classic")


def _as_committed(shard: GroupShardState, group_id: str, stored: StoredGroup) -> Group:
    """Returns a committed group: the one in memory, or the stored one if its removal or its current generation is
    uncommitted."""
    group = shard.groups.get(group_id)
    if group is None or (group.state is GroupState.STABLE and not stored.members):
        return restored(group_id, stored)
    return group


def _stored_members(members: list[MemberMetadata]) -> list[DescribedGroupMember]:
    """Returns the members of a stable group, as its generation is stored."""
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.subscription,
            member_assignment=member.assignment,
        )
        for member in members
    ]


def _living_members(group: Group) -> list[DescribedGroupMember]:
    """Returns the members of a group between two generations: they are in memory only, and have no protocol yet."""
    return [
        DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
