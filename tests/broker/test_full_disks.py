"""One node's disk is full for records: what it leads refuses them until there is room, the others go on without what it
follows, and it catches up."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence

import pytest
from broker.raw import Raw, batch, produce
from broker.test_wrong_nodes import all_in_sync, log_of, make, read, write
from peers.link import Link
from peers.waiting import until

import headrace.testing
from headrace.env.posix import PosixDisk, PosixFile
from headrace.testing import TestCluster
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k55_describe_quorum as k55
from headrace.wire.primitives import Buffer


class Room:
    """Which directories have none: nothing grows under a path that begins so."""

    def __init__(self) -> None:
        self.none_under = ""

    def look(self, path: str) -> None:
        if self.none_under and path.startswith(self.none_under):
            raise OSError(errno.ENOSPC, "No space left on device", path)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    found = Room()
    append, write_atomically, write_file = PosixFile.append, PosixDisk.write_file_atomically, PosixDisk.write_file

    def appends(file: PosixFile, parts: Sequence[Buffer]) -> int:
        found.look(file.path)
        return append(file, parts)

    def writes_atomically(disk: PosixDisk, path: str, data: bytes) -> None:
        found.look(path)
        write_atomically(disk, path, data)

    def writes(disk: PosixDisk, path: str, data: bytes) -> None:
        found.look(path)
        write_file(disk, path, data)

    monkeypatch.setattr(PosixFile, "append", appends)
    monkeypatch.setattr(PosixDisk, "write_file_atomically", writes_atomically)
    monkeypatch.setattr(PosixDisk, "write_file", writes)
    return found


@pytest.fixture
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster(settings={"replica.lag.time.max.ms": "1500"}) as running:
        yield running


def without(cluster: TestCluster, topic: str, node: int) -> bool:
    """Whether a node is out of sync, as the controller knows."""
    known = cluster.nodes[cluster.controller()].call(lambda inside: inside.image.topics.partition(topic, 0))
    return known is not None and node not in known.isr


def equal_logs(cluster: TestCluster, topic: str) -> bool:
    return len({log_of(cluster, node, topic) for node in cluster.nodes}) == 1


@pytest.mark.slow
def test_a_follower_without_room_leaves_the_others_alone_and_catches_up(three: TestCluster, room: Room) -> None:
    make(three, "t")
    write(three, "t", b"before")
    full = next(node for node in three.nodes if node != three.leader("t", 0))
    room.none_under = f"{three.nodes[full].data}/t-"
    write(three, "t", b"without it")  # acknowledged when it has left those in sync
    assert without(three, "t", full)
    assert b"without it" not in log_of(three, full, "t")
    room.none_under = ""
    until(lambda: all_in_sync(three, "t"))
    write(three, "t", b"after")
    until(lambda: equal_logs(three, "t"))
    until(lambda: read(three, "t") == [b"before", b"without it", b"after"])


def test_a_leader_without_room_refuses_until_there_is_some(three: TestCluster, room: Room) -> None:
    make(three, "t")
    write(three, "t", b"before")
    full = three.leader("t", 0)
    room.none_under = f"{three.nodes[full].data}/t-"
    with Raw(three.nodes[full].port, timeout_s=60) as raw:
        for _ in range(3):
            said = raw.ask(produce("t", batch(b"refused")), 9).responses[0].partition_responses[0]
            assert said.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        room.none_under = ""
        assert raw.ask(produce("t", batch(b"after")), 9).responses[0].partition_responses[0].error_code == 0
    until(lambda: all_in_sync(three, "t") and equal_logs(three, "t"))
    until(lambda: read(three, "t") == [b"before", b"after"])


def test_a_node_that_hears_of_no_election_finds_the_controller(three: TestCluster, room: Room) -> None:
    """Its metadata log cannot be written, so it takes no part in the quorum; what others decide it still hands on."""
    full = three.controller()
    asked = k55.DescribeQuorumRequest(
        topics=[k55.TopicData(topic_name="__cluster_metadata", partitions=[k55.PartitionData()])]
    )
    room.none_under = f"{three.nodes[full].data}/__cluster_metadata"
    with Link(three.nodes[full].port) as link:
        until(lambda: three.nodes[full].call(lambda inside: inside.quorum.waits_for_room))
        began = time.monotonic()
        said = link.ask(asked, 2).topics[0].partitions[0]
        assert time.monotonic() - began < 15, "it is found long before anybody gives up looking for it"
    assert said.error_code == ErrorCode.NONE and said.leader_id not in (-1, full)
    room.none_under = ""
    until(lambda: not three.nodes[full].call(lambda inside: inside.quorum.waits_for_room))
