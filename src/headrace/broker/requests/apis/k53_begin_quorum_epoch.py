"""BeginQuorumEpoch (53), versions 0-1: a new leader of the metadata quorum announces itself. Source: KIP-595, KIP-853.

v1 flexible, directory ids, and the leader's endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.quorum_requests import ask_quorum, is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k53_begin_quorum_epoch import BeginQuorumEpochRequest

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.BEGIN_QUORUM_EPOCH)
def handle(broker: Services, request: BeginQuorumEpochRequest, context: RequestContext) -> Any:
    """Answers a leader that may act as a node."""
    codec = broker.quorum.codec
    asked = codec.read_begin(request) if is_node(context) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ask_quorum(broker, asked, lambda message, _: codec.begin_response(message, context.api_version))
