"""AlterConfigs (33), versions 0-2: replaces the whole configuration of a resource; settings not named are removed.

Source: KIP-133.
v2 flexible.
Unsupported: listeners, which cannot change while the broker runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.alter_access import alter, alterations_of, results_of
from headrace.broker.requests.pieces import in_turn
from headrace.broker.requests.registry import handles
from headrace.controller.configs import SETTINGS_MAX, Alteration, AlterOperation
from headrace.wire.apis import ApiKey
from headrace.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.ALTER_CONFIGS)
async def handle(broker: Services, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replaces configurations; each resource has its own result."""
    alterations = await in_turn(broker, context, alterations_of(request.resources, _alteration))

    def only(numbers: Sequence[int]) -> AlterConfigsRequest:
        return AlterConfigsRequest([request.resources[n] for n in numbers], request.validate_only)

    answers = await alter(broker, alterations, context, only, validate_only=request.validate_only)
    responses = await in_turn(broker, context, results_of(alterations, answers, AlterConfigsResourceResponse))
    return AlterConfigsResponse(responses=responses)


def _alteration(resource: AlterConfigsResource) -> Alteration:
    few = resource.configs[: SETTINGS_MAX + 1]  # with one more it is refused
    changes = [(config.name, AlterOperation.SET, config.value) for config in few]
    return Alteration(resource.resource_type, resource.resource_name, changes, replaces=True)
