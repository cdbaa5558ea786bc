"""DescribeCluster (60), versions 0-2: the brokers, or on a controller's listener the controllers.

Source: KIP-700, KIP-919.
v1 controllers. v2 fenced brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.authorized_operations import cluster_operations
from headrace.broker.requests.registry import handles
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_BROKERS, _CONTROLLERS = 1, 2


@handles(ApiKey.DESCRIBE_CLUSTER)
def handle(broker: Services, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Describes the nodes of the listener's kind; a request for the other kind is an error.

    As in Kafka every client may ask a broker, and only clients that may alter the cluster a controller.
    """
    on_controller = context.listener in broker.config.controller_listener_names
    if on_controller and not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    expected = _CONTROLLERS if on_controller else _BROKERS
    is_first = context.api_version == 0  # which has no kinds: its clients want brokers
    if request.endpoint_type not in (_BROKERS, _CONTROLLERS):
        return _refused(
            request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        )
    if request.endpoint_type != expected:
        kinds = {_BROKERS: "broker", _CONTROLLERS: "controller"}
        return _refused(
            request,
            ErrorCode.INVALID_REQUEST if is_first else ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            f"The request was sent to an endpoint of type {kinds[expected]}, but we wanted an endpoint of type "
            f"{kinds[request.endpoint_type]}",
        )
    if request.include_fenced_brokers and on_controller:
        return _refused(
            request, ErrorCode.INVALID_REQUEST, "Cannot include fenced brokers when describing controllers."
        )
    image = broker.image
    # A broker names itself, as it forwards to the controller; a controller names the active one.
    leader = broker.quorum.raft.known_leader if on_controller else broker.node_id
    response = DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=broker.cluster_id,
        controller_id=-1 if leader is None else leader,
    )
    for node in (image.controllers if on_controller else image.brokers).values():
        endpoint = next((e for e in node.endpoints if e.name == context.listener), None)
        is_fenced = bool(getattr(node, "fenced", False))
        if endpoint is None or (is_fenced and not request.include_fenced_brokers):
            continue
        response.brokers.append(
            DescribeClusterBroker(
                broker_id=node.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=getattr(node, "rack", None),
                is_fenced=is_fenced,
            )
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _refused(request: DescribeClusterRequest, error: ErrorCode, message: str | None) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=error, error_message=message or message_of(error), endpoint_type=request.endpoint_type
    )
