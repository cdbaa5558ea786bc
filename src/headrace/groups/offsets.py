"""Committed offsets: commit, fetch, delete, expiry, and what the end of a transaction does to them.

Sources: KIP-211 (expiry), KIP-447 (RequireStable), KIP-496 (OffsetDelete), KIP-709 (batched OffsetFetch), KIP-848
(topic ids in commit and fetch).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.offsets import check_commit, check_fetch
from headrace.groups.group import Group
from headrace.groups.offsets_table import OffsetTable, PartitionKey
from headrace.groups.outcome import NEVER_JOINED, ShardState
from headrace.groups.rebalance import touch
from headrace.groups.records import GroupRecord, Offset, OffsetRecord, Record
from headrace.groups.states import GroupState
from headrace.machine.outcome import Outcome
from headrace.machine.timeline import Timeline
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headrace.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.wire.messages.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.wire.messages.k47_offset_delete import OffsetDeleteResponsePartition as DeletedPartition
from headrace.wire.messages.k47_offset_delete import OffsetDeleteResponseTopic as DeletedTopic
from headrace.wire.uuids import ZERO

_GROUP_ID_NOT_FOUND_FROM: Final = 9
"""The OffsetCommit version from which an unknown group is called so; before it, the generation is called illegal."""
_TXN_GROUP_ID_NOT_FOUND_FROM: Final = 6
"""The same of TxnOffsetCommit (KIP-1319)."""


PARTITIONS_PER_STEP: Final = 20
"""Offsets that are fetched between two steps of an answer."""


# --- commit ----------------------------------------------------------------------------------------------------------


MakeGroup: TypeAlias = Callable[[ShardState, str], ErrorCode]
"""Makes room for a group that only holds offsets, or says why there is none."""


def _made_by(principal: str, now_ms: int) -> MakeGroup:
    def make(shard: ShardState, group_id: str) -> ErrorCode:
        if not shard.has_room_for_group(principal, now_ms):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard.group_made(group_id, principal)
        return ErrorCode.NONE

    return make


def commit(
    shard: ShardState, request: OffsetCommitRequest, api_version: int, now_ms: int, principal: str = ""
) -> Outcome:
    """Decides an OffsetCommit whose topics are known to exist and carry both name and id where there is one.

    `reply` holds exactly the request's topics, in its order.
    """
    group = shard.groups.get(request.group_id)
    names_unknown = api_version >= _GROUP_ID_NOT_FOUND_FROM
    error = _check_commit(shard, request, api_version, names_unknown, _made_by(principal, now_ms))
    if error is not ErrorCode.NONE:
        return Outcome(commit_error(request, error))
    if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        touch(shard, group.members[request.member_id], now_ms)
    out = Outcome()
    expires_ms = now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
    metadata_max = shard.settings.offset_metadata_max_bytes
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            metadata = asked.committed_metadata or ""
            if len(metadata) > metadata_max:
                refused = ErrorCode.OFFSET_METADATA_TOO_LARGE
                partitions.append(OffsetCommitResponsePartition(asked.partition_index, refused))
                continue
            partitions.append(OffsetCommitResponsePartition(asked.partition_index, 0))
            epoch = asked.committed_leader_epoch
            offset = Offset(asked.committed_offset, epoch, metadata, now_ms, expires_ms, topic.topic_id)
            out.records.append(OffsetRecord(request.group_id, topic.name, asked.partition_index, offset))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    out.reply = OffsetCommitResponse(topics=topics)
    return out


def _check_commit(
    shard: ShardState,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    api_version: int,
    names_unknown_groups: bool,
    may_make_group: MakeGroup,
) -> ErrorCode:
    """Why a commit is refused. A transactional one of nobody in particular passes in every state: what fences it is its
    producer."""
    generation = request.generation_id_or_member_epoch
    member_id, instance_id = request.member_id, request.group_instance_id
    is_transactional = isinstance(request, TxnOffsetCommitRequest)
    is_nobodys = generation < 0 and not member_id and instance_id is None
    group = shard.groups.get(request.group_id)
    if group is None:
        modern = shard.modern.latest.get(request.group_id)
        if isinstance(modern, ConsumerGroup):
            return check_commit(modern, request, api_version, is_transactional, shard.topics)
        if modern is not None:
            # Its members do not speak to us, so that only an administrator's commit to an empty group can be meant.
            passes = (is_transactional and is_nobodys) or (generation < 0 and not modern.has_members)
            return ErrorCode.NONE if passes else ErrorCode.UNKNOWN_MEMBER_ID
        if generation < 0:
            return may_make_group(shard, request.group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if names_unknown_groups else ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if is_nobodys:
        return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def commit_error(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition that was asked for."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetCommitResponsePartition(asked.partition_index, error) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def commit_in_transaction(
    shard: ShardState, request: TxnOffsetCommitRequest, api_version: int, now_ms: int, principal: str = ""
) -> Outcome:
    """Decides a TxnOffsetCommit whose topics are known to exist: its offsets wait for the end of the transaction.

    `reply` holds exactly the request's topics, in its order.
    """
    names_unknown = api_version >= _TXN_GROUP_ID_NOT_FOUND_FROM
    error = _check_commit(shard, request, api_version, names_unknown, _made_by(principal, now_ms))
    if error is not ErrorCode.NONE:
        return Outcome(txn_commit_error(request, error))
    out = Outcome(producer=(request.producer_id, request.producer_epoch))
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            metadata = asked.committed_metadata or ""
            refused = len(metadata) > shard.settings.offset_metadata_max_bytes
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE if refused else ErrorCode.NONE
            partitions.append(TxnOffsetCommitResponsePartition(asked.partition_index, error))
            if not refused:
                epoch = asked.committed_leader_epoch
                offset = Offset(asked.committed_offset, epoch, metadata, now_ms, -1, topic.topic_id)
                out.records.append(OffsetRecord(request.group_id, topic.name, asked.partition_index, offset))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    out.reply = TxnOffsetCommitResponse(topics=topics)
    return out


def txn_commit_error(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """The same error for every partition that was asked for."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [TxnOffsetCommitResponsePartition(asked.partition_index, error) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


# --- fetch -----------------------------------------------------------------------------------------------------------


def fetching(
    shard: ShardState, request: OffsetFetchRequestGroup, require_stable: bool
) -> Generator[int, None, OffsetFetchResponseGroup]:
    """The committed offsets of one group; an unknown group, like an unknown partition, has -1 and no error. It yields
    after each topic, and after each few partitions."""
    group_id = request.group_id
    modern = shard.modern.committed(group_id)
    if isinstance(modern, ConsumerGroup):
        error = check_fetch(modern, request)
        if error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    known = modern is not None or shard.classic.committed(group_id) is not None
    table = (shard.offsets.committed(group_id) if known else None) or _EMPTY_TABLE
    unstable = table.unstable() if require_stable else _NONE
    committed = table.positions.committed
    if request.topics is None:
        return OffsetFetchResponseGroup(group_id=group_id, topics=(yield from _fetching_all(table, unstable)))
    topics = []
    for asked in request.topics:
        partitions = []
        yield 1
        for number, index in enumerate(asked.partition_indexes, 1):
            if number % PARTITIONS_PER_STEP == 0:
                yield 1
            key = (asked.name, index)
            offset = committed(key)
            if offset is not None and asked.topic_id != ZERO and offset.topic_id not in (ZERO, asked.topic_id):
                offset = None  # committed for another topic that had this name
            partitions.append(_fetched(index, offset, key in unstable))
        topics.append(OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _fetching_all(
    table: OffsetTable, unstable: AbstractSet[PartitionKey]
) -> Generator[int, None, list[OffsetFetchResponseTopics]]:
    topics: list[OffsetFetchResponseTopics] = []
    for number, (key, offset) in enumerate(table.all_committed(), 1):
        if number % PARTITIONS_PER_STEP == 0:
            yield 1
        if not topics or topics[-1].name != key[0]:
            topics.append(OffsetFetchResponseTopics(name=key[0]))
        topics[-1].partitions.append(_fetched(key[1], offset, key in unstable))
    return topics


def _fetched(index: int, offset: Offset | None, unstable: bool) -> OffsetFetchResponsePartitions:
    if unstable or offset is None:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else ErrorCode.NONE,
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.position,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


_EMPTY_TABLE: Final = OffsetTable(Timeline())
_NONE: Final[frozenset[PartitionKey]] = frozenset()


# --- delete ----------------------------------------------------------------------------------------------------------


def delete_offsets(shard: ShardState, request: OffsetDeleteRequest) -> Outcome:
    """Decides an OffsetDelete whose topics are known to exist: offsets of topics that nobody in the group reads."""
    group_id = request.group_id
    group, modern = shard.groups.get(group_id), shard.modern.latest.get(group_id)
    if modern is None and (group is None or group.state is GroupState.DEAD):
        return Outcome(OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    if group is not None and group.state is not GroupState.EMPTY and not group.is_consumer:
        return Outcome(OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    table = shard.offsets.latest.get(group_id) or _EMPTY_TABLE
    out = Outcome()
    topics = []
    there = table.keys()
    for topic in request.topics:
        subscribed = _reads(group, topic.name)
        if isinstance(modern, ConsumerGroup):
            subscribed = modern.is_subscribed(topic.name)
        elif modern is not None and group is None:
            subscribed = modern.has_members
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        for asked in topic.partitions:
            if not subscribed and (topic.name, asked.partition_index) in there:
                out.records.append(OffsetRecord(group_id, topic.name, asked.partition_index, None))
        partitions = [DeletedPartition(asked.partition_index, error) for asked in topic.partitions]
        topics.append(DeletedTopic(topic.name, partitions))
    out.reply = OffsetDeleteResponse(topics=topics)
    return out


def _reads(group: Group | None, topic: str) -> bool:
    return group is not None and group.state is not GroupState.EMPTY and group.is_subscribed(topic)


def delete_group(shard: ShardState, group_id: str) -> tuple[ErrorCode, list[Record]]:
    """The records that delete a group with its offsets, or why it cannot be deleted."""
    group, modern = shard.groups.get(group_id), shard.modern.latest.get(group_id)
    if modern is None and (group is None or group.state is GroupState.DEAD):
        return ErrorCode.GROUP_ID_NOT_FOUND, []
    if (group is not None and group.state is not GroupState.EMPTY) or (modern is not None and modern.has_members):
        return ErrorCode.NON_EMPTY_GROUP, []
    records: list[Record] = []
    table = shard.offsets.latest.get(group_id)
    if table is not None:
        records.extend(OffsetRecord(group_id, topic, partition, None) for topic, partition in sorted(table.keys()))
    if modern is not None:
        records.extend(modern.tombstones())
    else:
        records.append(GroupRecord(group_id, None))
    return ErrorCode.NONE, records


def forget_topics(shard: ShardState, deleted: Mapping[str, bytes], exists: Collection[str]) -> Outcome:
    """Tombstones for the offsets of deleted topics (name -> id); a topic created again under the name keeps its own."""
    out = Outcome(is_atomic=False)
    for group_id, table in sorted(shard.offsets.latest.items()):
        found = set()
        pending = [(key, offset) for (_, key), offset in table.pending.latest.items()]
        for key, offset in [*table.latest.items(), *pending]:
            topic_id = deleted.get(key[0])
            if topic_id is None:
                continue
            if offset.topic_id == topic_id or (offset.topic_id == ZERO and key[0] not in exists):
                found.add(key)
        out.records.extend(OffsetRecord(group_id, topic, partition, None) for topic, partition in sorted(found))
    if out.records:
        out.note(
            "offsets of deleted topics are removed", offsets=len(out.records), topics=len(deleted), first=min(deleted)
        )
    return out


def forget_missing(shard: ShardState, topic_ids: Container[bytes]) -> Outcome:
    """Tombstones for offsets of topics that are no more: they may have been deleted while nobody coordinated them."""
    out = Outcome(is_atomic=False)
    for group_id, table in sorted(shard.offsets.latest.items()):
        for (topic, partition), offset in sorted(table.latest.items(), key=lambda item: item[0]):
            if offset.topic_id != ZERO and offset.topic_id not in topic_ids:
                out.records.append(OffsetRecord(group_id, topic, partition, None))
    if out.records:
        out.note("offsets of topics that were deleted meanwhile are removed", offsets=len(out.records))
    return out


# --- expiry ----------------------------------------------------------------------------------------------------------


def expire(shard: ShardState, now_ms: int) -> Outcome:
    """Tombstones for offsets that outlived their retention, and for empty groups that hold nothing any more."""
    out = Outcome(is_atomic=False)
    for group_id in sorted(shard.groups):
        group = shard.groups[group_id]
        table = shard.offsets.latest.get(group_id) or _EMPTY_TABLE
        expired = _expired(shard, group, table, now_ms)
        out.records.extend(OffsetRecord(group_id, topic, partition, None) for topic, partition in sorted(expired))
        holds = len(expired) < len(table.latest) or bool(table.pending.latest)
        if group.state is GroupState.EMPTY and not holds and not group.pending_joins:
            out.records.append(GroupRecord(group_id, None))
    for _, modern in sorted(shard.modern.latest.items()):
        if isinstance(modern, ConsumerGroup):
            _expire_consumer_group(shard, modern, now_ms, out)
    if out.records:
        out.note("expired offsets and empty groups are removed", records=len(out.records))
    return out


def _expire_consumer_group(shard: ShardState, group: ConsumerGroup, now_ms: int, out: Outcome) -> None:
    """Offsets of a consumer group count from their commit; topics that somebody in it reads keep theirs."""
    table = shard.offsets.latest.get(group.id) or _EMPTY_TABLE
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


def _expired(shard: ShardState, group: Group, table: OffsetTable, now_ms: int) -> list[PartitionKey]:
    """KIP-211: a group that never had members, and unread topics of a stable one, count from the commit; an empty group
    from when it became empty; a group in any other state keeps what it has."""
    since_ms = -1
    if group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = group.state_since_ms
        elif group.state is not GroupState.STABLE or not group.is_consumer or group.subscribed is None:
            return []
    retention_ms, pending = shard.settings.offsets_retention_ms, table.pending_keys()
    expired = []
    for key, offset in table.latest.items():
        if _reads(group, key[0]) or key in pending:
            continue
        if offset.expires_ms >= 0:
            over = now_ms >= offset.expires_ms
        else:
            over = now_ms - (since_ms if since_ms >= 0 else offset.committed_ms) >= retention_ms
        if over:
            expired.append(key)
    return expired


# --- transactions ----------------------------------------------------------------------------------------------------


def put(shard: ShardState, record: OffsetRecord) -> None:
    """An offset that counts from now on, or its tombstone."""
    group_id, key, offset = record.group_id, (record.topic, record.partition), record.offset
    table = shard.offsets.latest.get(group_id)
    if offset is not None:
        if table is None or group_id not in shard.classic.latest:
            table = _table_of(shard, group_id)
        table.positions.put(key, offset)
    elif table is not None:
        table.remove(key)
        if table.is_empty:
            shard.offsets.remove(group_id)


def hold(shard: ShardState, producer_id: int, record: OffsetRecord) -> None:
    """An offset of an open transaction: it counts once the transaction commits."""
    assert record.offset is not None
    key = (record.topic, record.partition)
    _table_of(shard, record.group_id).pending.put((producer_id, key), record.offset)
    touched = shard.open_transactions.latest.get(producer_id, frozenset())
    if record.group_id not in touched:
        shard.open_transactions.put(producer_id, touched | {record.group_id})


def _table_of(shard: ShardState, group_id: str) -> OffsetTable:
    """The offsets of a group, which there is from now on if there was none."""
    table = shard.offsets.latest.get(group_id)
    if group_id not in shard.classic.latest and group_id not in shard.modern.latest:
        shard.classic.put(group_id, NEVER_JOINED)
        if group_id not in shard.groups:
            shard.groups[group_id] = Group(group_id)
    if table is None:
        table = OffsetTable(shard.timeline)
        shard.offsets.put(group_id, table)
    return table


def end_transaction(shard: ShardState, producer_id: int, committed: bool) -> None:
    """A transaction's marker: its offsets count from now on, or never did."""
    touched = shard.open_transactions.latest.get(producer_id, frozenset())
    shard.open_transactions.remove(producer_id)
    for group_id in sorted(touched):
        table = shard.offsets.latest.get(group_id)
        if table is None:
            continue  # tombstones took them
        for waiting in table.pending.of_producer(producer_id):
            offset = table.pending.latest[waiting]
            table.pending.remove(waiting)
            existing = table.latest.get(waiting[1])
            # A plain commit that stands later in the log than this one's record wins over it.
            if committed and (existing is None or offset.log_offset > existing.log_offset):
                table.positions.put(waiting[1], offset)
        if table.is_empty:
            shard.offsets.remove(group_id)
