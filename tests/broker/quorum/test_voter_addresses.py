"""The address of a node: from the voter set, from the settings, and from another node's last answer."""

from __future__ import annotations

from headrace.broker.quorum.codec import leader_in
from headrace.broker.quorum.voter_addresses import VoterAddresses
from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.messages import ReplicaKey
from headrace.raft.voter_set import VoterHistory, VoterSet
from headrace.wire.messages import k01_fetch, k52_vote


def endpoint(host: str) -> VoterEndpoint:
    return VoterEndpoint("CONTROLLER", host, 9093)


def addresses(own_id: int, voters: list[Voter], *bootstrap: VoterEndpoint) -> VoterAddresses:
    return VoterAddresses(ReplicaKey(own_id), VoterHistory(VoterSet(tuple(voters), kraft_version=1)), bootstrap)


def test_voters_bootstrap_servers_and_the_leader_are_found() -> None:
    voters = [Voter(1, bytes(16), (endpoint("one"),)), Voter(2, bytes(16), ())]
    where = addresses(4, voters, endpoint("first"), endpoint("second"))
    assert where.endpoint(-2) == endpoint("first") and where.endpoint(-3) == endpoint("second")
    assert where.endpoint(1) == endpoint("one")
    assert where.endpoint(2) is None and where.endpoint(3) is None
    where.learn(3, endpoint("three"))
    assert where.endpoint(3) == endpoint("three")
    where.learn(1, endpoint("moved"))
    assert where.endpoint(1) == endpoint("moved"), "the leader knows better than the voter set"
    assert where.endpoint(3) is None, "one leader at a time"


def test_what_was_told_counts_until_another_voter_set_is_read() -> None:
    sets = VoterHistory(VoterSet((Voter(1, bytes(16), (endpoint("one"),)),), kraft_version=1))
    where = VoterAddresses(ReplicaKey(2), sets, ())
    where.learn(1, endpoint("moved"))
    assert where.endpoint(1) == endpoint("moved")
    sets.start_at(5, VoterSet((Voter(1, bytes(16), (endpoint("again"),)),), kraft_version=1))
    assert where.endpoint(1) == endpoint("again")


def test_a_node_is_where_the_voter_set_says_whatever_it_is_told_of_itself() -> None:
    """An answer names a leader by host and port alone; what a leader says of itself names the listener too, and Apache
    Kafka's node stops where that name is empty."""
    where = addresses(1, [Voter(1, bytes(16), (endpoint("one"),))])
    where.learn(1, VoterEndpoint("", "one", 9093))
    assert where.endpoint(1) == endpoint("one")


def test_an_answer_names_the_leader_or_not() -> None:
    named = k01_fetch.NodeEndpoint(node_id=3, host="three", port=9093)
    assert leader_in(k01_fetch.FetchResponse(node_endpoints=[named])) == (3, "three", 9093)
    assert leader_in(k01_fetch.FetchResponse()) is None
    assert leader_in(k52_vote.VoteResponse()) is None
