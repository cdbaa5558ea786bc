"""The validity of commits and fetches in a consumer group (KIP-848, KIP-1251)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.groups.classic.offsets import NO_OFFSETS
from headrace.groups.records import OffsetRecord
from headrace.wire.errors import ErrorCode
from headrace.wire.uuids import ZERO

if TYPE_CHECKING:
    from headrace.groups.consumer.group import ConsumerGroup
    from headrace.groups.consumer.records import CurrentAssignment
    from headrace.groups.modern.topics import Topics
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.outcome import Outcome
    from headrace.wire.messages.k08_offset_commit import OffsetCommitRequest
    from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup
    from headrace.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest

_EPOCHS_FROM: Final = 9
"""The OffsetCommit version whose generation may be a member epoch."""


def check_commit(
    group: ConsumerGroup,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    api_version: int,
    is_transactional: bool,
    topics: Topics,
) -> ErrorCode:
    """Returns why a whole commit is refused, or NONE."""
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.has_members:
        return ErrorCode.NONE
    if is_transactional and epoch == -1 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.NONE
    member = group.members.latest.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not is_transactional and member.classic is None and api_version < _EPOCHS_FROM:
        return ErrorCode.UNSUPPORTED_VERSION
    current = group.current(request.member_id)
    if epoch == current.epoch:
        return ErrorCode.NONE
    stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    if epoch > current.epoch:
        return stale
    for topic in request.topics:
        topic_id = topic.topic_id
        if topic_id == ZERO and topic.name in topics.by_name:
            topic_id = topics.by_name[topic.name].id
        for requested in topic.partitions:
            since = _assigned_since(current, topic_id, requested.partition_index)
            if since is None or since > epoch:
                return stale
    return ErrorCode.NONE


def _assigned_since(current: CurrentAssignment, topic_id: bytes, partition: int) -> int | None:
    """Returns the epoch in which the member was assigned a partition that it has, or has to revoke; None otherwise."""
    since = current.assigned.get(topic_id, {}).get(partition)
    return current.revoking.get(topic_id, {}).get(partition) if since is None else since


def expire(shard: GroupShardState, group: ConsumerGroup, now_ms: int, out: Outcome) -> None:
    """Removes the group's expired offsets, and the group if it is empty then. Retention counts from the commit; topics
    that a member reads keep their offsets."""
    table = shard.offsets.latest.get(group.id) or NO_OFFSETS
    retention_ms, pending = shard.settings.offsets_retention_ms, table.pending_keys()
    expired = [
        key
        for key, offset in table.latest.items()
        if not group.is_subscribed(key[0])
        and key not in pending
        and now_ms >= (offset.expires_ms if offset.expires_ms >= 0 else offset.committed_ms + retention_ms)
    ]
    out.records.extend(OffsetRecord(group.id, topic, partition, None) for topic, partition in sorted(expired))
    if not group.has_members and len(expired) == len(table.latest) and not table.pending.latest:
        out.records.extend(group.tombstones())


def check_fetch(group: ConsumerGroup, request: OffsetFetchRequestGroup) -> ErrorCode:
    """Returns why a member's fetch is refused, or NONE; one without a member passes. Reads the committed state."""
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    if request.member_id is None or (member := group.members.committed(request.member_id)) is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    current = group.currents.committed(request.member_id)
    if request.member_epoch == (0 if current is None else current.epoch):
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
