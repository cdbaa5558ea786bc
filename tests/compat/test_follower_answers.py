"""What a leader and a follower answer a consumer at every kind of offset, byte for byte as Apache Kafka's answer.

Of three nodes that are all in sync one is held up: so the high watermark stands, and the log ends behind it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers.cluster import HeadraceCluster
from peers.link import Link
from peers.waiting import until

from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, encode_request
from headrace.wire.messages import k00_produce as k00
from headrace.wire.messages import k01_fetch as k01
from headrace.wire.messages import k02_list_offsets as k02
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.records import Record, build_batch

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]

LEADER, FOLLOWER, HELD_UP = 1, 2, 3
NAME = "t"
COMMITTED, END = 4, 9
"""The high watermark, and where the log ends at the leader and the follower."""
OFFSETS = {"start": 0, "committed": 2, "high watermark": COMMITTED, "behind it": 6, "end": END, "past the end": END + 1,
           "far past": 1 << 40, "none": -1}  # fmt: skip
VERSIONS = (4, 10, 11, 12, 13, 16, 18)
EPOCHS = (-1, 0, 1)
PATIENCE_S = 60.0
SETTINGS = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "120000"}
"""The node that is held up stays in sync."""
NOT_YET_LED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
TIMESTAMP_MS = 1_700_000_000_000


def batch(first: int, end: int) -> bytes:
    return bytes(build_batch([Record(first + at, TIMESTAMP_MS, None, b"v", []) for at in range(end - first)]))


class Three:
    """The nodes, and the topic's id."""

    def __init__(self, cluster: HeadraceCluster) -> None:
        self.cluster = cluster
        self.links = {node: Link(cluster.ports[node][0]) for node in (LEADER, FOLLOWER)}
        assigned = k19.CreatableReplicaAssignment(partition_index=0, broker_ids=[LEADER, FOLLOWER, HELD_UP])
        topic = k19.CreatableTopic(name=NAME, num_partitions=-1, replication_factor=-1, assignments=[assigned])
        (made,) = self.links[LEADER].ask(k19.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics
        assert made.error_code == 0, made
        self.topic_id: bytes = made.topic_id

    def frame(self, offset: int, version: int, epoch: int = -1, isolation: int = 0) -> bytes:
        """A fetch of the partition that does not wait."""
        partition = k01.FetchPartition(
            partition=0, current_leader_epoch=epoch if version >= 9 else -1, fetch_offset=offset,
            partition_max_bytes=1 << 20,
        )  # fmt: skip
        topic = k01.FetchTopic(topic=NAME, topic_id=self.topic_id, partitions=[partition])
        request = k01.FetchRequest(min_bytes=1, max_bytes=1 << 20, isolation_level=isolation, topics=[topic])
        return bytes(encode_request(RequestHeader(k01.FetchRequest.API_KEY, version, 7, "test"), request))

    def answer(self, node: int, frame: bytes) -> bytes:
        """What a node says, without what is another's in every cluster."""
        said = self.links[node].ask_bytes(frame).replace(self.topic_id, b"\0" * 16)
        for port, _ in self.cluster.ports.values():
            said = said.replace(port.to_bytes(4, "big"), b"port")
        return said

    def until_it_has(self, end: int) -> None:
        """Returns when the follower has records up to `end`, and knows that those before COMMITTED are."""
        last = time.monotonic() + PATIENCE_S
        partition = k01.FetchPartition(partition=0, fetch_offset=end, partition_max_bytes=1 << 20)
        request = k01.FetchRequest(max_bytes=1 << 20, topics=[k01.FetchTopic(topic=NAME, partitions=[partition])])
        while True:
            said = self.links[FOLLOWER].ask(request, 12).responses[0].partitions[0]
            if (said.error_code, said.high_watermark) == (0, COMMITTED):
                return
            assert time.monotonic() < last, said
            time.sleep(0.02)

    def write(self, first: int, end: int, acks: int) -> None:
        data = k00.PartitionProduceData(index=0, records=batch(first, end))
        topic = k00.TopicProduceData(name=NAME, partition_data=[data])
        request = k00.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
        last = time.monotonic() + PATIENCE_S
        while True:
            said = self.links[LEADER].ask(request, 9).responses[0].partition_responses[0]
            if said.error_code == 0:
                return
            assert said.error_code in NOT_YET_LED and time.monotonic() < last, said
            time.sleep(0.02)


@contextmanager
def held_up(cluster: HeadraceCluster) -> Iterator[Three]:
    """A cluster whose partition has records that are not known to be committed."""
    with cluster:
        with Link(cluster.ports[LEADER][0]) as link:
            until(lambda: len(link.ask(MetadataRequest(topics=[]), 12).brokers) == 3, "three brokers")
        three = Three(cluster)
        three.write(0, COMMITTED, -1)
        three.until_it_has(COMMITTED)
        os.kill(cluster.nodes[HELD_UP].pid, signal.SIGSTOP)
        try:
            three.write(COMMITTED, END, 1)
            three.until_it_has(END)
            yield three
        finally:
            os.kill(cluster.nodes[HELD_UP].pid, signal.SIGCONT)


def answers(three: Three) -> dict[tuple[str | int, ...], bytes]:
    """By who is asked, version, isolation, epoch and offset."""
    said: dict[tuple[str | int, ...], bytes] = {}
    for node in (LEADER, FOLLOWER):
        for version in VERSIONS:
            for isolation in (0, 1):
                for epoch in EPOCHS if version >= 9 else (-1,):
                    for place, offset in OFFSETS.items():
                        frame = three.frame(offset, version, epoch, isolation)
                        said[node, version, isolation, epoch, place] = three.answer(node, frame)
        for at in (-1, -2, -3):
            asked = k02.ListOffsetsPartition(partition_index=0, timestamp=at)
            request = k02.ListOffsetsRequest(topics=[k02.ListOffsetsTopic(name=NAME, partitions=[asked])])
            frame = bytes(encode_request(RequestHeader(k02.ListOffsetsRequest.API_KEY, 7, 7, "test"), request))
            said[node, "ends", at] = three.answer(node, frame)
    return said


@pytest.mark.soak
def test_fetches_between_the_high_watermark_and_the_end_of_the_log(tmp_path: Path) -> None:
    with held_up(HeadraceCluster(tmp_path / "ours", SETTINGS)) as three:
        ours = answers(three)
    with held_up(HeadraceCluster(tmp_path / "kafkas", SETTINGS, kafkas=(1, 2, 3))) as three:
        kafkas = answers(three)
    different = [f"{asked}\n ours {ours[asked].hex()}\nkafka {kafkas[asked].hex()}" for asked in ours
                 if ours[asked] != kafkas[asked]]  # fmt: skip
    assert not different, f"{len(different)} of {len(ours)}:\n" + "\n".join(different)
