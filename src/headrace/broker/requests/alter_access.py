"""Authorizes and executes AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.requests.client_access import ClientAccess
from headrace.broker.requests.forwarding import forward
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_turn, listed, named_twice, parts_of
from headrace.broker.settings.config_rules import rules_of
from headrace.config.opened import opened_with
from headrace.config.tls import names_tls
from headrace.controller.configs import Alteration, AlterConfigs, check_at_broker
from headrace.controller.context import ApiError
from headrace.machine.split_table import SplitTable
from headrace.security.authorizer import Operation
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

R = TypeVar("R")
T = TypeVar("T")


def config_access(context: RequestContext, operation: Operation, resource_type: int, name: str) -> ErrorCode:
    """Returns NONE if the client may do the operation to a resource's configuration, else the error."""
    return ClientAccess(context.authorizer, context).of_configs(operation, resource_type, name)


async def alter(
    broker: Services,
    alterations: Sequence[Alteration],
    context: RequestContext,
    request_of: Callable[[Sequence[int]], Any],
    *,
    validate_only: bool,
) -> list[ApiError]:
    """Decides and commits alterations of stored configurations; returns a result for each, in order.

    A broker checks what its clients send, and the active controller decides, here or on another node; `request_of`
    makes the request with only the alterations of those numbers. On a controller's listener this node alone decides.
    """
    is_of_controllers = context.listener in broker.config.controller_listener_names
    if is_of_controllers and context.client.is_forwarded:
        return await _decided(broker, alterations, context, validate_only)
    # Only a broker knows whether its listeners can apply a change; it refuses one that they cannot.
    refused: SplitTable[int, ApiError] = SplitTable()
    left: Sequence[int] = range(len(alterations))
    asked = alterations
    if not is_of_controllers:
        context.keep(refused)
        left = await in_turn(broker, context, _left(broker, alterations, context, refused))
        if len(left) < len(alterations):
            asked = Chosen(alterations, left)
    if is_of_controllers:
        decided = await _decided(broker, asked, context, validate_only)
    else:
        decided = await _forwarded(broker, asked, context, request_of, left, validate_only)
    context.keep(decided)
    if asked is alterations:
        return decided
    waiting = iter(decided)
    return await listed(
        broker, context, range(len(alterations)), lambda n: refused[n] if n in refused else next(waiting)
    )


class Chosen(Sequence[T]):
    """Some of many things, by their numbers. It is no list, as Python's collector examines all elements of a new list,
    which for 400,000 takes 40 ms."""

    def __init__(self, things: Sequence[T], numbers: Sequence[int]) -> None:
        self._things = things
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, int):
            return self._things[self._numbers[at]]
        return [self._things[number] for number in self._numbers[at]]


def chosen(things: Sequence[T], takes: Callable[[int, T], bool]) -> Steps[array[int]]:
    """Returns the numbers of the things for which `takes` is true."""
    numbers = array("L")
    for some in parts_of(range(len(things)), SMALL_PER_STEP):
        numbers.extend([n for n in some if takes(n, things[n])])
        yield 1
    return numbers


def _left(
    broker: Services, alterations: Sequence[Alteration], context: RequestContext, refused: SplitTable[int, ApiError]
) -> Steps[Sequence[int]]:
    """Returns the numbers of the alterations that this broker sends to the controller; adds the errors of others to
    `refused`."""
    twice = yield from named_twice(alterations, resource_of, context)
    for n, each in enumerate(alterations):
        yield 1 + len(each.changes) // SMALL_PER_STEP
        why = None if resource_of(each) in twice else _refusal(broker, each, context)
        if why is not None:
            refused[n] = why
    if not refused:
        return range(len(alterations))
    return (yield from chosen(alterations, lambda n, _: n not in refused))


def alterations_of(resources: Sequence[R], alteration_of: Callable[[R], Alteration]) -> Steps[list[Alteration]]:
    """Returns the alteration of each resource in a request."""
    alterations: list[Alteration] = []
    for resource in resources:
        alterations.append(alteration_of(resource))
        yield 1 + len(alterations[-1].changes) // SMALL_PER_STEP
    return alterations


def results_of(
    alterations: Sequence[Alteration], answers: Sequence[ApiError], response: Callable[..., T]
) -> Steps[list[T]]:
    """Returns the result of each resource for the response."""
    results: list[T] = []
    for alteration, error in zip(alterations, answers, strict=True):
        results.append(
            response(
                error_code=error.code,
                error_message=error.message,
                resource_type=alteration.resource_type,
                resource_name=alteration.name,
            )
        )
        yield 1
    return results


def resource_of(alteration: Alteration) -> tuple[int, str]:
    """Returns the type and the name of an alteration's resource."""
    return alteration.resource_type, alteration.name


def _refusal(broker: Services, alteration: Alteration, context: RequestContext) -> ApiError | None:
    """Returns why this broker does not send an alteration to the controller, or None. The controller refuses
    unauthorized clients and resources named twice."""
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
        request = await broker.node.workers.run(partial(request_of, numbers))
        with broker.long_answers.freed_later(context):
            answer = await forward(broker, request, context)
            if answer is not None:
                return await listed(
                    broker,
                    context,
                    answer.responses,
                    lambda each: ApiError(ErrorCode(each.error_code), each.error_message),
                )
    return await _decided(broker, alterations, context, validate_only)


async def _decided(
    broker: Services, alterations: Sequence[Alteration], context: RequestContext, validate_only: bool
) -> list[ApiError]:
    access = ClientAccess(broker.authorizer, context)
    try:
        return await broker.controller.ask(AlterConfigs(alterations, validate_only), access)
    except ControllerError as error:
        return [ApiError(error.code, str(error))] * len(alterations)
