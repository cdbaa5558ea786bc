"""FetchSnapshot (59), versions 0-1: a replica of the metadata log fetches a part of a snapshot.

Source: KIP-630, KIP-853.
v1 directory ids, and the leader's endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.quorum_requests import ask_quorum, is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k59_fetch_snapshot import FetchSnapshotRequest

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.FETCH_SNAPSHOT)
def handle(broker: Services, request: FetchSnapshotRequest, context: RequestContext) -> Any:
    """Returns a part of the snapshot to a client that may act as a node."""
    codec = broker.quorum.codec
    asked = codec.read_fetch_snapshot(request) if is_node(context) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ask_quorum(broker, asked, lambda message, _: codec.fetch_snapshot_response(message, context.api_version))
