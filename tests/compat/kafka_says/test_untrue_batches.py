"""Uncompressed batches that are not what their headers say: refused, or put right, as Kafka does it."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from headrace.wire.batch import iter_headers, read_header, seal_batch, unsealed
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.records import Compression, compress

from .conftest import Both, Side, produce_request, produce_until_taken

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NOW: Final = int(time.time() * 1000) - 10_000
YEAR: Final = 365 * 86_400_000
LOG_APPEND_TIME_BIT: Final = 8
LONG_MAX: Final = 2**63 - 1

TOPICS: Final = {
    "says-untrue": {},
    "says-untrue-compact": {"cleanup.policy": "compact"},
    "says-untrue-append": {"message.timestamp.type": "LogAppendTime"},
    "says-untrue-bounded": {"message.timestamp.before.max.ms": "3600000"},
}


def varint(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(out) + bytes((zigzag,))


def record(delta: int, *fields: bytes, time_delta: int = 0) -> bytes:
    content = b"\0" + varint(time_delta) + varint(delta) + b"".join(fields)
    return varint(len(content)) + content


KEY, VALUE, NULL, NO_HEADERS = varint(1) + b"k", varint(1) + b"v", varint(-1), varint(0)


def good(delta: int, time_delta: int = 0) -> bytes:
    return record(delta, KEY, VALUE, NO_HEADERS, time_delta=time_delta)


def sealed(*records: bytes, base: int = NOW, largest: int = NOW, attributes: int = 0, count: int = -1) -> bytes:
    number = count if count >= 0 else len(records)
    return bytes(
        seal_batch(
            unsealed(b"".join(records)), record_count=number, last_offset_delta=number - 1, base_timestamp=base,
            max_timestamp=largest, attributes=attributes,
        )
    )  # fmt: skip


CASES: Final[dict[str, bytes]] = {
    "as it should be": sealed(good(0), good(1, 5), largest=NOW + 5),
    "a key longer than its record": sealed(good(0), record(1, varint(50) + b"k", VALUE, NO_HEADERS)),
    "a key longer than its record, that fits the batch": sealed(
        record(0, varint(12) + b"k", VALUE, NO_HEADERS), good(1)
    ),
    "a value longer than its record": sealed(good(0), record(1, KEY, varint(50) + b"v", NO_HEADERS)),
    "headers announced and not there": sealed(good(0), record(1, KEY, VALUE, varint(3))),
    "fewer than no headers": sealed(good(0), record(1, KEY, VALUE, varint(-1))),
    "a header without a name": sealed(record(0, KEY, VALUE, varint(1), NULL, NULL)),
    "a byte behind the headers": sealed(record(0, KEY, VALUE, NO_HEADERS, b"x")),
    "a record that ends after its key": sealed(record(0, KEY)),
    "a record of no bytes": sealed(good(0), varint(0)),
    "a record of negative length": sealed(good(0), varint(-1)),
    "fewer records than announced": sealed(good(0), count=2),
    "more records than announced": sealed(good(0), good(1), count=1),
    "bytes behind the last record": sealed(good(0), b"\0\0", count=1),
    "offsets that jump": sealed(good(0), good(2), good(1)),
    "a null key of length -2": sealed(record(0, varint(-2), VALUE, NO_HEADERS)),
    "a null key": sealed(record(0, NULL, VALUE, NO_HEADERS), good(1)),
    "the largest timestamp is -1": sealed(good(0), largest=-1),
    "the largest timestamp is too small": sealed(good(0), good(1, 500), good(2, 7), largest=NOW),
    "the largest timestamp is too large": sealed(good(0), largest=NOW + 5000),
    "the largest timestamp is a year ahead": sealed(good(0), largest=NOW + YEAR),
    "a record is a year ahead": sealed(good(0), good(1, YEAR)),
    "a record is a year old": sealed(good(0), good(1, -YEAR)),
    "no timestamps": sealed(good(0), base=-1, largest=-1),
    "no timestamps, but for the header": sealed(good(0), base=-1, largest=NOW),
    "timestamps below -1": sealed(good(0), base=-5, largest=-5),
    "a timestamp of more than 64 bits": sealed(good(0), good(1, 1), base=LONG_MAX),
    "a timestamp far below zero": sealed(good(0), good(1, -10), base=-LONG_MAX),
    "the bit of LogAppendTime": sealed(good(0), good(1, 9), largest=NOW + 5000, attributes=LOG_APPEND_TIME_BIT),
    "the bit and no time": sealed(good(0), largest=-1, attributes=LOG_APPEND_TIME_BIT),
    "the bit and a time a year ahead": sealed(good(0), good(1), largest=NOW + YEAR, attributes=LOG_APPEND_TIME_BIT),
    "the bit, and a null key": sealed(
        record(0, NULL, VALUE, NO_HEADERS), good(1), largest=NOW, attributes=LOG_APPEND_TIME_BIT
    ),
    "a null key and a record a year ahead": sealed(good(0, YEAR), record(1, NULL, VALUE, NO_HEADERS), good(2)),
    "a null key a year ahead": sealed(record(0, NULL, VALUE, NO_HEADERS, time_delta=YEAR), good(1)),
}

DIFFERENT: Final = {"a null key of length -2"}
"""Kafka reads every negative length as null; ours refuses what cannot be what was meant, as anywhere in a request."""

DIFFERENT_OPENED: Final = {*DIFFERENT, "offsets that jump"}
"""Kafka chokes on the latter (UNKNOWN_SERVER_ERROR) and says nothing of single records; ours is INVALID_RECORD."""


def compressed(batch: bytes) -> bytes:
    """The same batch with its records compressed."""
    header = read_header(batch)
    body = bytes(compress(Compression.LZ4, batch[61:]))
    return bytes(
        seal_batch(
            unsealed(body), record_count=header.record_count, last_offset_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp, max_timestamp=header.max_timestamp,
            attributes=header.attributes | Compression.LZ4,
        )
    )  # fmt: skip


def answers(side: Side, topic: str, batch: bytes) -> Any:
    """Error code, what is said of single records, and the header as it is stored."""
    answer = side.ask(produce_request(topic, batch), 9).responses[0].partition_responses[0]
    said = [answer.error_code, sorted(each.batch_index for each in answer.record_errors)]
    if answer.error_code:
        return said
    part = FetchPartition(partition=0, fetch_offset=answer.base_offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=10, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )  # fmt: skip
    data = bytes(side.ask(request, 11).responses[0].partitions[0].records)
    for _, header in iter_headers(data):
        if header.base_offset == answer.base_offset:
            largest = "now" if topic.endswith("append") else header.max_timestamp
            return [*said, header.attributes, largest, header.base_timestamp, header.record_count]
    raise AssertionError(f"offset {answer.base_offset} cannot be read back")


@pytest.fixture(scope="module")
def prepared(both: Both) -> Both:
    for side in (both.ours, both.kafka):
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, configs in TOPICS.items()
        ]
        made = side.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        assert [each.error_code for each in made.topics] == [0] * len(TOPICS)
        for name in TOPICS:
            produce_until_taken(side, name, CASES["as it should be"])
    return both


@pytest.mark.parametrize("topic", TOPICS)
def test_the_same_answers_and_the_same_headers(prepared: Both, topic: str) -> None:
    ours = {case: answers(prepared.ours, topic, batch) for case, batch in CASES.items()}
    kafkas = {case: answers(prepared.kafka, topic, batch) for case, batch in CASES.items()}
    different = {case: (ours[case], kafkas[case]) for case in CASES if ours[case] != kafkas[case]}
    assert different.keys() == DIFFERENT, different


@pytest.mark.parametrize("topic", ["says-untrue-compact", "says-untrue-bounded"])
def test_batches_that_have_to_be_opened(prepared: Both, topic: str) -> None:
    ours = {case: answers(prepared.ours, topic, compressed(batch)) for case, batch in CASES.items()}
    kafkas = {case: answers(prepared.kafka, topic, compressed(batch)) for case, batch in CASES.items()}
    different = {case: (ours[case], kafkas[case]) for case in CASES if ours[case] != kafkas[case]}
    assert different.keys() == DIFFERENT_OPENED, different
