"""CreateTopics (19), versions 2-7: the controller decides, and the reply leaves when the topics exist.

v4 defaults by -1. v5 flexible, configurations in the answer. v7 topic ids.
Not done: replicas on other brokers than this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.quorum import QuorumError
from headrace.broker.requests.registry import handles
from headrace.broker.requests.topic_creation import controller_context
from headrace.controller.context import ApiError
from headrace.controller.topics import decide_create_topics, refusal
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.CREATE_TOPICS)
async def handle(broker: Services, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Creates what can be created; each topic has a result of its own."""
    controller = controller_context(broker)
    may_create_any = context.authorize(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_create(name: str) -> bool:
        return may_create_any or context.authorize(Operation.CREATE, ResourceType.TOPIC, name)

    def may_describe(name: str) -> bool:
        return context.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)

    try:
        return await broker.quorum.submit(
            lambda image: decide_create_topics(
                image, request, controller, may_create=may_create, may_describe_configs=may_describe
            )
        )
    except QuorumError as error:
        failed = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return CreateTopicsResponse(topics=[refusal(topic.name, failed) for topic in request.topics])
