"""CreatePartitions (37), versions 0-3: adds partitions to existing topics. Source: KIP-195.

v2 flexible. v3 THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.client_access import ClientAccess
from headrace.broker.requests.pieces import listed
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.partitions import CreatePartitions
from headrace.wire.apis import ApiKey
from headrace.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

STRICT_FROM: Final = 3
"""First version whose clients get an error if their quota is used up."""


@handles(ApiKey.CREATE_PARTITIONS)
async def handle(
    broker: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Adds partitions; each topic has its own result, in request order."""
    wanted = CreatePartitions(request.topics, request.validate_only)
    mutations = broker.quotas.mutations(context, strict_from=STRICT_FROM)
    try:
        access = ClientAccess(broker.authorizer, context, mutations.pay)
        answers = await broker.controller.ask(wanted, access)
    except ControllerError as error:
        failed = ApiError(error.code, str(error))
        answers = [(topic.name, failed) for topic in request.topics]
    context.keep(answers)
    return CreatePartitionsResponse(
        throttle_time_ms=mutations.throttle_ms,
        results=await listed(broker, context, answers, _result),
    )


def _result(answer: tuple[str, ApiError]) -> CreatePartitionsTopicResult:
    name, error = answer
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
