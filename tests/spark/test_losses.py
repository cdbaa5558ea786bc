"""What a source says when something is not there any more, and what it never does: read twice, or of another topic."""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

import pytest
from peers.kafka import free_port
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace.client.admin import add_partitions, create_topic, delete_records, delete_topic
from headrace.client.cluster import Client
from headrace.client.errors import ClientError
from headrace.client.producer import Producer
from headrace.spark.options import source_options
from headrace.spark.planning import DataLossError, Range
from headrace.spark.source import BatchReader, RangesPartition, StreamReader
from headrace.wire import uuids

from .stand_in import batch_options, options, through_json, values, write

ALL = ReadAllAvailable()


def stream(cluster: Client, topic: str, **more: str) -> StreamReader:
    return StreamReader(options(cluster, topic, **{"startingOffsets": "earliest", **more}))


def first_batch(cluster: Client, topic: str) -> dict[str, Any]:
    """The end of a query's first batch, as the checkpoint has it."""
    reader = stream(cluster, topic)
    return through_json(reader.latestOffset(through_json(reader.initialOffset()), ALL))


def remake(client: Client, topic: str) -> None:
    delete_topic(client, topic)
    create_topic(client, topic, partitions=2)
    client.forget([topic])


@pytest.fixture
def other(cluster: Client, topic: str) -> str:
    """Another topic, with the values 100 to 103."""
    name = topic + "-other"
    create_topic(cluster, name, partitions=2)
    write(cluster, name, 4, 100)
    return name


@pytest.mark.parametrize("how", ["subscribe", "subscribePattern", "assign"])
def test_a_checkpoint_of_another_topic_set(cluster: Client, topic: str, other: str, how: str) -> None:
    """As in the connector: what is new is read from its beginning, what is left out is lost data."""
    write(cluster, topic, 6)
    logged = first_batch(cluster, topic)
    write(cluster, topic, 2, 6)
    chosen = {"subscribe": other, "subscribePattern": f"{topic}-.*", "assign": json.dumps({other: [0, 1]})}[how]
    given = {"kafka.bootstrap.servers": cluster.bootstrap_text, how: chosen}  # type: ignore[attr-defined]

    def again(**more: str) -> StreamReader:
        return StreamReader(source_options({**given, **more}, streaming=True))

    with pytest.raises(DataLossError, match=f"topic {topic} partition 0 is not in the subscription any more.*"):
        again().latestOffset(logged, ALL)
    relaxed = again(failOnDataLoss="false")
    with pytest.warns(RuntimeWarning, match=f"topic {topic} partition 1 is not in the subscription any more"):
        after = through_json(relaxed.latestOffset(logged, ALL))
    assert set(after["topics"]) == {other}
    assert values(relaxed, relaxed.partitions(logged, after)) == [100, 101, 102, 103]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert relaxed.latestOffset(after, ALL) is after, "said once, and on it goes"
    # both, with the checkpoint of the one: nothing is lost
    both = stream(cluster, f"{topic},{other}")
    after = through_json(both.latestOffset(logged, ALL))
    assert values(both, both.partitions(logged, after)) == [6, 7, 100, 101, 102, 103]


def test_a_batch_that_was_planned_is_replayed_whatever_is_subscribed_to_now(
    cluster: Client, topic: str, other: str
) -> None:
    write(cluster, topic, 6)
    reader = stream(cluster, topic)
    start = through_json(reader.initialOffset())
    logged = through_json(reader.latestOffset(start, ALL))
    again = stream(cluster, other)
    moved = through_json(again.initialOffset())
    assert values(again, again.partitions(moved, logged)) == list(range(6))


def test_fewer_partitions_assigned(cluster: Client, topic: str) -> None:
    write(cluster, topic, 6)
    logged = first_batch(cluster, topic)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_text}  # type: ignore[attr-defined]
    one = StreamReader(source_options({**given, "assign": json.dumps({topic: [1]})}, streaming=True))
    with pytest.raises(DataLossError, match=f"topic {topic} partition 0 is not in the subscription any more"):
        one.latestOffset(logged, ALL)


def test_a_new_partition_that_has_lost_its_beginning(cluster: Client, topic: str) -> None:
    write(cluster, topic, 4)
    logged = first_batch(cluster, topic)
    add_partitions(cluster, topic, 3)
    cluster.forget([topic])
    with Producer(cluster) as producer:
        for number in (10, 11, 12):
            producer.send(topic, b"%d" % number, partition=2)
    delete_records(cluster, {(topic, 2): 2})
    strict, relaxed = stream(cluster, topic), stream(cluster, topic, failOnDataLoss="false")
    after = through_json(strict.latestOffset(logged, ALL))
    with pytest.raises(DataLossError, match=f"{topic} partition 2 is new to the query and begins at offset 2, not 0"):
        strict.partitions(logged, after)
    with pytest.warns(RuntimeWarning, match="begins at offset 2, not 0"):
        assert values(relaxed, relaxed.partitions(logged, after)) == [12]


@pytest.mark.parametrize("made_again", [False, True])
def test_a_new_topic_that_is_gone_before_it_is_planned(cluster: Client, topic: str, made_again: bool) -> None:
    write(cluster, topic, 4)
    name = topic + "-short"
    logged = first_batch(cluster, topic)
    create_topic(cluster, name, partitions=1)
    write_one(cluster, name, 0)
    both = f"{topic},{name}"
    strict, relaxed = stream(cluster, both), stream(cluster, both, failOnDataLoss="false")
    after = through_json(relaxed.latestOffset(logged, ALL))
    delete_topic(cluster, name)
    if made_again:
        create_topic(cluster, name, partitions=1)
        cluster.forget([name])
        write_one(cluster, name, 1)
    with pytest.raises(DataLossError, match=f"topic {name}"):
        strict.partitions(logged, after)
    with pytest.warns(RuntimeWarning, match=f"topic {name}"):
        assert values(relaxed, relaxed.partitions(logged, after)) == []
    if made_again:
        delete_topic(cluster, name)


def write_one(cluster: Client, topic: str, value: int) -> None:
    with Producer(cluster) as producer:
        producer.send(topic, b"%d" % value, partition=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize("made_again", [False, True])
def test_a_task_reads_the_topic_that_was_planned_or_none(
    cluster: Client, topic: str, kind: str, made_again: bool
) -> None:
    """Also where the one made again has more records, so that its offsets say nothing."""
    write(cluster, topic, 10)
    other = topic + "-stays"
    create_topic(cluster, other, partitions=2)
    write(cluster, other, 4, 50)
    tasks, readers = {}, {}
    for fail in ("true", "false"):
        reader: Any
        if kind == "batch":
            reader = BatchReader(batch_options(cluster, f"{topic},{other}", failOnDataLoss=fail))
            tasks[fail] = reader.partitions()
        else:
            reader = stream(cluster, f"{topic},{other}", failOnDataLoss=fail)
            start = through_json(reader.initialOffset())
            tasks[fail] = reader.partitions(start, through_json(reader.latestOffset(start, ALL)))
        readers[fail] = reader
    # the client of this worker has read of both before, and knows them
    assert values(readers["true"], tasks["true"]) == [*range(10), 50, 51, 52, 53]
    delete_topic(cluster, topic)
    if made_again:
        create_topic(cluster, topic, partitions=2)
        cluster.forget([topic])
        write(cluster, topic, 30, 200)
    before = time.monotonic()
    with pytest.raises(DataLossError, match=f"topic {topic} was deleted during the read.*failOnDataLoss"):
        values(readers["true"], tasks["true"])
    with pytest.warns(RuntimeWarning, match=f"topic {topic} was deleted during the read"):
        assert values(readers["false"], tasks["false"]) == [50, 51, 52, 53]
    assert time.monotonic() - before < 20, "long before the client's patience is over"


def test_ranges_know_their_topics(cluster: Client, topic: str) -> None:
    write(cluster, topic, 4)
    topic_id = cluster.topic(topic).id
    assert topic_id != uuids.ZERO
    batch = BatchReader(batch_options(cluster, topic))
    reader = stream(cluster, topic)
    start = reader.initialOffset()
    planned: list[Any] = [*batch.partitions(), *reader.partitions(start, reader.latestOffset(start, ALL))]
    assert {part.topic_id for task in planned for part in task.ranges} == {topic_id}


def test_records_that_go_while_they_are_read(cluster: Client, topic: str) -> None:
    write(cluster, topic, 20)
    ranges = [Range(topic, 0, 0, 10), Range(topic, 1, 2, 10)]
    delete_records(cluster, {(topic, 0): 4})
    strict = BatchReader(batch_options(cluster, topic))
    with pytest.raises(DataLossError, match=f"topic {topic} partition 0 has no offset 0 any more.*failOnDataLoss"):
        values(strict, [RangesPartition(ranges)])
    relaxed = BatchReader(batch_options(cluster, topic, failOnDataLoss="false"))
    with pytest.warns(RuntimeWarning, match=f"topic {topic} partition 0 has no offset 0 any more"):
        assert values(relaxed, [RangesPartition(ranges)]) == sorted([*range(8, 20, 2), *range(5, 20, 2)])
    # all of a range is gone
    with pytest.warns(RuntimeWarning, match="has no offset 1 any more"):
        assert values(relaxed, [RangesPartition([Range(topic, 0, 1, 3)])]) == []


def test_a_log_that_was_cut_back_is_not_read_again_from_its_beginning(cluster: Client, topic: str) -> None:
    """Leaders elected uncleanly lose the end of a log. What is before it has been read."""
    write(cluster, topic, 20)
    beyond = [RangesPartition([Range(topic, 0, 15, 18), Range(topic, 1, 8, 10)])]
    strict = BatchReader(batch_options(cluster, topic))
    with pytest.raises(DataLossError, match=f"topic {topic} partition 0 has no offset 15 any more"):
        values(strict, beyond)
    relaxed = BatchReader(batch_options(cluster, topic, failOnDataLoss="false"))
    with pytest.warns(RuntimeWarning, match="has no offset 15 any more"):
        assert values(relaxed, beyond) == [17, 19]


def test_a_cluster_that_stays_away_is_named() -> None:
    port = free_port()
    given = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "subscribe": "t"}
    reader = StreamReader(source_options(given, streaming=True))
    with pytest.raises(ClientError, match=f"^no broker answers: 127.0.0.1:{port}: Connection refused$"):
        reader.initialOffset()
