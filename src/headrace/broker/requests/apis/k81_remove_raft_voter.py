"""RemoveRaftVoter (81), version 0: removes a controller from the voters of the metadata quorum. Source: KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.voter_codec import read_remove, removed_response
from headrace.broker.requests.quorum_requests import change_voters
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices


@handles(ApiKey.REMOVE_RAFT_VOTER)
async def handle(
    broker: NodeServices, request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    """Removes the voter on the leader; any other controller refuses, and a broker forwards."""
    return removed_response(await change_voters(broker, request.cluster_id, lambda: read_remove(request), context))
