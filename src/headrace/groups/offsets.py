"""Committed offsets: commit, fetch, delete, expiry, and the effect of the end of a transaction.

Sources: KIP-211 (expiry), KIP-447 (RequireStable), KIP-496 (OffsetDelete), KIP-709 (batched OffsetFetch), KIP-848
(topic ids in commit and fetch).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final, TypeAlias

from headrace.groups.classic.group import SIMPLE_GROUP, Group
from headrace.groups.classic.offsets import NO_OFFSETS, CommitRequest
from headrace.groups.classic.rebalance import touch
from headrace.groups.classic.states import GroupState
from headrace.groups.kinds import CLASSIC, KIND_OF, kind_of
from headrace.groups.offsets_table import OffsetTable, PartitionKey
from headrace.groups.records import Offset, OffsetRecord, Record
from headrace.groups.shard_state import GroupShardState
from headrace.machine.outcome import Outcome
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
"""The OffsetCommit version from which an unknown group is GROUP_ID_NOT_FOUND; before it, ILLEGAL_GENERATION."""
_TXN_GROUP_ID_NOT_FOUND_FROM: Final = 6
"""The TxnOffsetCommit version from which an unknown group is GROUP_ID_NOT_FOUND (KIP-1319)."""


PARTITIONS_PER_STEP: Final = 20
"""The number of offsets fetched between two steps of an answer."""
PARTITIONS_PER_PART: Final = 5_000
"""The number of offsets that one turn of the event loop checks: each takes about 1 us."""
PARTITIONS_PER_GROUP: Final = 5
"""The number of offsets that take as long to check as a group without any."""


# --- commit ----------------------------------------------------------------------------------------------------------


MakeGroup: TypeAlias = Callable[[GroupShardState, str], ErrorCode]
"""Creates a group that only holds offsets, or returns why it cannot."""


def _made_by(principal: str, now_ms: int) -> MakeGroup:
    def make(shard: GroupShardState, group_id: str) -> ErrorCode:
        if not shard.has_room_for_group(principal, now_ms):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard.group_made(group_id, principal)
        return ErrorCode.NONE

    return make


def commit(
    shard: GroupShardState, request: OffsetCommitRequest, api_version: int, now_ms: int, principal: str = ""
) -> Outcome:
    """Decides an OffsetCommit whose topics exist and carry both name and id, if they have one.

    `reply` has exactly the request's topics, in its order.
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
        for requested in topic.partitions:
            metadata = requested.committed_metadata or ""
            if len(metadata) > metadata_max:
                refused = ErrorCode.OFFSET_METADATA_TOO_LARGE
                partitions.append(OffsetCommitResponsePartition(requested.partition_index, refused))
                continue
            partitions.append(OffsetCommitResponsePartition(requested.partition_index, 0))
            epoch = requested.committed_leader_epoch
            offset = Offset(requested.committed_offset, epoch, metadata, now_ms, expires_ms, topic.topic_id)
            out.records.append(OffsetRecord(request.group_id, topic.name, requested.partition_index, offset))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    out.reply = OffsetCommitResponse(topics=topics)
    return out


def _check_commit(
    shard: GroupShardState,
    request: CommitRequest,
    api_version: int,
    names_unknown_groups: bool,
    may_make_group: MakeGroup,
) -> ErrorCode:
    """Returns why a whole commit is refused, or NONE."""
    group_id = request.group_id
    if group_id in shard.groups or group_id in shard.modern.latest:
        kind = CLASSIC if group_id in shard.groups else kind_of(shard, group_id)
        return kind.check_commit(shard, request, api_version, isinstance(request, TxnOffsetCommitRequest))
    if request.generation_id_or_member_epoch < 0:
        return may_make_group(shard, group_id)
    return ErrorCode.GROUP_ID_NOT_FOUND if names_unknown_groups else ErrorCode.ILLEGAL_GENERATION


def commit_error(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Returns the response with the same error for every requested partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(requested.partition_index, error) for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def commit_in_transaction(
    shard: GroupShardState, request: TxnOffsetCommitRequest, api_version: int, now_ms: int, principal: str = ""
) -> Outcome:
    """Decides a TxnOffsetCommit whose topics exist: its offsets are pending until the end of the transaction.

    `reply` has exactly the request's topics, in its order.
    """
    names_unknown = api_version >= _TXN_GROUP_ID_NOT_FOUND_FROM
    error = _check_commit(shard, request, api_version, names_unknown, _made_by(principal, now_ms))
    if error is not ErrorCode.NONE:
        return Outcome(txn_commit_error(request, error))
    out = Outcome(producer=(request.producer_id, request.producer_epoch))
    topics = []
    for topic in request.topics:
        partitions = []
        for requested in topic.partitions:
            metadata = requested.committed_metadata or ""
            refused = len(metadata) > shard.settings.offset_metadata_max_bytes
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE if refused else ErrorCode.NONE
            partitions.append(TxnOffsetCommitResponsePartition(requested.partition_index, error))
            if not refused:
                epoch = requested.committed_leader_epoch
                offset = Offset(requested.committed_offset, epoch, metadata, now_ms, -1, topic.topic_id)
                out.records.append(OffsetRecord(request.group_id, topic.name, requested.partition_index, offset))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    out.reply = TxnOffsetCommitResponse(topics=topics)
    return out


def txn_commit_error(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """Returns the response with the same error for every requested partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [TxnOffsetCommitResponsePartition(requested.partition_index, error) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


# --- fetch -----------------------------------------------------------------------------------------------------------


def fetching(
    shard: GroupShardState, request: OffsetFetchRequestGroup, require_stable: bool
) -> Generator[int, None, OffsetFetchResponseGroup]:
    """Reads the committed offsets of one group; an unknown group or partition has -1 and no error. Yields after each
    topic and after every few partitions."""
    group_id = request.group_id
    modern = shard.modern.committed(group_id)
    if modern is not None:
        error = KIND_OF[modern.type].check_fetch(modern, request)
        if error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    known = modern is not None or shard.classic.committed(group_id) is not None
    table = (shard.offsets.committed(group_id) if known else None) or NO_OFFSETS
    unstable = table.unstable() if require_stable else _NONE
    committed = table.positions.committed
    if request.topics is None:
        return OffsetFetchResponseGroup(group_id=group_id, topics=(yield from _fetching_all(table, unstable)))
    topics = []
    for requested in request.topics:
        partitions = []
        yield 1
        for number, index in enumerate(requested.partition_indexes, 1):
            if number % PARTITIONS_PER_STEP == 0:
                yield 1
            key = (requested.name, index)
            offset = committed(key)
            if offset is not None and requested.topic_id != ZERO and offset.topic_id not in (ZERO, requested.topic_id):
                offset = None  # committed for an earlier topic of this name
            partitions.append(_fetched(index, offset, key in unstable))
        topics.append(
            OffsetFetchResponseTopics(name=requested.name, topic_id=requested.topic_id, partitions=partitions)
        )
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


_NONE: Final[frozenset[PartitionKey]] = frozenset()


# --- delete ----------------------------------------------------------------------------------------------------------


def delete_offsets(shard: GroupShardState, request: OffsetDeleteRequest) -> Outcome:
    """Decides an OffsetDelete whose topics exist; offsets of topics that a member reads are refused."""
    group_id = request.group_id
    if not _exists(shard, group_id):
        return Outcome(OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    kind = kind_of(shard, group_id)
    refused = kind.check_delete_offsets(shard, group_id)
    if refused is not ErrorCode.NONE:
        return Outcome(OffsetDeleteResponse(error_code=refused))
    table = shard.offsets.latest.get(group_id) or NO_OFFSETS
    out = Outcome()
    topics = []
    there = table.keys()
    for topic in request.topics:
        is_subscribed = kind.is_subscribed(shard, group_id, topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        for requested in topic.partitions:
            if not is_subscribed and (topic.name, requested.partition_index) in there:
                out.records.append(OffsetRecord(group_id, topic.name, requested.partition_index, None))
        partitions = [DeletedPartition(requested.partition_index, error) for requested in topic.partitions]
        topics.append(DeletedTopic(topic.name, partitions))
    out.reply = OffsetDeleteResponse(topics=topics)
    return out


def _exists(shard: GroupShardState, group_id: str) -> bool:
    """Returns whether a group of this id exists, of any kind, as decisions see it."""
    group = shard.groups.get(group_id)
    return group_id in shard.modern.latest or (group is not None and group.state is not GroupState.DEAD)


def delete_group(shard: GroupShardState, group_id: str) -> tuple[ErrorCode, list[Record]]:
    """Returns the records that delete a group with its offsets, or why it cannot be deleted."""
    if not _exists(shard, group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND, []
    kind = kind_of(shard, group_id)
    if kind.has_members(shard, group_id):
        return ErrorCode.NON_EMPTY_GROUP, []
    records: list[Record] = []
    table = shard.offsets.latest.get(group_id)
    if table is not None:
        records.extend(OffsetRecord(group_id, topic, partition, None) for topic, partition in sorted(table.keys()))
    records.extend(kind.tombstones(shard, group_id))
    return ErrorCode.NONE, records


def forget_topics(
    shard: GroupShardState, deleted: Mapping[str, bytes], exists: Collection[str], group_ids: Iterable[str]
) -> Outcome:
    """Returns tombstones of the groups' offsets in deleted topics (name -> id); a topic created again under the same
    name keeps its own."""
    out = Outcome(is_atomic=False)
    for group_id in sorted(group_ids):
        table = shard.offsets.latest.get(group_id) or NO_OFFSETS
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


def parts(shard: GroupShardState) -> list[list[str]]:
    """Returns the ids of all groups, in parts with about PARTITIONS_PER_PART offsets each: work on every offset takes
    one turn for each part."""
    found: list[list[str]] = []
    left, table_of = 0, shard.offsets.latest.get
    for group_id in chain(shard.groups, shard.modern.latest):
        if left <= 0:
            found.append([])
            left = PARTITIONS_PER_PART
        found[-1].append(group_id)
        table = table_of(group_id)
        left -= PARTITIONS_PER_GROUP if table is None else PARTITIONS_PER_GROUP + len(table.latest)
    return found


def forget_missing(shard: GroupShardState, topic_ids: Container[bytes], group_ids: Iterable[str]) -> Outcome:
    """Returns tombstones of the groups' offsets in topics that do not exist: they may have been deleted while no broker
    coordinated the groups."""
    out = Outcome(is_atomic=False)
    for group_id in sorted(group_ids):
        table = shard.offsets.latest.get(group_id) or NO_OFFSETS
        for (topic, partition), offset in sorted(table.latest.items(), key=lambda item: item[0]):
            if offset.topic_id != ZERO and offset.topic_id not in topic_ids:
                out.records.append(OffsetRecord(group_id, topic, partition, None))
    if out.records:
        out.note("offsets of topics that were deleted meanwhile are removed", offsets=len(out.records))
    return out


# --- expiry ----------------------------------------------------------------------------------------------------------


def expire(shard: GroupShardState, group_ids: Iterable[str], now_ms: int) -> Outcome:
    """Returns tombstones of the groups' expired offsets, and of the groups that are empty and have none left. Ignores
    ids without a group."""
    out = Outcome(is_atomic=False)
    for group_id in sorted(group_ids):
        if group_id in shard.modern.latest or group_id in shard.groups:
            kind_of(shard, group_id).expire(shard, group_id, now_ms, out)
    if out.records:
        out.note("expired offsets and empty groups are removed", records=len(out.records))
    return out


# --- transactions ----------------------------------------------------------------------------------------------------


def put(shard: GroupShardState, record: OffsetRecord) -> None:
    """Applies a committed offset, or its tombstone."""
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


def hold(shard: GroupShardState, producer_id: int, record: OffsetRecord) -> None:
    """Applies a pending offset of an open transaction: it is committed with the transaction."""
    assert record.offset is not None and producer_id >= 0
    key = (record.topic, record.partition)
    _table_of(shard, record.group_id).pending.put((producer_id, key), record.offset)
    touched = shard.open_transactions.latest.get(producer_id, frozenset())
    if record.group_id not in touched:
        shard.open_transactions.put(producer_id, touched | {record.group_id})


def _table_of(shard: GroupShardState, group_id: str) -> OffsetTable:
    """Returns the offsets of a group; creates the table if necessary."""
    table = shard.offsets.latest.get(group_id)
    if group_id not in shard.classic.latest and group_id not in shard.modern.latest:
        shard.classic.put(group_id, SIMPLE_GROUP)
        if group_id not in shard.groups:
            shard.add_group(Group(group_id))
    if table is None:
        table = OffsetTable(shard.timeline)
        shard.offsets.put(group_id, table)
    return table


def end_transaction(shard: GroupShardState, producer_id: int, committed: bool) -> None:
    """Applies a transaction's marker: commits or drops its pending offsets."""
    assert producer_id >= 0, "a producer ends its transaction"
    touched = shard.open_transactions.latest.get(producer_id, frozenset())
    shard.open_transactions.remove(producer_id)
    for group_id in sorted(touched):
        table = shard.offsets.latest.get(group_id)
        if table is None:
            continue  # removed by tombstones
        for waiting in table.pending.of_producer(producer_id):
            offset = table.pending.latest[waiting]
            table.pending.remove(waiting)
            existing = table.latest.get(waiting[1])
            # A plain commit wins if its record is later in the log than this one's.
            if committed and (existing is None or offset.log_offset > existing.log_offset):
                table.positions.put(waiting[1], offset)
        if table.is_empty:
            shard.offsets.remove(group_id)
