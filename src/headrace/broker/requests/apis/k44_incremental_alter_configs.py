"""IncrementalAlterConfigs (44), versions 0-1: single settings of a resource, and levels of loggers.

Source: KIP-339, KIP-412.
v1 flexible.
Not done: listeners, which cannot change while the broker runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.alter_access import alter, config_access, resource_of
from headrace.broker.requests.registry import handles
from headrace.broker.telemetry import loggers
from headrace.controller.configs import Alteration, check_broker_name, check_form
from headrace.controller.context import ApiError
from headrace.metadata.image import ResourceType
from headrace.security.authorizer import Operation
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def handle(
    broker: Services, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Alters settings; each resource has a result of its own."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    stored = [alteration for alteration in alterations if alteration.resource_type != ResourceType.BROKER_LOGGER]
    times = Counter(map(resource_of, alterations))
    resources = [resource for resource in request.resources if resource.resource_type != ResourceType.BROKER_LOGGER]

    def only(numbers: Sequence[int]) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest([resources[n] for n in numbers], request.validate_only)

    decided = await alter(broker, stored, context, only, validate_only=request.validate_only)
    of_stored = iter(decided)
    answers = [
        _alter_loggers(broker, alteration, context, times, request.validate_only)
        if alteration.resource_type == ResourceType.BROKER_LOGGER
        else next(of_stored)
        for alteration in alterations
    ]
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=alteration.resource_type,
                resource_name=alteration.name,
            )
            for alteration, error in zip(alterations, answers, strict=True)
        ]
    )


def _alter_loggers(
    broker: Services,
    alteration: Alteration,
    context: RequestContext,
    times: Mapping[tuple[int, str], int],
    validate_only: bool,
) -> ApiError:
    """Levels are no metadata: they are set here and now. `times` is how often the request names each resource."""
    on_controller = context.listener in broker.config.controller_listener_names
    # As in Kafka, whose controllers ask for what a node needs.
    operation = Operation.CLUSTER_ACTION if on_controller else Operation.ALTER_CONFIGS
    denied = config_access(context, operation, alteration.resource_type, alteration.name)
    if denied:
        return ApiError(denied)
    if times[resource_of(alteration)] > 1:
        return ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    problem = check_form(alteration) or check_broker_name(alteration.name, broker.node_id)
    return problem or loggers.alter(alteration.changes, validate_only=validate_only)
