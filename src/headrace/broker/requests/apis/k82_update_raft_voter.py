"""UpdateRaftVoter (82), version 0: a voter registers its addresses and versions. Source: KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.voter_codec import names_many, read_update, updated_response
from headrace.broker.requests.quorum_requests import ask_quorum, is_node, is_of_cluster
from headrace.broker.requests.registry import handles
from headrace.raft.messages import Request
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k82_update_raft_voter import UpdateRaftVoterRequest

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.UPDATE_RAFT_VOTER)
def handle(broker: NodeServices, request: UpdateRaftVoterRequest, context: RequestContext) -> Any:
    """Updates the voter on the leader; the answer of any other controller names the leader."""
    asked: Request | ErrorCode
    if not is_node(context):
        asked = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not is_of_cluster(broker, request.cluster_id):
        asked = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif names_many(request):
        asked = ErrorCode.INVALID_REQUEST
    else:
        asked = read_update(request)

    def respond(message: Any, _: bytes) -> Any:
        leader = broker.quorum.raft.known_leader
        return updated_response(message, None if leader is None else broker.quorum.addresses.endpoint(leader))

    return ask_quorum(broker, asked, respond)
