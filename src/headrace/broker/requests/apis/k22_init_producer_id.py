"""InitProducerId (22), versions 0-5: assigns producer ids, to idempotent and to transactional producers.

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
"""First version that knows PRODUCER_FENCED."""

Answer = InitProducerIdResponse | Completion[InitProducerIdResponse]


@handles(ApiKey.INIT_PRODUCER_ID)
def handle(
    broker: Services, request: InitProducerIdRequest, context: RequestContext
) -> Answer | Coroutine[Any, Any, Answer]:
    """Returns a new producer id with epoch 0, or the id and epoch of a transactional id from its coordinator."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not _may(context, transactional_id, enable_2pc=request.enable_2pc):
            return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if broker.producer_ids.is_empty:
            return _initialize_with_ids(broker, transactional_id, request, context)
        return _initialize(broker, transactional_id, request, context)
    # Few clients have the permission on the cluster, so it is checked last: Write on any topic is enough.
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
        # Retriable: there will be capacity again, or another broker.
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
    """Waits for a block of producer ids first, as the coordinator decides at once and may need one."""
    try:
        await broker.producer_ids.fill()
    except ControllerError:
        pass  # an id with a producer needs none; for others the coordinator returns a retriable error
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
