"""ControllerRegistration (70), version 0: a controller registers with the active one. Source: KIP-919."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.node_requests import names_many, read_controller_registration
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k70_controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.CONTROLLER_REGISTRATION)
async def handle(
    broker: NodeServices, request: ControllerRegistrationRequest, context: RequestContext
) -> ControllerRegistrationResponse:
    """Registers the controller; answers when that is committed."""
    if not is_node(context):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ControllerRegistrationResponse(error_code=denied, error_message=message_of(denied))
    if names_many(request):
        code = ErrorCode.INVALID_REGISTRATION
        return ControllerRegistrationResponse(error_code=code, error_message=message_of(code))
    try:
        outcome = await broker.local_controller.ask(read_controller_registration(request))
    except ControllerError as error:
        return ControllerRegistrationResponse(error_code=error.code, error_message=str(error))
    return ControllerRegistrationResponse(error_code=outcome.code, error_message=outcome.message)
