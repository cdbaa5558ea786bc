"""`record.validation=full`, ours, opens compressed bodies and answers as Kafka does, which always opens them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest

from headrace.wire._codec import encode_records
from headrace.wire.batch import seal_batch, unsealed
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.records import Compression, Record, compress

from .conftest import T0, Both, Side, produce_request, produce_until_taken

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC = "says-validated"
RECORDS: Final = 3
INCOMPRESSIBLE = random.Random(1).randbytes(400)
"""The same in each run: of some others Snappy reads a size beyond the limit, which has an error of its own."""


def body(deltas: tuple[int, ...] = tuple(range(RECORDS))) -> bytes:
    """Encoded records with these offset deltas."""
    records = [Record(at, T0, b"k", INCOMPRESSIBLE, [("h", b"1")]) for at in deltas]
    return bytes(encode_records(records, 0, T0))


def sealed(codec: Compression, records: bytes, count: int = RECORDS) -> bytes:
    """A batch around a body that is compressed already, its header and CRC in order."""
    batch = seal_batch(
        unsealed(records), record_count=count, last_offset_delta=count - 1, base_timestamp=T0, max_timestamp=T0,
        attributes=codec,
    )  # fmt: skip
    return bytes(batch)


def packed(codec: Compression, records: bytes, count: int = RECORDS) -> bytes:
    return sealed(codec, bytes(compress(codec, records)), count)


def cut(codec: Compression) -> bytes:
    """Half of the compressed body: the middle of a record, or of what the codec makes of it."""
    whole = bytes(compress(codec, body()))
    return sealed(codec, whole[: len(whole) // 2])


def garbage(codec: Compression) -> bytes:
    return sealed(codec, INCOMPRESSIBLE)


CASES: Final[dict[str, Callable[[Compression], bytes]]] = {
    "whole": lambda codec: packed(codec, body()),
    "header counts more": lambda codec: packed(codec, body(), RECORDS + 1),
    "header counts less": lambda codec: packed(codec, body(), RECORDS - 1),
    "offset deltas that jump": lambda codec: packed(codec, body((0, 2, 1))),
    "offset deltas from one on": lambda codec: packed(codec, body((1, 2, 3))),
    "bytes after the last record": lambda codec: packed(codec, body() + b"\0\0\0"),
    "a record longer than the body": lambda codec: packed(codec, b"\xfe\x7f" + body()[2:]),
    "a record of negative length": lambda codec: packed(codec, b"\x01" + body()[1:]),
    "the last record cut": lambda codec: packed(codec, body()[:-20]),
    "nothing inside": lambda codec: packed(codec, b""),
    "the compressed body cut": cut,
    "not the codec's bytes": garbage,
}

INVALID_RECORD, UNKNOWN_SERVER_ERROR = 87, -1
DIFFERENT: Final = {
    "offset deltas that jump": (INVALID_RECORD, UNKNOWN_SERVER_ERROR),
    "offset deltas from one on": (INVALID_RECORD, UNKNOWN_SERVER_ERROR),
    "the compressed body cut": (INVALID_RECORD, UNKNOWN_SERVER_ERROR),
    "not the codec's bytes": (INVALID_RECORD, UNKNOWN_SERVER_ERROR),
    "a record longer than the body": (INVALID_RECORD, 0),
}
"""case -> our error code and Kafka's, with every codec: Kafka does not name what it chokes on, and it takes a record's
length on trust as long as its key, value and headers end where the next record begins."""
OPENED: Final = [codec for codec in Compression if codec is not Compression.NONE]


def codes(side: Side, topic: str) -> dict[tuple[str, str], int]:
    found = {}
    for case, make in CASES.items():
        for codec in OPENED:
            answer = side.ask(produce_request(topic, make(codec)), 9)
            found[case, codec.name] = answer.responses[0].partition_responses[0].error_code
    return found


@pytest.fixture(scope="module")
def prepared(both: Both) -> Both:
    """The topic, on both; on ours with the setting that Kafka does not have."""
    for side, setting in ((both.ours, "full"), (both.kafka, None)):
        configs = [CreatableTopicConfig(name="record.validation", value=setting)] if setting else []
        topics = [CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)]
        made = side.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        assert made.topics[0].error_code == 0, made.topics[0].error_message
        produce_until_taken(side, TOPIC, packed(Compression.NONE, body()))
    return both


def test_the_same_batches_are_refused_with_the_same_codes(prepared: Both) -> None:
    ours, kafkas = codes(prepared.ours, TOPIC), codes(prepared.kafka, TOPIC)
    different = {case: (ours[case], kafkas[case]) for case in ours if ours[case] != kafkas[case]}
    assert different == {(case, codec.name): DIFFERENT[case] for case in DIFFERENT for codec in OPENED}
    assert {code for (case, _), code in ours.items() if case == "whole"} == {0}
