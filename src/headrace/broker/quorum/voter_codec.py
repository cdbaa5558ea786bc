"""Changes of the voters as Kafka's requests and answers: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and the
ApiVersions by which a leader asks a node what it runs.

Pure, as `codec` is, and a part of it. Source: KIP-853.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.metadata.levels import KRAFT_VERSION
from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    ReplicaKey,
    SupportRequest,
    SupportResponse,
    UpdateVoterRequest,
    VoterResponse,
)
from headrace.raft.quorum_state import NO_NODE
from headrace.version import __version__
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import (
    k18_api_versions,
    k80_add_raft_voter,
    k81_remove_raft_voter,
    k82_update_raft_voter,
)

VoterRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest

ENDPOINTS_MAX: Final = 100
"""Listeners of one voter: they go into its record in the metadata log, and stay in the memory of every node."""
NO_EPOCH: Final = -1
"""The answers to the first two have no epoch."""

# --- requests, to be sent


def voter_request(message: VoterRequest | SupportRequest, cluster_id: str, timeout_ms: int) -> tuple[Any, Any]:
    """(the request, the class of its answer)."""
    if isinstance(message, SupportRequest):
        ask = k18_api_versions.ApiVersionsRequest(client_software_name="headrace", client_software_version=__version__)
        return ask, k18_api_versions.ApiVersionsResponse
    if isinstance(message, AddVoterRequest):
        add = k80_add_raft_voter
        return (
            add.AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=timeout_ms,
                voter_id=message.key.id,
                voter_directory_id=message.key.directory_id,
                listeners=[add.Listener(*endpoint) for endpoint in message.endpoints],
                ack_when_committed=message.acks_when_committed,
            ),
            add.AddRaftVoterResponse,
        )
    if isinstance(message, RemoveVoterRequest):
        remove = k81_remove_raft_voter
        key = message.key
        return remove.RemoveRaftVoterRequest(cluster_id, key.id, key.directory_id), remove.RemoveRaftVoterResponse
    update, voter = k82_update_raft_voter, message.voter
    return (
        update.UpdateRaftVoterRequest(
            cluster_id=cluster_id,
            current_leader_epoch=message.epoch,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=[update.Listener(*endpoint) for endpoint in voter.endpoints],
            kraft_version_feature=update.KRaftVersionFeature(voter.min_kraft_version, voter.max_kraft_version),
        ),
        update.UpdateRaftVoterResponse,
    )


# --- requests, as they come


def names_many(request: Any) -> bool:
    """Whether a request names more listeners than a voter may have."""
    return len(request.listeners) > ENDPOINTS_MAX


def _endpoints(request: Any) -> tuple[VoterEndpoint, ...]:
    return tuple(VoterEndpoint(each.name, each.host, each.port) for each in request.listeners)


def read_add(request: k80_add_raft_voter.AddRaftVoterRequest) -> AddVoterRequest:
    """Who is to vote, off the wire."""
    return AddVoterRequest(
        ReplicaKey(request.voter_id, request.voter_directory_id), _endpoints(request), request.ack_when_committed
    )


def read_remove(request: k81_remove_raft_voter.RemoveRaftVoterRequest) -> RemoveVoterRequest:
    """Reads the voter to remove from a RemoveRaftVoter request."""
    return RemoveVoterRequest(ReplicaKey(request.voter_id, request.voter_directory_id))


def read_update(request: k82_update_raft_voter.UpdateRaftVoterRequest) -> UpdateVoterRequest:
    """Where a voter is reached and what it runs, off the wire."""
    levels = request.kraft_version_feature
    voter = Voter(
        request.voter_id,
        request.voter_directory_id,
        _endpoints(request),
        levels.min_supported_version,
        levels.max_supported_version,
    )
    return UpdateVoterRequest(request.current_leader_epoch, voter)


# --- answers, to be sent


def added_response(message: VoterResponse | ErrorCode) -> k80_add_raft_voter.AddRaftVoterResponse:
    """What became of one more voter."""
    return k80_add_raft_voter.AddRaftVoterResponse(**_outcome(message))


def removed_response(message: VoterResponse | ErrorCode) -> k81_remove_raft_voter.RemoveRaftVoterResponse:
    """What became of one voter fewer."""
    return k81_remove_raft_voter.RemoveRaftVoterResponse(**_outcome(message))


def _outcome(message: VoterResponse | ErrorCode) -> dict[str, Any]:
    if isinstance(message, ErrorCode):
        return {"error_code": message, "error_message": None}
    return {"error_code": message.error, "error_message": message.message}


def updated_response(
    message: VoterResponse | ErrorCode, leader: VoterEndpoint | None
) -> k82_update_raft_voter.UpdateRaftVoterResponse:
    """What became of another endpoint, with the leader and where it is."""
    wire = k82_update_raft_voter
    if isinstance(message, ErrorCode):
        return wire.UpdateRaftVoterResponse(error_code=message)
    current = wire.CurrentLeader(
        leader_id=NO_NODE if message.leader_id is None else message.leader_id, leader_epoch=message.epoch
    )
    if leader is not None:
        current.host, current.port = leader.host, leader.port
    return wire.UpdateRaftVoterResponse(error_code=message.error, current_leader=current)


# --- answers, as they come


def read_voter_response(request: VoterRequest | SupportRequest, response: Any) -> VoterResponse | SupportResponse:
    """What an answer says."""
    error = ErrorCode(response.error_code)
    if isinstance(request, SupportRequest):
        # A feature whose lowest level is 0 may be left out: then a node runs level 0 alone.
        found = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        return SupportResponse(found.get(KRAFT_VERSION, (0, 0)), error)
    if isinstance(request, UpdateVoterRequest):
        leader = response.current_leader
        if leader is not None and leader.leader_epoch >= 0:
            leader_id = None if leader.leader_id < 0 else leader.leader_id
            return VoterResponse(leader.leader_epoch, leader_id, error)
        return VoterResponse(request.epoch, None, error)
    return VoterResponse(NO_EPOCH, None, error, response.error_message)
