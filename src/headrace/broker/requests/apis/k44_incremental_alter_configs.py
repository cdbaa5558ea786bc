"""IncrementalAlterConfigs (44), versions 0-1: changes single settings of a resource, and levels of loggers.

Source: KIP-339, KIP-412.
v1 flexible.
Unsupported: listeners, which cannot change while the broker runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.alter_access import (
    Chosen,
    alter,
    alterations_of,
    chosen,
    config_access,
    resource_of,
    results_of,
)
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, named_twice, parts_of
from headrace.broker.requests.registry import handles
from headrace.broker.telemetry import loggers
from headrace.controller.configs import SETTINGS_MAX, Alteration, check_broker_name, check_form
from headrace.controller.context import ApiError
from headrace.machine.split_table import SplitTable
from headrace.metadata.image import ResourceType
from headrace.security.authorizer import Operation
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
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
    """Alters settings; each resource has its own result."""
    alterations = await in_turn(broker, context, alterations_of(request.resources, _alteration))
    stored: Sequence[Alteration] = alterations
    resources: Sequence[AlterConfigsResource] = request.resources
    loggers_too = await in_turn(broker, context, _names_loggers(alterations))
    if loggers_too:
        numbers = await in_turn(broker, context, chosen(alterations, _is_stored))
        stored, resources = Chosen(alterations, numbers), Chosen(request.resources, numbers)

    def only(numbers: Sequence[int]) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest([resources[n] for n in numbers], request.validate_only)

    decided = await alter(broker, stored, context, only, validate_only=request.validate_only)
    answers = decided
    if loggers_too:
        with_loggers = _with_loggers(broker, alterations, decided, context, request.validate_only)
        answers = await in_turn(broker, context, with_loggers)
    responses = await in_turn(broker, context, results_of(alterations, answers, AlterConfigsResourceResponse))
    return IncrementalAlterConfigsResponse(responses=responses)


def _is_stored(_: int, alteration: Alteration) -> bool:
    return alteration.resource_type != ResourceType.BROKER_LOGGER


def _names_loggers(alterations: Sequence[Alteration]) -> Steps[bool]:
    for some in parts_of(alterations, SMALL_PER_STEP):
        if any(each.resource_type == ResourceType.BROKER_LOGGER for each in some):
            return True
        yield 1
    return False


def _alteration(resource: AlterConfigsResource) -> Alteration:
    few = resource.configs[: SETTINGS_MAX + 1]  # with one more it is refused
    changes = [(config.name, config.config_operation, config.value) for config in few]
    return Alteration(resource.resource_type, resource.resource_name, changes)


def _with_loggers(
    broker: Services,
    alterations: Sequence[Alteration],
    decided: Sequence[ApiError],
    context: RequestContext,
    validate_only: bool,
) -> Steps[list[ApiError]]:
    """Alters the levels of loggers; returns the results of all alterations, those of stored ones from `decided`."""
    twice = yield from named_twice(alterations, resource_of, context)
    of_stored, answers = iter(decided), list[ApiError]()
    for alteration in alterations:
        if alteration.resource_type == ResourceType.BROKER_LOGGER:
            answers.append(_alter_loggers(broker, alteration, context, twice, validate_only))
        else:
            answers.append(next(of_stored))
        yield 1
    return answers


def _alter_loggers(
    broker: Services,
    alteration: Alteration,
    context: RequestContext,
    twice: SplitTable[tuple[int, str], None],
    validate_only: bool,
) -> ApiError:
    """Alters logger levels, which are no metadata, on this node. `twice` has the resources that are named twice."""
    on_controller = context.listener in broker.config.controller_listener_names
    # As in Kafka: controllers require ClusterAction, the permission of nodes.
    operation = Operation.CLUSTER_ACTION if on_controller else Operation.ALTER_CONFIGS
    denied = config_access(context, operation, alteration.resource_type, alteration.name)
    if denied:
        return ApiError(denied)
    if resource_of(alteration) in twice:
        return ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    problem = check_form(alteration) or check_broker_name(alteration.name, broker.node_id)
    return problem or loggers.alter(alteration.changes, validate_only=validate_only)
