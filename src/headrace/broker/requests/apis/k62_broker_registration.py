"""BrokerRegistration (62), versions 0-4: a broker registers with the active controller. Source: KIP-631, KIP-858.

v1 migration from ZooKeeper, which is accepted and has no effect. v2 directories. v3 the epoch of its previous
registration. v4 features of any level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.node_requests import names_many, read_registration
from headrace.broker.requests.quorum_requests import is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.BROKER_REGISTRATION)
async def handle(
    broker: NodeServices, request: BrokerRegistrationRequest, context: RequestContext
) -> BrokerRegistrationResponse:
    """Returns the broker epoch. The broker is fenced until its heartbeats ask for more."""
    if not is_node(context):
        return BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if names_many(request):
        return BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION)
    try:
        reply = await broker.local_controller.ask(read_registration(request))
    except ControllerError as error:
        return BrokerRegistrationResponse(error_code=error.code)
    if reply.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION and broker.controller_tasks is not None:
        # The broker may have just restarted: the controller need not wait until its old session expires.
        broker.controller_tasks.suspect(request.broker_id)
    return BrokerRegistrationResponse(error_code=reply.error, broker_epoch=reply.broker_epoch)
