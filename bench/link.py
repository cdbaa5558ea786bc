"""One blocking connection to a broker, for setting benchmarks up: topics, leaders, offsets."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Any, Self

from headrace.wire.frame import RequestHeader, decode_response_header, encode_request
from headrace.wire.messages import response_class
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

PRODUCE_VERSION = 9
FETCH_VERSION = 12
VERSIONS = {1: FETCH_VERSION, 2: 7, 3: 12, 10: 4, 19: 7, 20: 6, 22: 5, 30: 3, 49: 1, 51: 0}
LEADER_PATIENCE_S = 60.0
ALREADY_THERE = 36


class Link:
    """Asks one request at a time. Raises OSError when the connection goes, AssertionError on an error code."""

    def __init__(self, port: int, timeout_s: float = 120.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, request: Any) -> Any:
        """The decoded answer."""
        key = request.API_KEY
        version = VERSIONS[key]
        self.socket.sendall(encode_request(RequestHeader(key, version, 1, "bench"), request))
        frame = self.receive(int.from_bytes(self.receive(4), "big"))
        _, body_at = decode_response_header(frame, key, version)
        return response_class(key).decode(frame, version, body_at)

    def receive(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        data = bytearray(size)
        view = memoryview(data)
        at = 0
        while at < size:
            got = self.socket.recv_into(view[at:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            at += got
        return bytes(data)

    def create_topic(self, name: str, partitions: int = 1, *, replicas: int = 1, **configs: str) -> None:
        """Make a topic and wait until each partition has a leader; `retention_ms="5"` sets `retention.ms`."""
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in sorted(configs.items())
        ]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        code = answer.topics[0].error_code
        assert code in (0, ALREADY_THERE), f"{name}: error {code} {answer.topics[0].error_message}"
        self.wait_for_leaders(name, partitions)

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        """Until every partition has a leader."""
        deadline = time.monotonic() + LEADER_PATIENCE_S
        while self.leaders(name) < partitions:
            assert time.monotonic() < deadline, f"{name}: no leaders after {LEADER_PATIENCE_S} s"
            time.sleep(0.005)

    def leaders(self, name: str) -> int:
        """How many partitions of a topic have a leader."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        topics = self.ask(request).topics
        return sum(part.error_code == 0 and part.leader_id >= 0 for topic in topics for part in topic.partitions)

    def delete_topic(self, name: str) -> None:
        self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000))

    def end_offset(self, name: str, partition: int = 0) -> int:
        """The high watermark; -1 while the partition does not answer."""
        return self.end_offsets(name, [partition])[partition]

    def end_offsets(self, name: str, partitions: list[int]) -> dict[int, int]:
        """The high watermark of each of these partitions (at least one); -1 where it does not answer."""
        wanted = [ListOffsetsPartition(each, current_leader_epoch=-1, timestamp=-1) for each in partitions]
        answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)]))
        parts = answer.topics[0].partitions
        return {part.partition_index: part.offset if part.error_code == 0 else -1 for part in parts}


def topic_id_of(port: int, name: str) -> bytes:
    """The id of a topic. Raises AssertionError where there is none of that name."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    with Link(port) as link:
        topic = link.ask(request).topics[0]
    assert topic.error_code == 0, f"{name}: error {topic.error_code}"
    return bytes(topic.topic_id)
