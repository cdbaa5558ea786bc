"""ConsumerGroupDescribe: a group by its committed records."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.groups.consumer.group import NO_ASSIGNMENT, NO_PARTITIONS, ConsumerGroup
from headrace.groups.modern.epochs import NEW_ASSIGNMENT_EPOCH, NEW_GROUP_EPOCH
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k69_consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

if TYPE_CHECKING:
    from headrace.groups.modern.topics import Topics
    from headrace.groups.shard_state import GroupShardState

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1
"""The member type of the consumer protocol in descriptions."""


def describing(shard: GroupShardState, group_id: str) -> Generator[int, None, DescribedGroup]:
    """Describes a group; GROUP_ID_NOT_FOUND if there is no consumer group of this id. Yields after each member."""
    group = shard.modern.committed(group_id)
    if isinstance(group, ConsumerGroup):
        return (yield from _describing(group, shard.topics, shard.settings_of(group_id).assignors))
    exists = group is not None or shard.classic.committed(group_id) is not None
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a consumer group." if exists else f"Group {group_id} not found.",
        group_id=group_id,
    )


def _describing(group: ConsumerGroup, topics: Topics, assignors: Sequence[str]) -> Generator[int, None, DescribedGroup]:
    """Describes the group with its members in order of their ids; deleted topics are left out."""
    epoch, target_epoch = (
        group.epochs.committed(None) or NEW_GROUP_EPOCH,
        group.target_epochs.committed(None) or NEW_ASSIGNMENT_EPOCH,
    )
    described = DescribedGroup(
        group_id=group.id,
        group_state=group.committed_state,
        group_epoch=epoch.epoch,
        assignment_epoch=target_epoch.epoch,
    )
    votes = dict.fromkeys(assignors, 0)
    for member_id, member in sorted(group.members.committed_items(), key=lambda item: item[0]):
        yield 1
        if member.assignor in votes:
            votes[member.assignor] += 1
        current = group.currents.committed(member_id) or NO_ASSIGNMENT
        has: dict[bytes, set[int]] = {topic_id: set(epochs) for topic_id, epochs in current.assigned.items()}
        for topic_id, epochs in current.revoking.items():
            has.setdefault(topic_id, set()).update(epochs)
        described.members.append(
            Member(
                member_id=member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=current.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                subscribed_topic_regex=member.regex or None,
                assignment=_named(has, topics),
                target_assignment=_named(group.targets.committed(member_id) or NO_PARTITIONS, topics),
                member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
            )
        )
    described.assignor_name = max(votes, key=lambda name: votes[name])
    return described


def _named(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> Assignment:
    return Assignment(
        [
            TopicPartitions(topic_id, topics.by_id[topic_id].name, sorted(all_))
            for topic_id, all_ in sorted(partitions.items())
            if topic_id in topics.by_id
        ]
    )
