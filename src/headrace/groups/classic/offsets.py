"""The offsets of classic groups: valid commits, the topics that members read, and expiry.

Sources: KIP-211 (expiry), KIP-447 (transactional commits with a member), KIP-496 (OffsetDelete).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.groups.classic.states import GroupState
from headrace.groups.offsets_table import OffsetTable, PartitionKey
from headrace.groups.records import GroupRecord, OffsetRecord
from headrace.machine.timeline import Timeline
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import OffsetCommitRequest
from headrace.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from headrace.groups.classic.group import Group
    from headrace.groups.shard_state import GroupShardState
    from headrace.machine.outcome import Outcome

CommitRequest: TypeAlias = OffsetCommitRequest | TxnOffsetCommitRequest

NO_OFFSETS: Final = OffsetTable(Timeline())
"""The offsets of a group without commits."""


def is_anonymous(request: CommitRequest) -> bool:
    """Returns whether a commit names no member and no generation."""
    return request.generation_id_or_member_epoch < 0 and not request.member_id and request.group_instance_id is None


def check_commit(
    shard: GroupShardState, request: CommitRequest, _api_version: int, is_transactional: bool
) -> ErrorCode:
    """Returns why a commit is refused. A transactional one without a member passes in every state: its producer fences
    it."""
    group = shard.groups[request.group_id]
    generation = request.generation_id_or_member_epoch
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and is_anonymous(request):
        return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def is_subscribed(group: Group, topic: str) -> bool:
    """Returns whether a member may read the topic."""
    return group.state is not GroupState.EMPTY and group.is_subscribed(topic)


def expire(shard: GroupShardState, group_id: str, now_ms: int, out: Outcome) -> None:
    """Removes expired offsets, and the group if it is empty and has none left."""
    group = shard.groups[group_id]
    table = shard.offsets.latest.get(group_id) or NO_OFFSETS
    expired = _expired(shard, group, table, now_ms)
    out.records.extend(OffsetRecord(group_id, topic, partition, None) for topic, partition in sorted(expired))
    holds = len(expired) < len(table.latest) or bool(table.pending.latest)
    if group.state is GroupState.EMPTY and not holds and not group.pending_joins:
        out.records.append(GroupRecord(group_id, None))


def _expired(shard: GroupShardState, group: Group, table: OffsetTable, now_ms: int) -> list[PartitionKey]:
    """Returns the partitions with expired offsets. Retention counts from the commit in a simple group, and for topics
    that a stable group does not read; in an empty group from the time when it became empty. A group in any other state
    keeps its offsets."""
    since_ms = -1
    if group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = group.state_since_ms
        elif group.state is not GroupState.STABLE or not group.is_consumer or group.subscribed is None:
            return []
    retention_ms, pending = shard.settings.offsets_retention_ms, table.pending_keys()
    expired = []
    for key, offset in table.latest.items():
        if is_subscribed(group, key[0]) or key in pending:
            continue
        if offset.expires_ms >= 0:
            is_expired = now_ms >= offset.expires_ms
        else:
            is_expired = now_ms - (since_ms if since_ms >= 0 else offset.committed_ms) >= retention_ms
        if is_expired:
            expired.append(key)
    return expired
