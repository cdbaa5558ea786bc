"""ListConfigResources (74), versions 0-1: the resources that have, or can have, a configuration. Source: KIP-1142.

v1 types of resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces, parts_of
from headrace.broker.requests.registry import handles
from headrace.metadata.image import ClusterImage
from headrace.metadata.image import ResourceType as Config
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_LISTED = (Config.TOPIC, Config.BROKER, Config.BROKER_LOGGER, Config.CLIENT_METRICS, Config.GROUP)


@handles(ApiKey.LIST_CONFIG_RESOURCES)
def handle(broker: Services, request: ListConfigResourcesRequest, context: RequestContext) -> Any:
    """Returns the names of resources by type; no types means all, and version 0 has client metrics only."""
    return in_pieces(broker, context, _listed(broker, request, context))


def _listed(
    broker: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> Steps[ListConfigResourcesResponse]:
    if not context.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    types = [int(Config.CLIENT_METRICS)] if context.api_version == 0 else request.resource_types or list(_LISTED)
    if any(each not in _LISTED for each in types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response = ListConfigResourcesResponse()
    for each in dict.fromkeys(types):
        for names in parts_of(_names(broker.image, each), SMALL_PER_STEP):
            response.config_resources += [ConfigResource(resource_name=name, resource_type=each) for name in names]
            yield 1
    return response


def _names(image: ClusterImage, resource_type: int) -> list[str]:
    if resource_type == Config.TOPIC:
        return [topic.name for topic in image.topics]
    if resource_type in (Config.BROKER, Config.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(name for kind, name in image.configs.overrides if kind == resource_type)
