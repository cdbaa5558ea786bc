"""What reaches the controllers' listener of a cluster and does not belong there: garbage, huge frames, requests of
another cluster's nodes, and requests that contradict what the quorum knows."""

from __future__ import annotations

import itertools
import random
import socket
import struct
from collections.abc import Iterator

import pytest
from broker.raw import Raw
from broker.test_cluster import controller_port, topic_of
from peers.link import Link
from peers.waiting import until

import headrace.testing
from headrace.broker.quorum.codec import Codec
from headrace.broker.quorum.voter_addresses import VoterAddresses
from headrace.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Position,
    ReplicaKey,
    Request,
    VoteRequest,
)
from headrace.raft.voter_set import VoterHistory, VoterSet
from headrace.testing import TestCluster
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages import k62_broker_registration as k62

VERSIONS = {1: 17, 52: 2, 53: 1, 54: 1, 59: 1}
"""The version of each API that the quorum speaks in."""
FRAMES = 300


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster() as running:
        yield running


_numbers = itertools.count()


@pytest.fixture(autouse=True)
def nothing_changes(three: TestCluster) -> Iterator[None]:
    """Whatever a test sends: the same node leads in the same epoch, and decides."""
    before = three.controller(), {node.call(lambda inside: inside.quorum.epoch) for node in three.nodes.values()}
    yield
    after = three.controller(), {node.call(lambda inside: inside.quorum.epoch) for node in three.nodes.values()}
    assert after == before
    name = f"after-{next(_numbers)}"
    with Link(three.nodes[1].port) as link:
        assert link.ask(topic_of(name), 7).topics[0].error_code == 0
    until(lambda: all(node.call(lambda b: b.image.topics.by_name(name)) is not None for node in three.nodes.values()))
    for node in three.nodes.values():
        assert node.call(lambda inside: inside.node.defects.count) == 0


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",  # a size of -1
        b"\x80\x00\x00\x00",
        b"\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff" + bytes(100),  # two gigabytes are to come
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # the beginning of TLS
        sized(b""),
        sized(b"\x00"),
        sized(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff"),  # no such API
        sized(b"\x00\x34\x7f\xff\x00\x00\x00\x01\xff\xff\x00"),  # no such version of Vote
        *(sized(struct.pack(">hhihb", key, version, 1, -1, 0) + b"\xfe" * 40) for key, version in VERSIONS.items()),
        sized(struct.pack(">hhihb", 52, 2, 1, -1, 0) + b"\x00\xff\xff\xff\xff\x0f" * 20),  # huge lengths
    ],
)
def test_garbage_ends_its_own_connection(three: TestCluster, data: bytes) -> None:
    for node in three.nodes:
        with socket.create_connection(("127.0.0.1", controller_port(three, node)), timeout=60) as stranger:
            stranger.sendall(data)
            assert stranger.recv(1) == b""


def test_a_large_frame_that_never_ends_costs_no_memory(three: TestCluster) -> None:
    port = controller_port(three, three.controller())
    held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(20)]
    for each in held:
        each.sendall(struct.pack(">i", 100 * 1024 * 1024) + bytes(1000))
    with Link(port) as link:
        assert link.ask(topic_of("beside"), 7).topics[0].error_code == 0
    for each in held:
        each.close()


def messages(epoch: int, sender: int, addressed: int, offset: int, last_epoch: int) -> list[Request]:
    me, them = ReplicaKey(sender), ReplicaKey(addressed)
    return [
        VoteRequest(epoch, me, them, Position(last_epoch, offset), False),
        VoteRequest(epoch, me, them, Position(last_epoch, offset), True),
        BeginQuorumEpochRequest(epoch, sender, them),
        EndQuorumEpochRequest(epoch, sender, (them,)),
        FetchRequest(epoch, me, last_epoch, offset),
        FetchSnapshotRequest(epoch, me, Position(last_epoch, offset), 0, 1000),
    ]


def codec_of_another_cluster(node: int) -> Codec:
    sets = VoterHistory(VoterSet((), kraft_version=0))
    return Codec("YW5vdGhlci1jbHVzdGVyLg", ReplicaKey(node), VoterAddresses(ReplicaKey(node), sets, ()), sets)


def test_nodes_of_another_cluster_have_no_say(three: TestCluster) -> None:
    leader = three.controller()
    epoch = three.nodes[leader].call(lambda inside: inside.quorum.epoch)
    for node in three.nodes:
        other = next(id_ for id_ in three.nodes if id_ != node)
        codec = codec_of_another_cluster(other)
        with Link(controller_port(three, node)) as link:
            for message in messages(epoch + 5, other, node, 1_000_000, epoch + 4):
                request, _ = codec.request(message)
                answer = link.ask(request, VERSIONS[request.API_KEY])
                assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID, type(message).__name__
    with Link(controller_port(three, leader)) as link:
        registration = k62.BrokerRegistrationRequest(broker_id=9, cluster_id="YW5vdGhlci1jbHVzdGVyLg")
        assert link.ask(registration, 4).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_requests_that_contradict_the_quorum_are_refused(three: TestCluster) -> None:
    """Of this cluster, well formed, in epochs up to this one, from any id, about any offset."""
    rng = random.Random(1)
    leader = three.controller()
    epoch = three.nodes[leader].call(lambda inside: inside.quorum.epoch)
    links = {node: Link(controller_port(three, node)) for node in three.nodes}
    codec = three.nodes[leader].inside.quorum.codec
    for _ in range(FRAMES):
        node = rng.choice(list(three.nodes))
        sender = rng.choice((-1, 0, 9, 1 << 30))  # a voter's id would be believed
        offset = rng.choice((-1, 0, 1, 7, 1 << 40, (1 << 63) - 1, -(1 << 63)))
        said = rng.choice(messages(rng.choice((-1, 0, epoch - 1, epoch)), sender, node, offset, rng.choice((-1, 0, 1))))
        request, _ = codec.request(said)
        try:
            links[node].ask(request, VERSIONS[request.API_KEY])
        except ConnectionError:
            links[node] = Link(controller_port(three, node))
    for link in links.values():
        link.socket.close()


def test_an_epoch_has_one_leader_whoever_else_claims_it(three: TestCluster) -> None:
    leader = three.controller()
    epoch = three.nodes[leader].call(lambda inside: inside.quorum.epoch)
    for node in three.nodes:
        claims = next(id_ for id_ in three.nodes if id_ not in (node, leader))
        codec = three.nodes[node].inside.quorum.codec
        with Link(controller_port(three, node)) as link:
            request, _ = codec.request(BeginQuorumEpochRequest(epoch, claims, ReplicaKey(node)))
            answer = link.ask(request, VERSIONS[request.API_KEY])
            assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
            assert answer.topics[0].partitions[0].leader_id == leader


def test_mutated_requests_of_nodes_end_in_answers_or_closed_connections(three: TestCluster) -> None:
    rng = random.Random(2)
    leader = three.controller()
    codec = codec_of_another_cluster(9)
    for _ in range(FRAMES):
        request, _ = codec.request(rng.choice(messages(1, 9, leader, 5, 1)))
        frame = bytearray(encode_request(RequestHeader(request.API_KEY, VERSIONS[request.API_KEY], 1, "x"), request))
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(8, len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        with Raw(controller_port(three, leader), timeout_s=60) as raw:
            raw.socket.sendall(frame)
            raw.socket.shutdown(socket.SHUT_WR)
            while raw.socket.recv(4096):
                pass
