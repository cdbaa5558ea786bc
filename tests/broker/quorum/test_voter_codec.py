"""Changes of the voters on the wire and back."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.quorum import voter_codec as codec
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
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k18_api_versions import ApiVersionsResponse, SupportedFeatureKey

KEY = ReplicaKey(4, b"\x04" * 16)
ENDPOINTS = (VoterEndpoint("CONTROLLER", "four", 9093), VoterEndpoint("OTHER", "four", 9094))
ADD = AddVoterRequest(KEY, ENDPOINTS)
REMOVE = RemoveVoterRequest(KEY)
UPDATE = UpdateVoterRequest(7, Voter(4, KEY.directory_id, ENDPOINTS, 0, 1))


def there(message: Any, version: int) -> Any:
    request, _ = codec.voter_request(message, "cluster", 30_000)
    assert request.cluster_id == "cluster"
    return type(request).decode(request.encode(version), version)


def back(response: Any, version: int) -> Any:
    return type(response).decode(response.encode(version), version)


def test_requests_say_the_same_off_the_wire() -> None:
    assert codec.read_add(there(ADD, 0)) == ADD
    early = AddVoterRequest(KEY, ENDPOINTS, acks_when_committed=False)
    assert codec.read_add(there(early, 1)) == early
    assert codec.read_remove(there(REMOVE, 0)) == REMOVE
    assert codec.read_update(there(UPDATE, 0)) == UPDATE


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND])
def test_answers_say_the_same_off_the_wire(error: ErrorCode) -> None:
    said = VoterResponse(codec.NO_EPOCH, None, error, "why")
    assert codec.read_voter_response(ADD, back(codec.added_response(said), 1)) == said
    assert codec.read_voter_response(REMOVE, back(codec.removed_response(said), 0)) == said
    updated = VoterResponse(8, 2, error)
    leader = VoterEndpoint("CONTROLLER", "two", 9093)
    wire = back(codec.updated_response(updated, leader), 0)
    assert (wire.current_leader.host, wire.current_leader.port) == ("two", 9093)
    assert codec.read_voter_response(UPDATE, wire) == updated


def test_an_update_that_was_refused_whole_is_answered_without_a_leader() -> None:
    wire = back(codec.updated_response(ErrorCode.INCONSISTENT_CLUSTER_ID, None), 0)
    assert codec.read_voter_response(UPDATE, wire) == VoterResponse(7, None, ErrorCode.INCONSISTENT_CLUSTER_ID)
    nobody = back(codec.updated_response(VoterResponse(7, None, ErrorCode.NOT_LEADER_OR_FOLLOWER), None), 0)
    assert codec.read_voter_response(UPDATE, nobody) == VoterResponse(7, None, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_node_that_does_not_name_kraft_version_runs_level_0() -> None:
    asked = SupportRequest()
    assert codec.read_voter_response(asked, ApiVersionsResponse()) == SupportResponse((0, 0))
    said = ApiVersionsResponse(supported_features=[SupportedFeatureKey("kraft.version", 0, 1)])
    assert codec.read_voter_response(asked, back(said, 4)) == SupportResponse((0, 1))
