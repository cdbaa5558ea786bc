"""A query's progress as a group's offsets: what is committed, when, and what happens when it is refused."""

from __future__ import annotations

import warnings

import confluent_kafka
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace.client.cluster import Client
from headrace.client.groups import commit_offsets, fetch_offsets
from headrace.spark.source import StreamReader

from .stand_in import options, through_json, write

ALL = ReadAllAvailable()


def committed(client: Client, group: str) -> list[int]:
    """By partition."""
    return [found.offset for _, found in sorted(fetch_offsets(client, group).items())]


def test_what_is_finished_is_committed_and_nothing_before(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest", groupIdPrefix="mine"))
    start = through_json(reader.initialOffset())
    group = start["group"]
    assert group.startswith("mine-")
    end = through_json(reader.latestOffset(start, ALL))
    reader.partitions(start, end)
    assert committed(cluster, group) == [], "planned, not finished"
    write(cluster, topic, 2, 10)
    reader._polled = -1.0
    after = through_json(reader.latestOffset(end, ALL))
    assert committed(cluster, group) == [5, 5]
    # the driver dies here, with a batch planned; the next one plans it again and goes on
    again = StreamReader(options(cluster, topic))
    again.partitions(end, after)
    assert committed(cluster, group) == [5, 5]
    again.latestOffset(after, ALL)
    assert committed(cluster, group) == [6, 6]
    assert after["group"] == group


def test_the_last_batch_of_available_now_is_committed(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest", **{"kafka.group.id": f"g-{topic}"}))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ALL)
    assert reader.latestOffset(end, ALL) is end
    assert committed(cluster, f"g-{topic}") == [5, 5]


def test_by_option_nothing_is_committed(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    more = {"kafka.group.id": f"g-{topic}", "commitGroupOffsets": "false"}
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest", **more))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader.latestOffset(end, ALL)
    assert committed(cluster, f"g-{topic}") == []
    assert "group" not in end


def test_a_group_with_members_is_left_to_them(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    group = f"g-{topic}"
    bootstrap = cluster.bootstrap_text  # type: ignore[attr-defined]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest", **{"kafka.group.id": group}))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    with pytest.warns(UserWarning, match=f"cannot commit its offsets: group {group} has members"):
        reader.latestOffset(end, ALL)
    write(cluster, topic, 2, 10)
    reader._polled = -1.0
    reader._group_offsets._not_before = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = reader.latestOffset(end, ALL)
    assert after["topics"] == {topic: {"0": 6, "1": 6}}, "the query goes on, and says it once"
    consumer.close()
    reader._group_offsets._not_before = 0.0
    reader.latestOffset(after, ALL)
    assert committed(cluster, group) == [6, 6]


def test_offsets_that_are_committed_are_not_committed_again(cluster: Client, topic: str) -> None:
    write(cluster, topic, 10)
    group = f"g-{topic}"
    reader = StreamReader(options(cluster, topic, startingOffsets="earliest", **{"kafka.group.id": group}))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader.latestOffset(end, ALL)
    commit_offsets(cluster, group, {(topic, 0): 1})
    reader.latestOffset(end, ALL)
    assert committed(cluster, group) == [1, 5], "an idle query asks nothing of the coordinator"
