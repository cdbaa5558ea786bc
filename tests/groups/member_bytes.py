"""What the members of a shard keep, counted member by member."""

from __future__ import annotations

from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.shard_state import GroupShardState


def counted(state: GroupShardState) -> dict[tuple[str, str], int]:
    """(group id, member id) -> bytes, of everybody that is in a group or was given a member id."""
    found = {}
    for group in state.groups.values():
        found.update({(group.id, member_id): len(member_id) for member_id in group.pending_joins})
        found.update({(group.id, member.id): member.size for member in group.members.values()})
    for group_id, modern in state.modern.latest.items():
        if isinstance(modern, ConsumerGroup):
            found.update({(group_id, member_id): member.size for member_id, member in modern.members.latest.items()})
    return found


def kept(state: GroupShardState) -> dict[tuple[str, str], int]:
    """The same, as the shard keeps it."""
    return {key: size for key, (_, size) in state.member_bytes.by_member.items()}
