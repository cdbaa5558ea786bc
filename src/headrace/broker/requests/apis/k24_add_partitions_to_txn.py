"""AddPartitionsToTxn (24), versions 0-5: adds partitions to a transaction.

A client's request (v0-3) has one transaction, and the client must be allowed to write. A broker's (v4 and above,
KIP-890) has any number, each of which may be only verified (`verify_only`). One topic that is unknown or forbidden
fails the whole part of a transaction.
v2 PRODUCER_FENCED. v3 flexible. v5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, are_few, at_once, in_pieces, parts_of
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.registry import handles
from headrace.broker.requests.verification import fenced_error
from headrace.env.completion import Completion, when_known
from headrace.security.authorizer import Operation, ResourceType
from headrace.transactions.asks import Partitions, TopicPartition, Verdicts
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

BROKERS_FROM: Final = 4
_FENCED_FROM: Final = 2
"""First version that knows PRODUCER_FENCED."""
_OF_BROKERS: Final = 2
"""The transaction.version of transactions to which brokers add partitions."""

_Results = tuple[list[AddPartitionsToTxnTopicResult], list[tuple[TopicPartition, AddPartitionsToTxnPartitionResult]]]
"""The result of each topic, and each partition with its own result in it."""
Answer = AddPartitionsToTxnResponse | Completion[AddPartitionsToTxnResponse]


class _Asked(NamedTuple):
    """One transaction of a request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: list[tuple[TopicPartition, AddPartitionsToTxnPartitionResult]]
    """The partitions that exist, each once, with their results in the answer."""


@handles(ApiKey.ADD_PARTITIONS_TO_TXN)
def handle(broker: Services, request: AddPartitionsToTxnRequest, context: RequestContext) -> Any:
    """Answers when each transaction has been decided on, and the decisions are committed."""
    if context.api_version >= BROKERS_FROM:
        if not is_node(context):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        steps = _Adding(broker, context).of_brokers(request)
        return at_once(steps) if are_few(request.transactions, "partitions") else in_pieces(broker, context, steps)
    return in_pieces(broker, context, _of_client(broker, request, context))


def _of_client(
    broker: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> Steps[AddPartitionsToTxnResponse | Completion[AddPartitionsToTxnResponse]]:
    """Checks a client's request, and refuses all of it if any part fails; else asks the coordinator."""
    transactional_id, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
    refused = ErrorCode.NONE
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    adding = _Adding(broker, context)
    once: dict[str, dict[int, None]] = {}
    errors = {} if refused else (yield from adding.errors_of(topics, once))
    if not refused and not errors:
        return adding.of_client(request, *(yield from adding.results_of(once)))
    response = AddPartitionsToTxnResponse()
    for topic in topics:
        answer = AddPartitionsToTxnTopicResult(topic.name)
        response.results_by_topic_v3_and_below.append(answer)
        yield 1
        for some in parts_of(topic.partitions, SMALL_PER_STEP):
            yield 1
            for index in some:
                error = refused or errors.get((topic.name, index), ErrorCode.OPERATION_NOT_ATTEMPTED)
                answer.results_by_partition.append(AddPartitionsToTxnPartitionResult(index, error))
    return response


class _Adding:
    """One request, which is answered when the last of its transactions is done."""

    def __init__(self, broker: Services, context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        self._from_client = context.api_version < BROKERS_FROM
        self._response = AddPartitionsToTxnResponse()
        self._pending: Completion[AddPartitionsToTxnResponse] = Completion(broker.node.completions)
        self._left = 1

    def errors_of(
        self, topics: Sequence[AddPartitionsToTxnTopic], once: dict[str, dict[int, None]]
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        """Returns the errors of partitions that cannot be added; puts each partition into `once`."""
        errors: dict[TopicPartition, ErrorCode] = {}
        self._context.keep(errors)
        self._context.keep(once)
        for topic in topics:
            yield 1
            indexes = once.setdefault(topic.name, {})
            for some in parts_of(topic.partitions, SMALL_PER_STEP):
                yield 1
                for index in some:
                    if index not in indexes:
                        indexes[index] = None
                        if error := self._error_of((topic.name, index)):
                            errors[topic.name, index] = error
        return errors

    def results_of(self, once: Mapping[str, Collection[int]]) -> Steps[_Results]:
        """Returns the results of these partitions if there is no error."""
        results: list[AddPartitionsToTxnTopicResult] = []
        partitions: list[tuple[TopicPartition, AddPartitionsToTxnPartitionResult]] = []
        self._context.keep(results)
        self._context.keep(partitions)
        for name, indexes in once.items():
            result = AddPartitionsToTxnTopicResult(name, [])
            results.append(result)
            yield 1
            for some in parts_of(list(indexes), SMALL_PER_STEP):
                yield 1
                added = [AddPartitionsToTxnPartitionResult(index, ErrorCode.NONE) for index in some]
                result.results_by_partition += added
                partitions += [((name, each.partition_index), each) for each in added]
        return results, partitions

    def of_client(
        self,
        request: AddPartitionsToTxnRequest,
        results: list[AddPartitionsToTxnTopicResult],
        partitions: list[tuple[TopicPartition, AddPartitionsToTxnPartitionResult]],
    ) -> Completion[AddPartitionsToTxnResponse]:
        """Asks the coordinator for one transaction, of which nothing was refused here."""
        asked = _Asked(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            False,
            partitions,
        )
        self._response.results_by_topic_v3_and_below = results
        self._ask(asked)
        self._one_less()
        return self._pending

    def of_brokers(self, request: AddPartitionsToTxnRequest) -> Steps[Completion[AddPartitionsToTxnResponse]]:
        """Handles a request with many transactions."""
        for each in request.transactions:
            result = AddPartitionsToTxnResult(each.transactional_id, [])
            self._response.results_by_transaction.append(result)
            yield 1
            yield from self._add(each, result)
        self._one_less()
        return self._pending

    def _add(self, added: AddPartitionsToTxnTransaction, result: AddPartitionsToTxnResult) -> Steps[None]:
        once: dict[str, dict[int, None]] = {}
        errors = yield from self.errors_of(added.topics, once)
        if errors:
            for topic in added.topics:
                of_topic = AddPartitionsToTxnTopicResult(topic.name)
                result.topic_results.append(of_topic)
                yield 1
                for indexes in parts_of(topic.partitions, SMALL_PER_STEP):
                    yield 1
                    for index in indexes:
                        error = errors.get((topic.name, index), ErrorCode.OPERATION_NOT_ATTEMPTED)
                        of_topic.results_by_partition.append(AddPartitionsToTxnPartitionResult(index, error))
        else:
            result.topic_results, partitions = yield from self.results_of(once)
            self._ask(
                _Asked(added.transactional_id, added.producer_id, added.producer_epoch, added.verify_only, partitions)
            )

    def _ask(self, asked: _Asked) -> None:
        ask = Partitions(
            asked.transactional_id,
            asked.producer_id,
            asked.producer_epoch,
            frozenset([partition for partition, _ in asked.partitions]),
            0 if self._from_client else _OF_BROKERS,
        )
        self._left += 1
        transactions = self._broker.transactions
        decision: Completion[Verdicts] | Completion[ErrorCode]
        if asked.verify_only:
            decision = transactions.write(
                ask.transactional_id, lambda shard, _: shard.verify_partitions(ask), _no_verdict
            )
        elif self._from_client:
            decision = transactions.join(ask)
        else:
            decision = transactions.write(
                ask.transactional_id, lambda shard, now_ms: shard.add_partitions(ask, now_ms), ErrorCode
            )
        when_known(decision, partial(self._decided, asked))

    def _decided(self, asked: _Asked, decision: Verdicts | ErrorCode) -> None:
        verdicts = decision if isinstance(decision, Verdicts) else Verdicts(decision, {})
        of_all = fenced_error(verdicts.error, self._context.api_version, _FENCED_FROM)
        for partition, result in asked.partitions:
            result.partition_error_code = of_all or verdicts.partitions.get(partition, ErrorCode.NONE)
        self._one_less()

    def _error_of(self, partition: TopicPartition) -> ErrorCode:
        """Returns why a partition cannot be added; NONE if it can."""
        topic, index = partition
        if self._from_client and not self._context.authorize(Operation.WRITE, ResourceType.TOPIC, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._broker.image.topics.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._pending.complete(self._response)


def _no_verdict(error: ErrorCode) -> Verdicts:
    return Verdicts(error, {})
