"""TxnOffsetCommit (28), versions 0-6: stores a group's offsets, when the producer's transaction commits.

Each partition succeeds or fails alone: unknown topics and partitions, metadata beyond offset.metadata.max.bytes. The
group's partition of `__consumer_offsets` must be in the transaction (KIP-890): before v5 AddOffsetsToTxn adds it, since
then this request does.
v2: leader epochs (KIP-320). v3: members, so that their generation fences a commit (KIP-447). v4: TRANSACTION_ABORTABLE.
v6: topics by id (KIP-1319).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.broker.net.context import RequestContext
from headrace.broker.partitions.replica import Replica
from headrace.broker.requests.pieces import are_many, in_parts, join_topics, requests_in_parts
from headrace.broker.requests.registry import handles
from headrace.broker.requests.verification import OFFSETS_ADDED_FROM, offsets_error
from headrace.env.completion import Completion
from headrace.groups.offsets import txn_commit_error
from headrace.log.guards import Guard
from headrace.log.producers import Refusal
from headrace.machine.outcome import Outcome
from headrace.security.authorizer import Operation, ResourceType
from headrace.transactions.asks import Partitions, TopicPartition
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.wire.uuids import ZERO

if TYPE_CHECKING:
    from headrace.broker.coordinators.verifier import PartitionErrors
    from headrace.broker.requests.services import Services
    from headrace.groups.shard import GroupShard
    from headrace.log.producers import Producers

_TOPIC_IDS_FROM: Final = 6

Answer = TxnOffsetCommitResponse | Completion[TxnOffsetCommitResponse]


@handles(ApiKey.TXN_OFFSET_COMMIT)
def handle(broker: Services, request: TxnOffsetCommitRequest, context: RequestContext) -> Any:
    """Commits offsets in the producer's transaction; those of very many partitions in several steps."""
    if not are_many(request.topics, "partitions"):
        return _checked(broker, request, context)
    parts = requests_in_parts(request, "topics", "partitions")
    return in_parts(broker, context, parts, _checked, _join)


def _join(whole: TxnOffsetCommitResponse, part: TxnOffsetCommitResponse) -> None:
    join_topics(whole.topics, part.topics, "partitions")


def _checked(
    broker: Services, request: TxnOffsetCommitRequest, context: RequestContext
) -> Answer | Coroutine[Any, Any, Answer]:
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return txn_commit_error(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return txn_commit_error(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = _keep_known(broker, request, context)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    adds = context.api_version >= OFFSETS_ADDED_FROM
    index = broker.groups.partition_for(request.group_id)
    replica = broker.replicas.find(OFFSETS_TOPIC, index)
    verifies = adds or broker.config.transaction_partition_verification_enable
    if not verifies or not isinstance(replica, Replica):
        # A broker that does not lead the group's partition does not coordinate the group either, and refuses.
        return _commit(broker, request, context, refused, None)
    log = replica.log
    claimed = log.producers.claim(
        request.producer_id,
        request.producer_epoch,
        0,
        log.end_offset,
        transactional_id=request.transactional_id,
        raises=adds,
        now_ms=broker.node.clock.now_ms(),
    )
    if isinstance(claimed, Refusal):
        return _with(refused, txn_commit_error(request, claimed.error))
    if claimed.first_offset >= 0:
        return _commit(broker, request, context, refused, (log.producers, claimed))
    partition = (OFFSETS_TOPIC, index)
    ask = Partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, frozenset({partition}), 2 if adds else 0
    )
    verified = broker.verifier.join(ask, verify_only=not adds)
    continued = partial(_continue, broker, request, context, refused, (log.producers, claimed))
    if isinstance(verified, Coroutine):
        return _commit_later(verified, partition, continued)
    return continued(verified[partition])


async def _commit_later(
    verified: Coroutine[Any, Any, PartitionErrors], partition: TopicPartition, continued: Callable[[ErrorCode], Answer]
) -> Answer:
    return continued((await verified)[partition])


def _continue(
    broker: Services,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    refused: list[TxnOffsetCommitResponseTopic],
    claimed: tuple[Producers, Guard],
    error: ErrorCode,
) -> Answer:
    """Commits or refuses, by the answer of the transaction's coordinator for the group's partition."""
    if error:
        return _with(refused, txn_commit_error(request, offsets_error(error, context.api_version)))
    return _commit(broker, request, context, refused, claimed)


def _commit(
    broker: Services,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    refused: list[TxnOffsetCommitResponseTopic],
    claimed: tuple[Producers, Guard] | None,
) -> Completion[TxnOffsetCommitResponse]:
    answer: Completion[TxnOffsetCommitResponse] = broker.groups.write(
        request.group_id, partial(_decide, request, context, claimed), lambda error: txn_commit_error(request, error)
    )
    return answer.mapped(partial(_with, refused)) if refused else answer


def _decide(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    claimed: tuple[Producers, Guard] | None,
    shard: GroupShard,
    now_ms: int,
) -> Outcome:
    """Compares the commit with the producer's state in the log, which includes all earlier decisions."""
    if claimed is not None:
        producers, guard = claimed
        refusal = producers.check_guard(request.producer_id, request.producer_epoch, 0, -1, guard)
        if refusal is not None:
            return Outcome(txn_commit_error(request, refusal.error))
    return shard.commit_in_transaction(request, context.api_version, now_ms, context.holder)


def _keep_known(
    broker: Services, request: TxnOffsetCommitRequest, context: RequestContext
) -> list[TxnOffsetCommitResponseTopic]:
    """Removes partitions from the request that do not exist or may not be read, and fills in names and ids; returns
    their errors."""
    topics = broker.image.topics
    by_id = context.api_version >= _TOPIC_IDS_FROM
    kept: list[TxnOffsetCommitRequestTopic] = []
    refused: list[TxnOffsetCommitResponseTopic] = []
    for asked in request.topics:
        topic = topics.by_id(asked.topic_id) if by_id else topics.by_name(asked.name)
        name = asked.name if topic is None else topic.name
        error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if topic is None else len(topic.partitions)
        if not (by_id and topic is None) and not context.authorize(Operation.READ, ResourceType.TOPIC, name):
            error, count = ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
        bad = [p for p in asked.partitions if not 0 <= p.partition_index < count]
        if bad:
            answers = [TxnOffsetCommitResponsePartition(p.partition_index, error) for p in bad]
            refused.append(TxnOffsetCommitResponseTopic(asked.name, asked.topic_id, answers))
            asked.partitions = [p for p in asked.partitions if 0 <= p.partition_index < count]
            if not asked.partitions:
                continue
        if topic is not None:
            asked.name, asked.topic_id = topic.name, topic.id
        kept.append(asked)
    request.topics = kept
    return refused


def _with(refused: list[TxnOffsetCommitResponseTopic], response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    """Adds the refused partitions to the response, to the topic's own entry if there is one."""
    by_name = {topic.name: topic for topic in response.topics}
    by_id = {topic.topic_id: topic for topic in response.topics if topic.topic_id != ZERO}
    for topic in refused:
        entry = by_name.get(topic.name) if topic.name else by_id.get(topic.topic_id)
        if entry is None:
            response.topics.append(topic)
        else:
            entry.partitions.extend(topic.partitions)
    return response
