"""The same requests to both brokers, and their answers as plain values, so that they can be compared field by field."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.link import Link
from peers.settling import WRITES, settle_peer

from headrace.wire.messages import request_class
from headrace.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.records import Record, build_batch

# What differs between any two brokers, whatever they are: where they listen, what they drew, what time it is; and the
# sentences that go with error codes, which are our own. What stands there without an error is compared.
NEVER_COMPARED = frozenset(
    {
        "host", "port", "cluster_id", "topic_id", "error_message", "member_id", "leader", "producer_id", "session_id",
        "node_endpoints", "log_append_time_ms", "documentation", "broker_epoch", "records",
    }
)  # fmt: skip

PLAIN, COMPACT, EMPTY = "says-plain", "says-compact", "says-empty"
T0 = 1_700_000_000_000
LEADER_PATIENCE_S = 30.0
ANSWER_PATIENCE_S = 30.0
IDLE_S = 120.0
"""Both brokers close connections that nobody uses for ten minutes, as other tests may take: then there is a new one. So
there is after a broker that died was started again."""


class Side:
    """One broker under comparison."""

    def __init__(self, peer: HeadracePeer | KafkaPeer) -> None:
        self.peer = peer
        self.port = peer.port
        self.pid = peer.pid
        self.link = Link(self.port, ANSWER_PATIENCE_S)
        self.used = time.monotonic()
        self.versions = {
            each.api_key: (each.min_version, each.max_version)
            for each in self.link.ask(ApiVersionsRequest(), 0).api_keys
        }
        self.topic_ids: dict[str, bytes] = {}

    def ask(self, request: Any, version: int) -> Any:
        """The answer; or "closed", which is an answer too. What was written is in force by then. Raises TimeoutError
        with the question."""
        if time.monotonic() - self.used > IDLE_S or self.pid != self.peer.pid:
            self.link = Link(self.port, ANSWER_PATIENCE_S)
            self.pid = self.peer.pid
        self.used = time.monotonic()
        try:
            answer = self.link.ask(request, version)
        except ConnectionError:
            self.link = Link(self.port, ANSWER_PATIENCE_S)
            return "closed"
        except TimeoutError:
            self.link = Link(self.port, ANSWER_PATIENCE_S)
            raise TimeoutError(f"no answer from port {self.port} to version {version} of {request}") from None
        if request.API_KEY in WRITES:
            settle_peer(self.peer)
        return answer


@dataclass
class Both:
    """The two sides, prepared alike."""

    ours: Side
    kafka: Side

    def versions(self, key: int) -> range:
        """The versions of an API that both serve, and that we can encode."""
        declared = request_class(key)
        low = max(self.ours.versions[key][0], self.kafka.versions[key][0], declared.MIN_VERSION)
        return range(low, min(self.ours.versions[key][1], self.kafka.versions[key][1]) + 1)

    def compare(
        self, key: int, script: Callable[[Side, int, str], Iterator[Any]], ignore: frozenset[str] = frozenset()
    ) -> None:
        """Run `script(side, version, unused name)` on both in every version; what it yields must be equal."""
        versions = self.versions(key)
        assert len(versions) > 0, f"API {key} is not served"
        different: list[str] = []
        for version in versions:
            name = f"says-{key}-{version}-{next(_numbers)}"
            ours = [plain(each, ignore) for each in script(self.ours, version, name)]
            kafkas = [plain(each, ignore) for each in script(self.kafka, version, name)]
            for step, (mine, theirs) in enumerate(itertools.zip_longest(ours, kafkas)):
                if mine != theirs:
                    different.append(f"version {version}, answer {step}: {first_difference(mine, theirs)}")
        assert not different, "\n".join(different[:20])


_numbers = itertools.count(1)


def plain(value: Any, ignore: frozenset[str]) -> Any:
    """Dictionaries, lists and scalars, without the fields that are not compared."""
    if isinstance(value, list):
        return [plain(each, ignore) for each in value]
    if hasattr(type(value), "__match_args__") and not isinstance(value, (str, bytes, tuple)):
        fields = value.__match_args__
        without_error = "error_message" in fields and getattr(value, "error_code", None) == 0
        return {
            field: plain(getattr(value, field), ignore)
            for field in fields
            if field not in ignore and (field not in NEVER_COMPARED or (without_error and field == "error_message"))
        }
    return bytes(value) if isinstance(value, memoryview) else value


def first_difference(mine: Any, theirs: Any, path: str = "") -> str:
    """Where two plain values part."""
    if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() == theirs.keys():
        for key in mine:
            if mine[key] != theirs[key]:
                return first_difference(mine[key], theirs[key], f"{path}.{key}")
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for at, (one, other) in enumerate(zip(mine, theirs)):
            if one != other:
                return first_difference(one, other, f"{path}[{at}]")
    return f"{path or 'the answer'}: ours {mine!r}, Kafka's {theirs!r}"


def batch(number: int, keys: bool = True) -> bytes:
    """Two records at times of their own."""
    return bytes(
        build_batch(
            [
                Record(at, T0 + number * 1000 + at, b"key" if keys else None, b"value-%d-%d" % (number, at), [])
                for at in range(2)
            ]
        )
    )


def produce_request(topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """A Produce request by name, for versions below 13."""
    part = PartitionProduceData(index=partition, records=None if data is None else memoryview(data))
    topics = [TopicProduceData(name=topic, partition_data=[part])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def prepare(side: Side) -> None:
    """The topics that the comparisons are about."""
    forever = CreatableTopicConfig(name="retention.ms", value="-1")
    compacted = CreatableTopicConfig(name="cleanup.policy", value="compact")
    topics = [
        CreatableTopic(name=PLAIN, num_partitions=2, replication_factor=1, configs=[forever]),
        CreatableTopic(name=COMPACT, num_partitions=1, replication_factor=1, configs=[compacted]),
        CreatableTopic(name=EMPTY, num_partitions=1, replication_factor=1),
    ]
    made = side.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    assert [topic.error_code for topic in made.topics] == [0, 0, 0]
    for topic in made.topics:
        side.topic_ids[topic.name] = topic.topic_id
    for topic in (PLAIN, COMPACT):
        for number in range(3):
            produce_until_taken(side, topic, batch(number))


def produce_until_taken(side: Side, topic: str, data: bytes) -> None:
    """Metadata may name a leader before it leads."""
    deadline = time.monotonic() + LEADER_PATIENCE_S
    while True:
        code = side.ask(produce_request(topic, data), 9).responses[0].partition_responses[0].error_code
        if code == 0:
            return
        assert time.monotonic() < deadline, f"{topic}: error {code}"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def both(ours: HeadracePeer | KafkaPeer, kafka: KafkaPeer) -> Iterator[Both]:
    pair = Both(Side(ours), Side(kafka))
    prepare(pair.ours)
    prepare(pair.kafka)
    yield pair
    pair.ours.link.socket.close()
    pair.kafka.link.socket.close()
