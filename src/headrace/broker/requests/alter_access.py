"""Who may see or alter the configuration of what, and the altering itself, for both APIs that do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.quorum import QuorumError
from headrace.broker.requests.topic_creation import controller_context
from headrace.controller.configs import Alteration, decide_alter_configs
from headrace.controller.context import ApiError
from headrace.metadata.image import ResourceType as Config
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_RESOURCES = {
    Config.TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    Config.GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def config_access(context: RequestContext, operation: Operation, resource_type: int, name: str) -> ErrorCode:
    """NONE where the client may do the operation to a resource's configuration, or the code that says it may not.

    What is neither a topic's nor a group's belongs to the cluster.
    """
    resource, denied = ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if resource_type in (Config.TOPIC, Config.GROUP):
        resource, denied = _RESOURCES[Config(resource_type)]
    subject = CLUSTER_NAME if resource is ResourceType.CLUSTER else name
    return ErrorCode.NONE if context.authorize(operation, resource, subject) else denied


async def alter(
    broker: Services, alterations: Sequence[Alteration], context: RequestContext, *, validate_only: bool
) -> list[ApiError]:
    """Decides and commits alterations of stored configurations: a result for each, in order."""

    def may_alter(resource_type: int, name: str) -> ErrorCode:
        return config_access(context, Operation.ALTER_CONFIGS, resource_type, name)

    controller = controller_context(broker)
    try:
        return await broker.quorum.submit(
            lambda image: decide_alter_configs(
                image, alterations, controller, may_alter=may_alter, validate_only=validate_only
            )
        )
    except QuorumError as error:
        return [ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))] * len(alterations)
