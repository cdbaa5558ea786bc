"""CreateTopics (19), versions 2-7: creates topics. The controller decides, and the reply leaves when the topics exist.

v4 defaults by -1. v5 flexible, configurations in the answer. v6 THROTTLING_QUOTA_EXCEEDED. v7 topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.client_access import ClientAccess
from headrace.broker.requests.pieces import listed
from headrace.broker.requests.registry import handles
from headrace.controller.context import ApiError
from headrace.controller.topics import CreateTopics, refusal
from headrace.wire.apis import ApiKey
from headrace.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

STRICT_FROM: Final = 6
"""First version whose clients get an error if their quota is used up."""


@handles(ApiKey.CREATE_TOPICS)
async def handle(broker: Services, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Creates topics; each has its own result."""
    mutations = broker.quotas.mutations(context, strict_from=STRICT_FROM)
    access = ClientAccess(broker.authorizer, context, mutations.pay)
    try:
        response = await broker.controller.ask(CreateTopics(request), access)
    except ControllerError as error:
        failed = ApiError(error.code, str(error))
        refused = await listed(broker, context, request.topics, lambda topic: refusal(topic.name, failed))
        response = CreateTopicsResponse(topics=refused)
    response.throttle_time_ms = mutations.throttle_ms
    return response
