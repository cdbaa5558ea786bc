"""EndTxn (26), versions 0-5: commits or aborts a transaction.

The answer leaves when the decision is committed, before the markers are written.
v2 PRODUCER_FENCED. v3 flexible. v4 TRANSACTION_ABORTABLE. v5: every end raises the producer's epoch, and the answer
has the producer's new id and epoch (KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.registry import handles
from headrace.broker.requests.verification import fenced_error
from headrace.env.completion import Completion
from headrace.security.authorizer import Operation, ResourceType
from headrace.transactions.asks import End, Identity
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_FENCED_FROM: Final = 2
"""First version that knows PRODUCER_FENCED."""
_EPOCHS_FROM: Final = 5
_RAISING: Final = 2
"""The transaction.version from which an end raises the epoch."""


@handles(ApiKey.END_TXN)
def handle(
    broker: Services, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Completion[EndTxnResponse]:
    """Answers when the decision is committed."""
    transactional_id = request.transactional_id
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    version = _RAISING if context.api_version >= _EPOCHS_FROM else 0
    ask = End(transactional_id, request.producer_id, request.producer_epoch, request.committed, version)
    answer: Completion[Identity] = broker.transactions.write(
        transactional_id, lambda shard, now_ms: shard.end(ask, now_ms), Identity
    )
    return answer.mapped(partial(_response, context.api_version))


def _response(version: int, identity: Identity) -> EndTxnResponse:
    error, producer_id, producer_epoch = identity
    error = fenced_error(error, version, _FENCED_FROM)
    if error or version < _EPOCHS_FROM:
        return EndTxnResponse(error_code=error)
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
