"""What voters say, to the wire and back: nothing is lost, and what is not meant for this quorum is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.broker.quorum.codec import Codec
from headrace.broker.quorum.voter_addresses import VoterAddresses
from headrace.metadata.batches import data_batches
from headrace.raft.control import VoterEndpoint
from headrace.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Entries,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from headrace.raft.voter_set import VoterHistory, VoterSet
from headrace.wire.apis import APIS
from headrace.wire.errors import ErrorCode
from headrace.wire.records import CorruptBatch

CLUSTER = "abcdefghijklmnopqrstuw"
DIRECTORY = bytes(range(16))
NUMBERS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**62)
DIRECTORIES = st.binary(min_size=16, max_size=16)
KEYS = st.builds(ReplicaKey, NUMBERS, DIRECTORIES)
LEADERS = st.one_of(st.none(), NUMBERS)
ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_VOTER_KEY])


class OddAddresses(VoterAddresses):
    """The address of every node with an odd id is known."""

    def endpoint(self, node_id: int) -> VoterEndpoint | None:
        return VoterEndpoint("CONTROLLER", f"node{node_id}", 9093) if node_id % 2 else None


def codec(*, dynamic: bool = True, cluster: str = CLUSTER) -> Codec:
    sets = VoterHistory(VoterSet((), kraft_version=int(dynamic)))
    key = ReplicaKey(1, DIRECTORY if dynamic else bytes(16))
    return Codec(cluster, key, OddAddresses(key, sets, ()), sets)


def over_the_wire(message: Any, version: int) -> Any:
    """The message as whoever receives it decodes it."""
    data = bytearray()
    parts = getattr(message, "encode_parts", None)
    if parts is not None:
        data = bytearray(b"".join(bytes(part) for part in parts(version, data)))
    else:
        message.encode_onto(data, version)
    return type(message).decode(memoryview(bytes(data)), version, 0)


def newest(message: Any) -> int:
    return APIS[message.API_KEY].max_version


@given(st.builds(VoteRequest, NUMBERS, KEYS, KEYS, st.builds(Position, NUMBERS, OFFSETS), st.booleans()))
def test_a_vote_is_asked_for(message: VoteRequest) -> None:
    request, _ = codec().request(message)
    assert codec().read_vote(over_the_wire(request, newest(request))) == message


@given(st.builds(BeginQuorumEpochRequest, NUMBERS, NUMBERS, KEYS))
def test_an_epoch_begins(message: BeginQuorumEpochRequest) -> None:
    request, _ = codec().request(message)
    assert codec().read_begin(over_the_wire(request, newest(request))) == message


@given(st.builds(EndQuorumEpochRequest, NUMBERS, NUMBERS, st.lists(KEYS, max_size=3).map(tuple)))
def test_an_epoch_ends(message: EndQuorumEpochRequest) -> None:
    request, _ = codec().request(message)
    assert codec().read_end(over_the_wire(request, newest(request))) == message


@given(st.builds(FetchRequest, NUMBERS, KEYS, NUMBERS, OFFSETS, st.integers(-1, 2**62), NUMBERS))
def test_a_replica_fetches(message: FetchRequest) -> None:
    request, _ = codec().request(message)
    assert codec().read_fetch(over_the_wire(request, newest(request))) == message


POSITIONS = st.builds(Position, NUMBERS, OFFSETS)


@given(st.builds(FetchSnapshotRequest, NUMBERS, KEYS, POSITIONS, OFFSETS, NUMBERS))
def test_a_replica_fetches_a_snapshot(message: FetchSnapshotRequest) -> None:
    request, _ = codec().request(message)
    assert codec().read_fetch_snapshot(over_the_wire(request, newest(request))) == message
    other = codec(cluster="other").read_fetch_snapshot(request)
    assert other is ErrorCode.INCONSISTENT_CLUSTER_ID
    request.topics[0].name = "mine"
    assert codec().read_fetch_snapshot(request) is ErrorCode.INVALID_REQUEST


@given(st.builds(FetchSnapshotResponse, NUMBERS, LEADERS, POSITIONS, OFFSETS, OFFSETS, st.binary(max_size=9), ERRORS))
def test_a_piece_of_a_snapshot(message: FetchSnapshotResponse) -> None:
    # Of leader 0 and epoch 0 nothing is said: they are what a reader takes what is not said for.
    assume((message.epoch, message.leader_id) != (0, 0))
    asked = FetchSnapshotRequest(3, ReplicaKey(2), Position(2, 5), 0, 100)
    for version in (0, 1):
        answer = over_the_wire(codec().fetch_snapshot_response(message, version), version)
        assert codec().response(asked, answer) == message
    refused = codec().response(asked, codec().fetch_snapshot_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 1))
    assert refused == FetchSnapshotResponse(3, None, Position(2, 5), error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@given(KEYS, KEYS, DIRECTORIES)
def test_a_static_quorum_knows_no_directories(candidate: ReplicaKey, voter: ReplicaKey, directory: bytes) -> None:
    """A Kafka node says its own all the same. Whom it means is for the machine to judge, which knows its directory."""
    request, _ = codec().request(VoteRequest(3, candidate, ReplicaKey(1, directory), Position(2, 5), False))
    read = codec(dynamic=False).read_vote(request)
    assert isinstance(read, VoteRequest)
    assert read.candidate == ReplicaKey(candidate.id) and read.voter == ReplicaKey(1, directory)


def test_an_old_candidate_does_not_say_whom_it_asks() -> None:
    request, _ = codec().request(VoteRequest(3, ReplicaKey(2), ReplicaKey(-1), Position(2, 5), False))
    read = codec().read_vote(over_the_wire(request, 0))
    assert isinstance(read, VoteRequest) and read.voter == ReplicaKey(1)


@given(
    st.builds(VoteResponse, NUMBERS, LEADERS, st.booleans(), st.just(True), ERRORS),
    st.builds(EpochResponse, NUMBERS, LEADERS, ERRORS),
)
def test_answers(vote: VoteResponse, epoch: EpochResponse) -> None:
    asked = VoteRequest(3, ReplicaKey(2), ReplicaKey(1), Position(2, 5), True)
    answer = codec().vote_response(vote, 2)
    assert codec().response(asked, over_the_wire(answer, newest(answer))) == vote
    assert codec().response(asked, over_the_wire(codec().vote_response(vote, 0), 0)) == vote
    begins = BeginQuorumEpochRequest(3, 2, ReplicaKey(1))
    assert codec().response(begins, codec().begin_response(epoch, 1)) == epoch
    assert codec().response(EndQuorumEpochRequest(3, 2, ()), codec().end_response(epoch, 1)) == epoch


def batches(*sizes: int, base: int = 7) -> tuple[bytes, tuple[Entries, ...]]:
    data, found = b"", []
    for size in sizes:
        values = [b"v"] * size
        (batch,) = data_batches(values, base_offset=base, leader_epoch=4, timestamp_ms=5)
        found.append(Entries(base, 4, size, bytes(batch)))
        data += batch
        base += size
    return data, tuple(found)


POSITIONS = st.one_of(st.none(), st.builds(Position, NUMBERS, OFFSETS))


@given(NUMBERS, LEADERS, st.integers(-1, 2**62), POSITIONS, POSITIONS, ERRORS)
def test_answers_to_fetches(
    epoch: int, leader: int | None, mark: int, diverging: Position | None, snapshot: Position | None, error: ErrorCode
) -> None:
    data, entries = batches(1, 3)
    message = FetchResponse(epoch, leader, mark, entries, diverging, snapshot, error)
    answer = codec().fetch_response(message, data, 3)
    asked = FetchRequest(4, ReplicaKey(2), 4, 7)
    assert codec().response(asked, over_the_wire(answer, newest(answer))) == message


def test_the_last_batch_of_an_answer_may_be_cut() -> None:
    asked = FetchRequest(4, ReplicaKey(2), 4, 7)
    data, entries = batches(1, 3)
    for size in range(len(data)):
        answer = codec().response(asked, codec().fetch_response(FetchResponse(4, 1, 8), data[:size]))
        whole = [] if size < len(entries[0].payload) else [entries[0]]
        assert isinstance(answer, FetchResponse) and list(answer.entries) == whole


@pytest.mark.parametrize("at", [8, 16, 17, 23, 70])
def test_damage_on_the_way_is_seen(at: int) -> None:
    """In the length, the magic, the checksum, the count, the records."""
    asked = FetchRequest(4, ReplicaKey(2), 4, 7)
    data = bytearray(batches(2)[0])
    data[at] ^= 0x80
    with pytest.raises(CorruptBatch):
        codec().response(asked, codec().fetch_response(FetchResponse(4, 1, 8), bytes(data)))


@pytest.mark.parametrize("kind", ["vote", "begin", "end", "fetch"])
def test_another_cluster_or_topic_is_refused(kind: str) -> None:
    messages: dict[str, Any] = {
        "vote": VoteRequest(3, ReplicaKey(2), ReplicaKey(1), Position(2, 5), True),
        "begin": BeginQuorumEpochRequest(3, 2, ReplicaKey(1)),
        "end": EndQuorumEpochRequest(3, 2, ()),
        "fetch": FetchRequest(4, ReplicaKey(2), 4, 7),
    }
    request, _ = codec().request(messages[kind])
    assert getattr(codec(cluster="another"), f"read_{kind}")(request) is ErrorCode.INCONSISTENT_CLUSTER_ID
    request.cluster_id = None
    assert not isinstance(getattr(codec(cluster="another"), f"read_{kind}")(request), ErrorCode)
    for topics in ([], [*request.topics, *request.topics]):
        before, request.topics = request.topics, topics
        assert getattr(codec(), f"read_{kind}")(request) is ErrorCode.INVALID_REQUEST
        request.topics = before
    if kind == "fetch":
        request.topics[0].topic_id = bytes(16)
    else:
        request.topics[0].topic_name = "t"
    assert getattr(codec(), f"read_{kind}")(request) is ErrorCode.INVALID_REQUEST


def test_a_refusal_of_the_whole_request_is_an_answer() -> None:
    asked = VoteRequest(3, ReplicaKey(2), ReplicaKey(1), Position(2, 5), True)
    refused = codec().response(asked, codec().vote_response(ErrorCode.INCONSISTENT_CLUSTER_ID, 2))
    assert refused == VoteResponse(3, None, False, True, ErrorCode.INCONSISTENT_CLUSTER_ID)
    fetched = codec().response(FetchRequest(4, ReplicaKey(2), 4, 7), codec().fetch_response(ErrorCode.INVALID_REQUEST))
    assert fetched == FetchResponse(4, None, error=ErrorCode.INVALID_REQUEST)
