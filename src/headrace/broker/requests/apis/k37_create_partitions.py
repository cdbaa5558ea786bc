"""CreatePartitions (37), versions 0-3: more partitions for existing topics. Source: KIP-195.

v2 flexible.
Not done: replicas on other brokers than this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import Asker, ControllerError
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.requests import CreatePartitions
from headrace.wire.apis import ApiKey
from headrace.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.CREATE_PARTITIONS)
async def handle(
    broker: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Adds partitions; each topic has a result of its own, in the request's order."""
    wanted = CreatePartitions(request.topics, request.validate_only)
    try:
        answers = await broker.controller.ask(wanted, Asker(context.principal, context.client_host))
    except ControllerError as error:
        failed = ApiError(error.code, str(error))
        answers = [(topic.name, failed) for topic in request.topics]
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name, error in answers
        ]
    )
