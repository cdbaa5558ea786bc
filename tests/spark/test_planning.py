"""Planning: timestamps as places."""

from __future__ import annotations

import json

import pytest

from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.spark.options import source_options
from headrace.spark.source import BatchReader, StreamReader

from .stand_in import batch_options, options, values


def write_at(client: Client, topic: str, count: int) -> None:
    """Record n is of second n, in the partitions by turns."""
    with Producer(client) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1000 * number)


def read(cluster: Client, topic: str, **more: str) -> list[int]:
    reader = BatchReader(batch_options(cluster, topic, **more))
    return values(reader, reader.partitions())


def by_time(topic: str, *times: int) -> str:
    return json.dumps({topic: {str(index): time for index, time in enumerate(times)}})


def test_a_batch_reads_between_two_times(cluster: Client, topic: str) -> None:
    write_at(cluster, topic, 20)
    assert read(cluster, topic, startingTimestamp="4500", endingTimestamp="9000") == [5, 6, 7, 8]
    assert read(cluster, topic, startingOffsetsByTimestamp=by_time(topic, 16_000, 18_500)) == [16, 18, 19]
    assert read(cluster, topic, endingOffsetsByTimestamp=by_time(topic, 3_000, 0)) == [0, 2]
    assert read(cluster, topic, startingTimestamp="17000", endingTimestamp="99000") == [17, 18, 19], "to the end"
    both = {"startingOffsetsByTimestamp": by_time(topic, 0, 0), "startingOffsets": "earliest"}
    assert read(cluster, topic, startingTimestamp="18000", **both) == [18, 19], "the first of the three counts"


def test_a_time_that_no_record_has_reached(cluster: Client, topic: str) -> None:
    write_at(cluster, topic, 4)
    with pytest.raises(ValueError, match="No record of topic .* partition 0 is at or after timestamp 3000"):
        read(cluster, topic, startingTimestamp="3000")
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(cluster, topic, startingTimestamp="3000", **latest) == [3]
    stream = StreamReader(options(cluster, topic, startingTimestamp="99000", **latest))
    assert stream.initialOffset()["topics"] == {topic: {"0": 2, "1": 2}}


def test_times_must_cover_what_is_read(cluster: Client, topic: str) -> None:
    with pytest.raises(ValueError, match="gives no timestamp for topic .* partition 1"):
        read(cluster, topic, startingOffsetsByTimestamp=by_time(topic, 0))
    with pytest.raises(ValueError, match="for topic .* partition 2, which this read leaves out"):
        read(cluster, topic, startingOffsetsByTimestamp=by_time(topic, 0, 0, 0))


def test_a_stream_says_nothing_about_an_end() -> None:
    with pytest.raises(ValueError, match="'endingTimestamp' is for batch reads"):
        source_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "endingTimestamp": "1"}, streaming=True)
