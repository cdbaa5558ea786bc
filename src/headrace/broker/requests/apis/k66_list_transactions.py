"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates. Source: KIP-664.

Unknown state names in the filter are returned, and match nothing. v1: a filter by how long a transaction is open
(KIP-994). v2: a filter by a regular expression that the whole id must match (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces, in_turn, parts_of
from headrace.broker.requests.registry import handles
from headrace.machine.split_table import SplitTable
from headrace.security.authorizer import Operation, ResourceType
from headrace.transactions.asks import Filters
from headrace.transactions.states import TransactionState
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k66_list_transactions as k66
from headrace.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_STATES: Final = frozenset(state.label for state in TransactionState)


Answer = ListTransactionsResponse


@handles(ApiKey.LIST_TRANSACTIONS)
def handle(
    broker: Services, request: ListTransactionsRequest, context: RequestContext
) -> Answer | Coroutine[Any, Any, Answer]:
    """Lists the ids of every partition that this broker coordinates; returns an error while one is loading."""
    pattern = request.transactional_id_pattern
    if pattern:
        return _list_matching(broker, request, context, pattern)
    return in_pieces(broker, context, _list(broker, request, context))


async def _list_matching(
    broker: Services, request: ListTransactionsRequest, context: RequestContext, pattern: str
) -> Answer:
    """Lists matching ids on a worker, as there may be many."""
    patterns = broker.groups.matching
    if await patterns.what_is_wrong(context.principal, pattern):
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    response = await in_turn(broker, context, _list(broker, request, context))
    ids = [each.transactional_id for each in response.transaction_states]
    matched = set(await patterns.matching(context.principal, pattern, ids))
    response.transaction_states = [each for each in response.transaction_states if each.transactional_id in matched]
    return response


def _list(broker: Services, request: ListTransactionsRequest, context: RequestContext) -> Steps[Answer]:
    unknown: list[str] = []
    states: set[str] = set()
    for name in request.state_filters:
        if name in _STATES:
            states.add(name)
        else:
            unknown.append(name)
        yield 1
    if unknown:
        states.add(unknown[0])  # which no transaction has, as an empty filter would list all
    producer_ids: SplitTable[int, None] = SplitTable()
    context.keep(producer_ids)
    for some in parts_of(request.producer_id_filters, SMALL_PER_STEP):
        for producer_id in some:
            producer_ids[producer_id] = None
        yield 1
    shards = broker.transactions.read_all()
    if isinstance(shards, ErrorCode):
        return ListTransactionsResponse(error_code=shards)
    filters = Filters(frozenset(states), producer_ids, request.duration_filter)
    now_ms = broker.transactions.now_ms()
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    for shard in shards:
        yield 1
        for each in shard.list_transactions(filters, now_ms):
            if context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id):
                state = k66.TransactionState(each.transactional_id, each.producer_id, each.state)
                response.transaction_states.append(state)
            yield 1
    return response
