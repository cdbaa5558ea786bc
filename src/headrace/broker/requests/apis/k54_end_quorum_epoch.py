"""EndQuorumEpoch (54), versions 0-1: a leader of the metadata quorum resigns. Source: KIP-595, KIP-853.

v1 flexible, directory ids of the successors, and the leader's endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.quorum_requests import ask_quorum, is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k54_end_quorum_epoch import EndQuorumEpochRequest

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.END_QUORUM_EPOCH)
def handle(broker: Services, request: EndQuorumEpochRequest, context: RequestContext) -> Any:
    """Answers a leader that may act as a node."""
    codec = broker.quorum.codec
    asked = codec.read_end(request) if is_node(context) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ask_quorum(broker, asked, lambda message, _: codec.end_response(message, context.api_version))
