"""Planning: timestamps as places, and how ranges become tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.spark.client_settings import ClusterSettings
from headrace.spark.options import SourceOptions, Subscription, source_options
from headrace.spark.planning import SPLITS_MAX, Range, split, tasks_of
from headrace.spark.source import BatchReader, StreamReader

from .stand_in import options, values

PLAIN = SourceOptions(ClusterSettings("h:1"), Subscription(topics=("t",)), "earliest")


def write_at(client: Client, topic: str, count: int) -> None:
    """Record n is of second n, in the partitions by turns."""
    with Producer(client) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1000 * number)


def read(cluster: Client, topic: str, **more: str) -> list[int]:
    reader = BatchReader(options(cluster, topic, streaming=False, **more))
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
    with pytest.raises(ValueError, match="name no timestamp for topic .* partition 1"):
        read(cluster, topic, startingOffsetsByTimestamp=by_time(topic, 0))
    with pytest.raises(ValueError, match="name topic .* partition 2, which is not read"):
        read(cluster, topic, startingOffsetsByTimestamp=by_time(topic, 0, 0, 0))


@pytest.mark.parametrize(
    ("more", "sizes"),
    [
        ({}, [1000]),
        ({"maxRecordsPerPartition": "150"}, [125] * 8),
        ({"minPartitions": "4"}, [250] * 4),
        ({"minPartitions": "3", "maxRecordsPerPartition": "250"}, [250] * 4),
        ({"minPartitions": "100000"}, [1] * 1000),
    ],
)
def test_tasks_are_as_many_and_as_large_as_asked(
    cluster: Client, topic: str, more: dict[str, str], sizes: list[int]
) -> None:
    with Producer(cluster) as producer:
        for number in range(1000):
            producer.send(topic, b"%d" % number, partition=number % 2)
    reader = BatchReader(options(cluster, topic, streaming=False, **more))
    tasks: Any = reader.partitions()
    assert [sum(part.end - part.start for part in task.ranges) for task in tasks] == sizes
    if len(tasks) < 100:
        assert values(reader, tasks) == list(range(1000))


RANGES = st.lists(st.integers(1, 3000), max_size=10).map(
    lambda sizes: [Range("t", index, 7, 7 + size) for index, size in enumerate(sizes)]
)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 500))
def test_tasks_hold_every_offset_once(ranges: list[Range], least: int | None, most: int | None) -> None:
    tasks = tasks_of(ranges, replace(PLAIN, min_partitions=least, max_records_per_partition=most))
    pieces = sorted((part for task in tasks for part in task), key=lambda part: (part.partition, part.start))
    for part in ranges:
        own = [piece for piece in pieces if piece.partition == part.partition]
        assert (own[0].start, own[-1].end) == (part.start, part.end)
        assert all(before.end == after.start for before, after in pairwise(own))
        sizes = [piece.end - piece.start for piece in own]
        assert max(sizes) - min(sizes) <= 1
    if least is not None:
        assert len(tasks) >= min(least, sum(part.end - part.start for part in ranges))
    if most is not None:
        assert all(sum(part.end - part.start for part in task) <= most for task in tasks)


def test_a_range_without_end_is_not_split_without_end() -> None:
    tasks = tasks_of([Range("t", 0, 0, (1 << 63) - 1)], PLAIN)
    assert len(tasks) == SPLITS_MAX
    assert tasks[0][0].start == 0 and tasks[-1][0].end == (1 << 63) - 1


def test_a_range_is_split_no_finer_than_its_offsets() -> None:
    assert split(Range("t", 0, 5, 8), 7) == [Range("t", 0, 5, 6), Range("t", 0, 6, 7), Range("t", 0, 7, 8)]


def test_a_stream_says_nothing_about_an_end() -> None:
    with pytest.raises(ValueError, match="'endingTimestamp' is for batch reads"):
        source_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "endingTimestamp": "1"}, streaming=True)
