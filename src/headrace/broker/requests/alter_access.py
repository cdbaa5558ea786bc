"""Who may see or alter the configuration of what, and the altering itself, for both APIs that do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import Asker, ControllerError
from headrace.broker.quorum.local_controller import AskerAccess
from headrace.broker.requests.forwarding import Forwarded, forward
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, listed, parts_of
from headrace.broker.settings.config_rules import rules_of
from headrace.config.opened import opened_with
from headrace.config.tls import names_tls
from headrace.controller.configs import Alteration, check_at_broker
from headrace.controller.context import ApiError
from headrace.controller.requests import AlterConfigs
from headrace.security.authorizer import Operation
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

R = TypeVar("R")
T = TypeVar("T")


def config_access(context: RequestContext, operation: Operation, resource_type: int, name: str) -> ErrorCode:
    """NONE where the client may do the operation to a resource's configuration, or the code that says it may not."""
    asker = Asker(context.principal, context.client_host, api_key=context.api_key)
    return AskerAccess(context.authorizer, asker).of_configs(operation, resource_type, name)


async def alter(
    broker: Services,
    alterations: Sequence[Alteration],
    context: RequestContext,
    request_of: Callable[[Sequence[int]], Any],
    *,
    validate_only: bool,
) -> list[ApiError]:
    """Decides and commits alterations of stored configurations: a result for each, in order.

    What a client brings is checked here and decided by the active controller, here or elsewhere; `request_of` makes
    the request that has only these (by their numbers). Where controllers are asked, this node alone decides.
    """
    is_of_controllers = context.listener in broker.config.controller_listener_names
    if is_of_controllers and isinstance(context.connection, Forwarded):
        return await _decided(broker, alterations, context, validate_only)
    # Only a broker knows whether its listeners can follow; one that cannot keeps what it has, and says so.
    refused = {} if is_of_controllers else await in_turn(broker, context, _refused(broker, alterations, context))
    left: Sequence[int] = range(len(alterations))
    asked = alterations
    if refused:
        left = await in_turn(broker, context, _left(alterations, refused))
        asked = [alterations[n] for n in left]
    if is_of_controllers:
        decided = iter(await _decided(broker, asked, context, validate_only))
    else:
        decided = iter(await _forwarded(broker, asked, context, request_of, left, validate_only))
    if not refused:
        return list(decided)
    return await listed(
        broker, context, range(len(alterations)), lambda n: refused[n] if n in refused else next(decided)
    )


def _left(alterations: Sequence[Alteration], refused: Mapping[int, ApiError]) -> Steps[list[int]]:
    left: list[int] = []
    for some in parts_of(range(len(alterations)), SMALL_PER_STEP):
        left += [n for n in some if n not in refused]
        yield 1
    return left


def _refused(
    broker: Services, alterations: Sequence[Alteration], context: RequestContext
) -> Steps[dict[int, ApiError]]:
    """Why this broker does not bring them to the controller, by their numbers."""
    times = yield from times_named(alterations)
    refused: dict[int, ApiError] = {}
    for n, each in enumerate(alterations):
        yield 1 + len(each.changes) // SMALL_PER_STEP
        why = _refusal(broker, each, context) if times[resource_of(each)] == 1 else None
        if why is not None:
            refused[n] = why
    return refused


def times_named(alterations: Sequence[Alteration]) -> Steps[Counter[tuple[int, str]]]:
    """How often a request names each resource."""
    times: Counter[tuple[int, str]] = Counter()
    for some in parts_of(alterations, SMALL_PER_STEP):
        times.update(map(resource_of, some))
        yield 1
    return times


def alterations_of(resources: Sequence[R], alteration_of: Callable[[R], Alteration]) -> Steps[list[Alteration]]:
    """What is asked of each resource of a request."""
    alterations: list[Alteration] = []
    for resource in resources:
        alterations.append(alteration_of(resource))
        yield 1 + len(alterations[-1].changes) // SMALL_PER_STEP
    return alterations


def told(alterations: Sequence[Alteration], answers: Sequence[ApiError], response: Callable[..., T]) -> Steps[list[T]]:
    """What is said of each resource."""
    said: list[T] = []
    for alteration, error in zip(alterations, answers, strict=True):
        said.append(
            response(
                error_code=error.code,
                error_message=error.message,
                resource_type=alteration.resource_type,
                resource_name=alteration.name,
            )
        )
        yield 1
    return said


def resource_of(alteration: Alteration) -> tuple[int, str]:
    """The type and the name of the resource that an alteration is about."""
    return alteration.resource_type, alteration.name


def _refusal(broker: Services, alteration: Alteration, context: RequestContext) -> ApiError | None:
    """Why this broker does not bring it to the controller, which refuses who may not ask, and resources named twice."""
    if config_access(context, Operation.ALTER_CONFIGS, *resource_of(alteration)):
        return None
    rules = rules_of(broker.config)

    def check_own(overrides: Mapping[str, str], per_broker: bool) -> str | None:
        why = rules.check_own(overrides, per_broker)
        names = [name for name, _, _ in alteration.changes]
        if why is None and any(names_tls(name) for name in names):
            why = broker.server.store_refusal(rules.after(overrides, per_broker)) or None
        if why is None and opened_with(names):
            why = broker.server.login_refusal(rules.after(overrides, per_broker)) or None
        return why

    return check_at_broker(broker.image, alteration, broker.node_id, rules, check_own)


async def _forwarded(
    broker: Services,
    alterations: Sequence[Alteration],
    context: RequestContext,
    request_of: Callable[[Sequence[int]], Any],
    numbers: Sequence[int],
    validate_only: bool,
) -> list[ApiError]:
    if alterations and not broker.quorum.decides:
        answer = await forward(broker, request_of(numbers), context)
        if answer is not None:
            return [ApiError(ErrorCode(each.error_code), each.error_message) for each in answer.responses]
    return await _decided(broker, alterations, context, validate_only)


async def _decided(
    broker: Services, alterations: Sequence[Alteration], context: RequestContext, validate_only: bool
) -> list[ApiError]:
    asker = Asker(context.principal, context.client_host, api_key=context.api_key)
    try:
        return await broker.controller.ask(AlterConfigs(alterations, validate_only), asker)
    except ControllerError as error:
        return [ApiError(error.code, str(error))] * len(alterations)
