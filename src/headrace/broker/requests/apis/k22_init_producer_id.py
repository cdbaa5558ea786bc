"""InitProducerId (22), versions 0-5: for idempotent producers. Source: KIP-98, KIP-360.

v2 flexible. v3 producer id and epoch. v4 PRODUCER_FENCED.
Not done: transactional ids, which get an error that clients do not retry.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import ControllerError
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.INIT_PRODUCER_ID)
def handle(
    broker: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
    """A fresh producer id with epoch 0. Transactions are not served: their producers get an error that ends them."""
    if request.transactional_id is not None:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not (
        context.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
        or any(context.authorize(Operation.WRITE, ResourceType.TOPIC, topic.name) for topic in broker.image.topics)
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
