"""AddOffsetsToTxn (25), versions 0-4: adds the offsets of a group to a transaction.

That is the partition of `__consumer_offsets` with the group's records.
v2 PRODUCER_FENCED. v3 flexible. v4 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.broker.requests.verification import fenced_error
from headrace.env.completion import Completion
from headrace.security.authorizer import Operation, ResourceType
from headrace.transactions.asks import Partitions
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_FENCED_FROM: Final = 2
"""First version that knows PRODUCER_FENCED."""


@handles(ApiKey.ADD_OFFSETS_TO_TXN)
def handle(
    broker: Services, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Completion[AddOffsetsToTxnResponse]:
    """Answers when the addition is committed."""
    transactional_id = request.transactional_id
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    partition = (OFFSETS_TOPIC, broker.groups.partition_for(request.group_id))
    ask = Partitions(transactional_id, request.producer_id, request.producer_epoch, frozenset({partition}), 0)
    return broker.transactions.join(ask).mapped(partial(_response, context.api_version))


def _response(version: int, error: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=fenced_error(error, version, _FENCED_FROM))
