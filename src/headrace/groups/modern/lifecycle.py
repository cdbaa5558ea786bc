"""How the records of a modern group create, fill and remove it, live and at a load alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.groups.classic.group import SIMPLE_GROUP, Group
from headrace.machine.timeline import add_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.groups.consumer.records import ConsumerRecord
    from headrace.groups.modern.group import ModernGroup
    from headrace.groups.records import UnservedRecord
    from headrace.groups.shard_state import GroupShardState
    from headrace.groups.usage import MemberUsage
    from headrace.machine.timeline import Timeline

Create: TypeAlias = "Callable[[str, Timeline, MemberUsage], ModernGroup]"
"""Creates a group with an id, on a timeline, with the usage that counts its members."""


def apply(shard: GroupShardState, record: ConsumerRecord | UnservedRecord, create: Create) -> None:
    """Applies a record of a modern group, which `create` makes if this is its first one."""
    group_id = record.group_id
    group = shard.modern.latest.get(group_id)
    if group is None or group.type != record.group_type:
        if record.value is None:
            return  # compaction left this tombstone of an earlier group of that id and another type
        replaced_bytes = 0 if group is None else group.assignment_bytes
        group = create(group_id, shard.timeline, shard.member_bytes)
        add_to(shard.assignment_bytes, None, -replaced_bytes)
        shard.modern.put(group_id, group)
        _take_over_simple_group(shard, group_id)
    before = group.assignment_bytes
    group.apply(record)
    add_to(shard.assignment_bytes, None, group.assignment_bytes - before)
    if group.is_gone:
        shard.modern.remove(group_id)
        if group_id in shard.offsets.latest and group_id not in shard.classic.latest:
            shard.classic.put(group_id, SIMPLE_GROUP)
            if group_id not in shard.groups:
                shard.add_group(Group(group_id))


def _take_over_simple_group(shard: GroupShardState, group_id: str) -> None:
    """Takes over a simple group, which offsets create that precede the group's own records in the log."""
    if shard.classic.latest.get(group_id) is SIMPLE_GROUP and shard.groups[group_id].protocol_type is None:
        shard.classic.remove(group_id)
        shard.remove_group(group_id)
