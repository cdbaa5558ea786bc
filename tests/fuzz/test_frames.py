"""Mutated frames at a running broker: whatever arrives, it answers or closes that connection, and serves everyone else.

`--fuzz-frames` says how many; `make fuzz` sends a million.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.broker.requests.apis import SERVED
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import APIS
from headrace.wire.frame import RequestHeader, decode_request_header, encode_request
from headrace.wire.messages import request_class
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.primitives import DecodeError

FRAMES_PER_CONNECTION = 20
VALIDATED_ONLY = {19, 37}
"""CreateTopics and CreatePartitions: a mutated count would make thousands of real directories, so what a broker could
carry out asks for validation alone."""


def seeds() -> list[bytes]:
    """A frame of every served API in every version, and some with something in them."""
    frames = []
    for key in sorted(SERVED):
        for version in range(APIS[key].min_version, APIS[key].max_version + 1):
            request = request_class(key)()
            if key in VALIDATED_ONLY:
                frames.append(encode_request(RequestHeader(key, version, 1, "fuzz"), new_partitions(key)))
                request.validate_only = True
            frames.append(encode_request(RequestHeader(key, version, 1, "fuzz"), request))
    for version in (9, 10, 12):
        frames += [encode_request(RequestHeader(0, version, 1, "fuzz"), produce("fuzzed", batch(b"a", b"b")))] * 10
        frames.append(encode_request(RequestHeader(1, 11, 1, "fuzz"), fetch("fuzzed", 0)))
    return frames


def new_partitions(key: int) -> Any:
    """A request that makes partitions, with something in each of its fields, if it were carried out."""
    if key == 37:
        more = CreatePartitionsTopic(name="fuzzed", count=3, assignments=[CreatePartitionsAssignment(broker_ids=[1])])
        return CreatePartitionsRequest(topics=[more], validate_only=True)
    placed = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    configs = [CreatableTopicConfig(name="retention.ms", value="1")]
    topics = [
        CreatableTopic(name="made", num_partitions=-1, replication_factor=-1, assignments=placed),
        CreatableTopic(name="made-too", num_partitions=2, replication_factor=1, configs=configs),
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)


def harmless(data: bytes) -> bytes:
    """The frame, but for `validate_only` where a mutation took that away and the rest can be read."""
    try:
        header, at = decode_request_header(data)
        request = request_class(header.api_key).decode(data, header.api_version, at)
    except DecodeError:
        return data  # the broker cannot read it either
    if request.validate_only:
        return data
    request.validate_only = True
    return encode_request(header, request)[4:]


def mutated(rng: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame[4:])
    for _ in range(rng.randrange(1, 6)):
        kind = rng.randrange(5)
        at = rng.randrange(len(data)) if data else 0
        if kind == 0 and data:
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 2:
            del data[at : at + rng.randrange(1, 9)]
        elif kind == 3 and len(data) >= 4:
            struct.pack_into(">i", data, min(at, len(data) - 4), rng.choice((-1, -2, 2**31 - 1, 70_000, 0)))
        else:
            data[at : at + 2] = rng.choice((b"\xff\xff", b"\x7f\xff", b"\x80\x80"))
    if len(data) >= 2 and struct.unpack_from(">h", data)[0] in VALIDATED_ONLY:
        data = bytearray(harmless(bytes(data)))
        return struct.pack(">i", len(data)) + bytes(data)  # a longer size could complete it with what comes next
    size = len(data) if rng.random() < 0.95 else rng.choice((0, 3, len(data) + 5, -7, 2**31 - 1))
    return struct.pack(">i", size) + bytes(data)


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker({"auto.create.topics.enable": "false"}) as running:
        create_topic(running.port, "fuzzed")
        yield running


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_mutated_frames(served: TestBroker, request: pytest.FixtureRequest) -> None:
    rng = random.Random(20261121)
    frames = seeds()
    count = request.config.getoption("--fuzz-frames")
    sent = 0
    while sent < count:
        chosen = [mutated(rng, rng.choice(frames)) for _ in range(FRAMES_PER_CONNECTION)]
        sent += len(chosen)
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
            try:
                connection.sendall(b"".join(chosen))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass  # closed in the middle: an answer too
        if sent % 2000 < FRAMES_PER_CONNECTION:
            assert_it_serves(served)
    assert_it_serves(served)
    topics = served.call(lambda broker: broker.image.topics)
    made = {topic.name: len(topic.partitions) for topic in topics if not topic.is_internal}
    assert made == {"fuzzed": 1}, "validated and not made"


def assert_it_serves(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        assert raw.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).error_code == 0
        answer = raw.ask(produce("fuzzed", batch(b"whole")), 9).responses[0].partition_responses[0]
        assert answer.error_code == 0
    statistics = served.call(lambda broker: broker.metrics.statistics())
    assert statistics.gauges["requests.bytes_held"] < 1 << 20
