"""How ranges become tasks: by bytes and cores, or as the options bound them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import describe
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError
from headrace.client.metadata import TopicPartition
from headrace.client.producer import Producer
from headrace.spark import tasks
from headrace.spark.client_settings import ClusterSettings
from headrace.spark.options import SourceOptions, Subscription
from headrace.spark.planning import Range
from headrace.spark.source import BatchReader, RangesPartition, StreamReader
from headrace.spark.tasks import SLACK, TASK_BYTES, TASK_BYTES_MAX, TASKS_MAX, LogSizes, split, tasks_of
from headrace.wire.errors import ErrorCode

from .stand_in import batch_options, options, run_stream, values, write

PLAIN = SourceOptions(ClusterSettings("h:1"), Subscription(topics=("t",)), "earliest")
MIB = 1 << 20


def ranges_of(*sizes: int) -> list[Range]:
    return [Range("t", index, 7, 7 + size) for index, size in enumerate(sizes)]


def taken(*bytes_per_offset: float) -> dict[TopicPartition, float]:
    return {("t", index): each for index, each in enumerate(bytes_per_offset)}


def offsets_of(planned: list[list[Range]]) -> list[int]:
    return [sum(part.end - part.start for part in task) for task in planned]


@pytest.mark.parametrize(
    ("mebibytes", "cores", "count"),
    [
        (0, 4, 1),
        (31, 4, 1),
        (32, 4, 2),
        (63, 4, 3),
        (64, 4, 4),
        (2048, 4, 4),
        (2049, 4, 8),
        (4097, 4, 12),
        (100, 1, 1),
        (1 << 40, 4, TASKS_MAX),
        (1 << 40, 2000, 2000),
    ],
)
def test_tasks_are_as_many_as_cores_where_there_is_enough_to_read(mebibytes: int, cores: int, count: int) -> None:
    assert tasks.task_count(mebibytes * MIB, cores) == count


@pytest.mark.parametrize(
    ("sizes", "each", "cores", "found"),
    [
        ([1000], [100.0], 4, [1000]),
        ([1000], [MIB], 4, [250] * 4),
        ([1000], [MIB], 1, [500] * 2),
        ([100, 100], [MIB, MIB], 2, [100, 100]),
        ([100, 105], [MIB, MIB], 2, [100, 105]),
        ([100, 50], [MIB, MIB], 2, [75, 75]),
        # large records weigh more
        ([100, 100_000], [MIB, 1024.0], 2, [100, 100_000]),
        ([10] * 1000, [MIB / 10] * 1000, 4, [2500] * 4),
        ([1] * 100, [100.0] * 100, 4, [100]),
    ],
)
def test_ranges_are_shared_out_by_bytes(sizes: list[int], each: list[float], cores: int, found: list[int]) -> None:
    assert offsets_of(tasks_of(ranges_of(*sizes), PLAIN, taken(*each), cores)) == found


def test_a_range_is_cut_once_for_each_end_of_a_task() -> None:
    planned = tasks_of(ranges_of(100, 100, 100), PLAIN, taken(MIB, MIB, MIB), 2)
    assert planned == [
        [Range("t", 0, 7, 107), Range("t", 1, 7, 57)],
        [Range("t", 1, 57, 107), Range("t", 2, 7, 107)],
    ]


RANGES = st.lists(st.integers(1, 3000), max_size=10).map(lambda sizes: ranges_of(*sizes))
WEIGHTS = st.lists(st.floats(0.001, 4 * MIB), min_size=10, max_size=10).map(lambda each: taken(*each))


@given(RANGES, WEIGHTS, st.integers(1, 64), st.none() | st.integers(1, 40), st.none() | st.integers(1, 500))
def test_tasks_hold_every_offset_once(
    ranges: list[Range], weights: dict[TopicPartition, float], cores: int, least: int | None, most: int | None
) -> None:
    chosen = replace(PLAIN, min_partitions=least, max_records_per_partition=most)
    planned = tasks_of(ranges, chosen, weights, cores)
    assert all(planned)
    pieces = sorted((part for task in planned for part in task), key=lambda part: (part.partition, part.start))
    for part in ranges:
        own = [piece for piece in pieces if piece.partition == part.partition]
        assert (own[0].start, own[-1].end) == (part.start, part.end)
        assert all(before.end == after.start for before, after in pairwise(own))
    if least is not None:
        assert len(planned) >= min(least, sum(part.end - part.start for part in ranges))
    if most is not None:
        assert all(sum(part.end - part.start for part in task) <= most for task in planned)


@given(RANGES, WEIGHTS, st.integers(1, 64))
def test_tasks_are_of_about_the_same_size(
    ranges: list[Range], weights: dict[TopicPartition, float], cores: int
) -> None:
    def size_of(task: list[Range]) -> float:
        return sum((part.end - part.start) * weights["t", part.partition] for part in task)

    planned = tasks_of(ranges, PLAIN, weights, cores)
    total = sum(map(size_of, planned))
    count = tasks.task_count(total, cores)
    assert len(planned) <= count
    largest_record = max(weights.values())
    for task in planned:
        assert size_of(task) <= total / count * (1 + 2 * SLACK) + 2 * largest_record
    cuts = sum(len(task) for task in planned) - len(ranges)
    assert cuts < max(count, 1), "a range is cut where a task is full, and nowhere else"


@given(st.lists(st.integers(1, 300), max_size=12))
def test_small_partitions_share_a_task_that_is_bounded(sizes: list[int]) -> None:
    each = TASK_BYTES / 200
    planned = tasks_of(ranges_of(*sizes), replace(PLAIN, max_records_per_partition=250), taken(*[each] * 12), 4)
    for task in planned:
        assert len(task) == 1 or sum(part.end - part.start for part in task) <= 200


def test_a_range_without_end_is_not_split_without_end() -> None:
    planned = tasks_of([Range("t", 0, 0, (1 << 63) - 1)], PLAIN, taken(1000.0), 2)
    assert 0.9 * TASKS_MAX < len(planned) <= TASKS_MAX
    assert planned[0][0].start == 0 and planned[-1][0].end == (1 << 63) - 1


def test_a_range_is_split_no_finer_than_its_offsets() -> None:
    assert split(Range("t", 0, 5, 8), 7) == [Range("t", 0, 5, 6), Range("t", 0, 6, 7), Range("t", 0, 7, 8)]


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
    reader = BatchReader(batch_options(cluster, topic, **more))
    planned: Any = reader.partitions()
    assert offsets_of([task.ranges for task in planned]) == sizes
    if len(planned) < 100:
        assert values(reader, planned) == list(range(1000))


# -- with a broker


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task is worth its start from 16 KiB on."""
    monkeypatch.setattr(tasks, "TASK_BYTES", 16 << 10)


def fill(cluster: Client, topic: str, partition: int, count: int, size: int) -> None:
    with Producer(cluster) as producer:
        for number in range(count):
            producer.send(topic, b"%0*d" % (size, number), partition=partition)


def test_what_an_offset_takes_is_asked_of_the_leader(cluster: Client, topic: str) -> None:
    fill(cluster, topic, 0, 100, 1000)
    fill(cluster, topic, 1, 100, 100)
    sizes = LogSizes()
    found = sizes.of(cluster, [Range(topic, 0, 0, 100), Range(topic, 1, 0, 100)])
    assert 1000 < found[topic, 0] < 1100 and 100 < found[topic, 1] < 150
    fill(cluster, topic, 1, 900, 1000)
    assert sizes.of(cluster, [Range(topic, 1, 0, 100)])[topic, 1] == found[topic, 1], "kept for a while"
    sizes._refreshed -= 1000
    assert sizes.of(cluster, [Range(topic, 1, 0, 100)])[topic, 1] > 800


def test_who_may_not_ask_for_sizes_reads_all_the_same(
    cluster: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cluster, topic, 10)

    def refused(*_: object) -> dict[TopicPartition, int]:
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "log directories")

    monkeypatch.setattr(tasks, "partition_sizes", refused)
    reader = BatchReader(batch_options(cluster, topic))
    assert values(reader, reader.partitions()) == list(range(10))
    assert LogSizes().of(cluster, [Range(topic, 0, 0, 5)]) == {(topic, 0): tasks.OFFSET_BYTES}


@pytest.mark.parametrize("trigger", ["batch", "availableNow"])
def test_a_partition_with_much_to_read_is_shared_out(
    cluster: Client, topic: str, small_tasks: None, trigger: str
) -> None:
    fill(cluster, topic, 0, 400, 1000)
    fill(cluster, topic, 1, 10, 10)
    if trigger == "batch":
        reader: Any = BatchReader(batch_options(cluster, topic), cores=4)
        planned = reader.partitions()
    else:
        reader = StreamReader(options(cluster, topic, startingOffsets="earliest"), cores=4)
        start = reader.initialOffset()
        planned = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    sizes = offsets_of([task.ranges for task in planned])
    assert len(planned) == 4 and max(sizes) < 1.3 * min(sizes)
    assert values(reader, planned) == sorted([*range(400), *range(10)])
    whole = {"maxRecordsPerPartition": "9223372036854775807"}
    reader = BatchReader(batch_options(cluster, topic, **whole), cores=4)
    alone: list[RangesPartition] = reader.partitions()
    assert sorted(len({part.partition for part in task.ranges}) for task in alone) == [1, 1]


def test_a_stream_of_little_is_one_task(cluster: Client, topic: str) -> None:
    """However many cores there are, and also where the log is large."""
    fill(cluster, topic, 0, 400, 1000)
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest"), cores=64)
    _, logged = run_stream(reader, "availableNow")
    write(cluster, topic, 100)
    reader = StreamReader(options(cluster, topic), cores=64)
    end = reader.latestOffset(logged, reader.getDefaultReadLimit())
    assert len(reader.partitions(logged, end)) == 1


def test_sizes_are_those_of_the_log(cluster: Client, topic: str) -> None:
    fill(cluster, topic, 0, 50, 1000)
    sizes = describe.partition_sizes(cluster, [(topic, 0), (topic, 1)])
    assert 50_000 < sizes[topic, 0] < 60_000 and sizes[topic, 1] == 0
    with pytest.raises(BrokerError, match=topic):
        describe.partition_sizes(cluster, [(topic, 7)])


def test_the_bounds_fit_each_other() -> None:
    assert TASK_BYTES * 8 <= TASK_BYTES_MAX
    assert tasks.machine_cores() >= 1
