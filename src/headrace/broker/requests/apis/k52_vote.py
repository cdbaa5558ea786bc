"""Vote (52), versions 0-2: a candidate requests a voter's vote. Source: KIP-595, KIP-853, KIP-996.

v1 directory ids, and the leader's endpoint. v2 pre-votes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.quorum_requests import ask_quorum, is_node
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k52_vote import VoteRequest

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.VOTE)
def handle(broker: Services, request: VoteRequest, context: RequestContext) -> Any:
    """Answers a candidate that may act as a node."""
    codec = broker.quorum.codec
    asked = codec.read_vote(request) if is_node(context) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ask_quorum(broker, asked, lambda message, _: codec.vote_response(message, context.api_version))
