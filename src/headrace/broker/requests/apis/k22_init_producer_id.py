"""InitProducerId (22), versions 0-5: for idempotent producers, and for those of a transactional id.

v2 flexible. v3 producer id and epoch (KIP-360). v4 PRODUCER_FENCED. v5 TRANSACTION_ABORTABLE.
Unsupported: version 6 (KIP-939), which Kafka marks as unstable.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.registry import handles
from headrace.broker.requests.verification import fenced_error
from headrace.env.completion import Completion
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.transactions.asks import Identity, InitProducer
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_FENCED_FROM = 4
"""The version that knows PRODUCER_FENCED."""

Answer = InitProducerIdResponse | Completion[InitProducerIdResponse]


@handles(ApiKey.INIT_PRODUCER_ID)
def handle(
    broker: Services, request: InitProducerIdRequest, context: RequestContext
) -> Answer | Coroutine[Any, Any, Answer]:
    """A fresh producer id with epoch 0; or those of a transactional id, as its coordinator gives them."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not _may(context, transactional_id, enable_2pc=request.enable_2pc):
            return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if broker.producer_ids.is_empty:
            return _initialize_with_ids(broker, transactional_id, request, context)
        return _initialize(broker, transactional_id, request, context)
    # The right on the cluster, which few have, is asked for last: who may write to a topic lacks nothing.
    if not (
        context.authorize_any(Operation.WRITE, ResourceType.TOPIC)
        or context.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    ):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    ready = broker.producer_ids.take()
    return _granted(ready) if ready is not None else _wait(broker)


async def _wait(broker: Services) -> InitProducerIdResponse:
    try:
        return _granted(await broker.producer_ids.take_from_next_block())
    except ControllerError:
        # Retriable: there will be room again, or another broker.
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _granted(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


# --- transactional ids -----------------------------------------------------------------------------------------------


def _may(context: RequestContext, transactional_id: str, *, enable_2pc: bool) -> bool:
    operations = [Operation.WRITE, Operation.TWO_PHASE_COMMIT] if enable_2pc else [Operation.WRITE]
    return all(context.authorize(each, ResourceType.TRANSACTIONAL_ID, transactional_id) for each in operations)


async def _initialize_with_ids(
    broker: Services, transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> Answer:
    """The coordinator decides at once: the id that it may need has to be at hand."""
    try:
        await broker.producer_ids.fill()
    except ControllerError:
        pass  # an id that has a producer already needs none; for others the coordinator says that they come again
    return _initialize(broker, transactional_id, request, context)


def _initialize(
    broker: Services, transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> Answer:
    ask = InitProducer(
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        request.enable_2pc,
    )
    answer: Completion[Identity] = broker.transactions.write(
        transactional_id, lambda shard, now_ms: shard.init_producer(ask, now_ms), Identity
    )
    return answer.mapped(partial(_response, context.api_version))


def _response(version: int, identity: Identity) -> InitProducerIdResponse:
    error, producer_id, producer_epoch = identity
    error = fenced_error(error, version, _FENCED_FROM)
    if error:
        return _refused(error)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)
