"""What a sink's task does, without Spark's JVM: one producer a worker, everything acknowledged before it reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import headrace
import headrace.testing
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.errors import ClientError
from headrace.spark.delivery.at_least_once import write_rows
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.encoding import batch_headers
from headrace.spark.options import sink_options
from headrace.spark.process_state import this_process
from headrace.spark.sink import batch_writer, stream_writer

TEXT = StructType([StructField("value", StringType())])


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with headrace.testing.broker() as broker, Client(broker.bootstrap) as client:
        for name in ("kept", "failed", "split", "copied-0", "copied-1"):
            create_topic(client, name, partitions=2)
        yield broker.bootstrap
    this_process().producers.close()


def options(bootstrap: str, **more: str) -> Any:
    return sink_options({"kafka.bootstrap.servers": bootstrap, **more})


def rows(*values: bytes, **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values), **columns})


def test_a_worker_keeps_its_producer_and_reports_what_it_wrote(bootstrap: str) -> None:
    chosen = options(bootstrap, topic="kept")
    first = write_rows(iter([rows(b"a", b"b", key=[b"k", b"k"]), rows(b"c", key=[b"k"])]), chosen)
    producer = this_process().producers.kept[chosen]
    second = write_rows(iter([rows(b"d", key=[b"k"])]), chosen)
    assert this_process().producers.kept[chosen] is producer and producer.buffered == 0
    assert (first.records, second.records) == (3, 1)
    (topic, partition, base, count), (_, again, later, _) = (span.fields() for span in first.spans)
    assert (topic, base, count, again, later) == ("kept", 0, 2, partition, 2)
    assert second.spans == (Span("kept", partition, 3, 1),)
    table = headrace.scan("kept", bootstrap=bootstrap)
    assert table["value"].to_pylist() == [b"a", b"b", b"c", b"d"]


def test_a_topic_that_takes_small_batches_is_written_to_without_an_option(bootstrap: str) -> None:
    with Client(bootstrap) as client:
        create_topic(client, "narrow", partitions=1, configs={"max.message.bytes": "20000"})
    values = [b"%06d" % number + b"." * 94 for number in range(3_000)]
    written = write_rows(iter([rows(*values)]), options(bootstrap, topic="narrow"))
    assert written.spans == (Span("narrow", 0, 0, 3_000),)
    assert headrace.scan("narrow", bootstrap=bootstrap)["value"].to_pylist() == values


def test_rows_go_to_the_topics_and_partitions_that_they_say(bootstrap: str) -> None:
    place = pa.array([1, 0, 1], pa.int32())
    write_rows(iter([rows(b"a", b"b", b"c", topic=["split"] * 3, partition=place)]), options(bootstrap))
    table = headrace.scan("split", bootstrap=bootstrap)
    assert list(zip(table["partition"].to_pylist(), table["value"].to_pylist())) == [(0, b"b"), (1, b"a"), (1, b"c")]


def test_what_is_copied_is_reported_by_source_and_target(bootstrap: str) -> None:
    """Rows of two topics and partitions in turns, with gaps at the source, in batches of Arrow and of the log."""
    chosen = options(bootstrap)
    count = 9000
    sources = [3 * n + n % 3 for n in range(count)]
    batches = [
        pa.RecordBatch.from_pydict({
            "topic": [f"copied-{n % 3 % 2}" for n in part], "partition": pa.array([n % 2 for n in part], pa.int32()),
            "value": [b"%d" % sources[n] + b"." * 500 for n in part], "source_offset": [sources[n] for n in part],
        })
        for part in (range(count // 2), range(count // 2, count))
    ]  # fmt: skip
    written = write_rows(iter(batches), chosen)
    assert len(written.spans) > 8 and written.records == count
    tables = {topic: headrace.scan(topic, bootstrap=bootstrap) for topic in ("copied-0", "copied-1")}
    for topic, partition, base, records, first, last in (span.fields() for span in written.spans):
        part = tables[topic].filter(pc.equal(tables[topic]["partition"], partition)).sort_by("offset")
        found = [int(value.strip(b".")) for value in part["value"].slice(base, records).to_pylist()]
        assert (found[0], found[-1], len(found)) == (first, last, records)
        assert found == sorted(found)


def test_a_failed_task_leaves_its_producer_behind(bootstrap: str) -> None:
    chosen = options(bootstrap, topic="failed")

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(b"x")
        raise OSError("the shuffle is gone")

    with pytest.raises(OSError, match="shuffle"):
        write_rows(broken(), chosen)
    assert chosen not in this_process().producers.kept
    assert write_rows(iter([rows(b"x")]), chosen).records == 1
    found = headrace.scan("failed", bootstrap=bootstrap)["value"].to_pylist()
    assert set(found) == {b"x"} and 1 <= len(found) <= 2, "at least once"


def test_outside_spark_there_is_no_batch_to_name(bootstrap: str) -> None:
    assert batch_headers() == ()


def test_errors_are_the_clusters_own(bootstrap: str) -> None:
    with pytest.raises(ClientError, match="not/a/name"):
        write_rows(iter([rows(b"x")]), options(bootstrap, topic="not/a/name"))


def test_writers_refuse_what_cannot_be_written(bootstrap: str) -> None:
    good = {"kafka.bootstrap.servers": bootstrap, "topic": "kept"}
    assert stream_writer(good, TEXT).options.topic == "kept"
    with pytest.raises(ValueError, match="headrace cannot overwrite"):
        batch_writer(good, TEXT, overwrite=True)
    with pytest.raises(ValueError, match="give the option 'topic'"):
        stream_writer({"kafka.bootstrap.servers": bootstrap}, TEXT)
    with pytest.raises(ValueError, match="'value' is int64"):
        batch_writer(good, StructType([StructField("value", LongType())]), overwrite=False)
