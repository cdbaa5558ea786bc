"""DescribeTransactions (65), version 0: the state of some transactional ids. Source: KIP-664.

The partitions of an ending transaction are those that do not have their marker yet. The answer omits topics that the
client may not describe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.DESCRIBE_TRANSACTIONS)
def handle(broker: Services, request: DescribeTransactionsRequest, context: RequestContext) -> Any:
    """Describes each id once."""
    return in_pieces(broker, context, _states(broker, request, context))


def _states(
    broker: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> Steps[DescribeTransactionsResponse]:
    states: dict[str, TransactionState] = {}
    for each in request.transactional_ids:
        yield 1
        if each not in states:
            states[each] = yield from _state(broker, context, each)
    return DescribeTransactionsResponse(transaction_states=list(states.values()))


def _state(broker: Services, context: RequestContext, transactional_id: str) -> Steps[TransactionState]:
    if not context.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return _refused(transactional_id, ErrorCode.INVALID_REQUEST)
    shard = broker.transactions.read(transactional_id)
    if isinstance(shard, ErrorCode):
        return _refused(transactional_id, shard)
    described = shard.describe(transactional_id)
    if described.error:
        return _refused(transactional_id, described.error)
    topics: dict[str, list[int]] = {}
    for number, (topic, index) in enumerate(described.partitions):
        if number % SMALL_PER_STEP == 0:
            yield 1
        if topic in topics or context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=described.state,
        transaction_timeout_ms=described.timeout_ms,
        transaction_start_time_ms=described.start_ms,
        producer_id=described.producer_id,
        producer_epoch=described.producer_epoch,
        topics=[TopicData(name, indexes) for name, indexes in topics.items()],
    )


def _refused(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(error_code=error, transactional_id=transactional_id)
