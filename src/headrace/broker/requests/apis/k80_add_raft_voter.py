"""AddRaftVoter (80), versions 0-1: adds a controller to the voters of the metadata quorum. Source: KIP-853.

v1 whether the answer waits for the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.voter_codec import added_response, names_many, read_add
from headrace.broker.requests.quorum_requests import change_voters
from headrace.broker.requests.registry import handles
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import NodeServices
    from headrace.raft.messages import AddVoterRequest


@handles(ApiKey.ADD_RAFT_VOTER)
async def handle(broker: NodeServices, request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    """Adds the voter on the leader; any other controller refuses, and a broker forwards."""
    return added_response(await change_voters(broker, request.cluster_id, lambda: _read(request), context))


def _read(request: AddRaftVoterRequest) -> AddVoterRequest | ErrorCode:
    return ErrorCode.INVALID_REQUEST if names_many(request) else read_add(request)
