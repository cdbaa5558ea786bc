"""A Metadata response that is encoded in pieces is the one that is encoded at once."""

from __future__ import annotations

import pytest

from headrace.wire.frame import encode_response, encode_response_parts
from headrace.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.metadata_pieces import PiecewiseMetadata


def topics(count: int, version: int) -> list[MetadataResponseTopic]:
    return [
        MetadataResponseTopic(
            name=f"t{number}",
            topic_id=bytes(15) + b"\1" if version >= 10 else bytes(16),
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1])
                for index in range(number % 3)
            ],
        )
        for number in range(count)
    ]


VERSIONS = range(14)
LARGE = (16_384, 1)
"""A count of three bytes; where counts have four bytes it makes no difference."""
COMPACT_SINCE = 9


@pytest.mark.parametrize(
    ("version", "sizes"),
    [
        *((version, sizes) for version in VERSIONS for sizes in [(), (1,), (0, 2), (126, 1), (127,), (128, 1)]),
        *(
            pytest.param(version, LARGE, marks=[] if version in (0, COMPACT_SINCE) else pytest.mark.slow)
            for version in VERSIONS
        ),
    ],
    ids=str,
)
def test_its_bytes_are_the_same(version: int, sizes: tuple[int, ...]) -> None:
    rest = MetadataResponse(
        throttle_time_ms=0,
        brokers=[MetadataResponseBroker(node_id=1, host="host", port=9092, rack="r" if version else None)],
        cluster_id="cluster" if version >= 2 else None,
        controller_id=1 if version >= 1 else -1,
    )
    if 8 <= version <= 10:
        rest.cluster_authorized_operations = 7
    made = PiecewiseMetadata(rest, version)
    whole = topics(sum(sizes), version)
    at = 0
    for size in sizes:
        made.add(whole[at : at + size])
        at += size
    found = b"".join(bytes(part) for part in encode_response_parts(3, version, 5, made))  # type: ignore[arg-type]
    rest.topics = whole
    assert found == encode_response(3, version, 5, rest)
