"""Compressed bodies in every framing: brokers that open them store what Kafka's own reader reads, and nothing else."""

from __future__ import annotations

from typing import Final

import pytest
from peers.kafka import kafka_tool
from wire import framings
from wire.framings_read import READ

from headrace.wire.batch import seal_batch, unsealed
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.records import Compression

from .conftest import Both, Side, produce_request, produce_until_taken

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC: Final = "says-framings"
FOREVER: Final = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(1 << 50)}


def sealed(codec: Compression, body: bytes) -> bytes:
    count = len(framings.RECORDS)
    when = framings.RECORDS[0].timestamp
    return bytes(
        seal_batch(
            unsealed(body), record_count=count, last_offset_delta=count - 1, base_timestamp=when, max_timestamp=when,
            attributes=codec,
        )
    )  # fmt: skip


def taken(side: Side) -> dict[tuple[Compression, str], bool]:
    """Which of the bodies a compacted topic takes; the rest must be refused as corrupt or invalid."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in FOREVER.items()]
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
    assert side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code == 0
    produce_until_taken(side, TOPIC, sealed(Compression.NONE, framings.PLAIN))
    said = {}
    for row, body in framings.rows().items():
        answer = side.ask(produce_request(TOPIC, sealed(row[0], body)), 9)
        said[row] = answer.responses[0].partition_responses[0].error_code == 0
    return said


def test_what_is_stored_is_what_kafka_reads(both: Both) -> None:
    theirs, mine = taken(both.kafka), taken(both.ours)
    assert [row for row in theirs if theirs[row] != (row in READ)] == [], "the table of the unit tests"
    assert [row for row in mine if mine[row] != theirs[row]] == []
    count = (1 + sum(mine.values())) * len(framings.RECORDS)
    arguments = ("--bootstrap-server", both.ours.peer.bootstrap, "--topic", TOPIC, "--from-beginning")
    bounds = ("--max-messages", str(count), "--timeout-ms", "30000")
    read = kafka_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, *bounds)
    assert len(read.stdout.splitlines()) == count
