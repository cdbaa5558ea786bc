"""The writers of `format("headrace")`: batch and stream, to one topic or to a `topic` column.

At least once, a task writes and flushes in `write` and reports what it wrote; a task that Spark runs again writes its
rows again. Within a task the producer is idempotent, so that retries towards the brokers double nothing. Exactly once,
a task encodes its rows and reports them, and `commit`, beside the driver, sends those of all tasks: see `exactly_once`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.arrow.encode import Encoded, Headers, check_schema, encode_batch
from headrace.client.cluster import Client
from headrace.client.errors import UnknownTopicError
from headrace.client.producer import Delivery, Producer
from headrace.spark.option_table import SINK_KEYS
from headrace.spark.options import SinkOptions, sink_options, warn_of_ignored


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote and the brokers acknowledged.

    `spans` are (topic, partition, base offset, records) of its batches; the offset is -1 where a broker did not say it.
    `sources` are the first and last of the source offsets of each of them, where the rows had any.
    """

    records: int
    spans: tuple[tuple[str, int, int, int], ...]
    sources: tuple[tuple[int, int], ...] = ()


SOURCE_OFFSET: Final = "source_offset"
"""A column that is not written but reported: which record of a source a row is. Topic and partition must be there too,
without nulls."""


_producers: dict[SinkOptions, Producer] = {}
"""One producer a worker process and cluster, kept across tasks: a producer id a task would be millions a day."""


def _kept_producer(options: SinkOptions) -> Producer:
    producer = _producers.get(options)
    if producer is None:
        how = options.produce
        producer = _producers[options] = Producer(
            options.cluster.client(known=True),
            acks=how.acks,
            compression=options.compression,
            delivery_timeout_s=how.delivery_timeout_ms / 1000,
            request_timeout_s=options.cluster.request_timeout_ms / 1000,
        )
    return producer


def partition_count(client: Client, topic: str) -> int:
    """How many partitions a topic has that is to be written to."""
    try:
        return len(client.topic(topic).partitions)
    except UnknownTopicError:
        # as the connector's producer, which lets the brokers create a topic where they are set to
        client.refresh([topic], auto_create=True)
        return len(client.topics([topic])[0].partitions)


def batch_headers() -> Headers:
    """Which batch and which task of it the rows of this task are of: what is written again has the same two.

    A task's number says which rows it has as long as Spark plans the batch the same again, as it does for one that a
    checkpoint replays. Outside a stream there is no batch id.
    """
    task = TaskContext.get()
    if task is None:
        return ()
    batch_id = task.getLocalProperty("streaming.sql.batchId")
    marks = [] if batch_id is None else [("headrace.batch_id", str(batch_id).encode())]
    return (*marks, ("headrace.partition", str(task.partitionId()).encode()))


def encoder(client: Client, options: SinkOptions) -> Callable[[pa.RecordBatch], Iterator[Encoded]]:
    """What makes record batches of one task's rows."""
    seen: set[str] = set()
    marks = batch_headers() if options.batch_headers else ()

    def count(topic: str) -> int:
        if topic not in seen:
            # partitions may have been added since this worker's last task
            client.forget([topic])
            seen.add(topic)
        return partition_count(client, topic)

    def encoded(rows: pa.RecordBatch) -> Iterator[Encoded]:
        return encode_batch(
            rows,
            options.topic,
            count,
            now_ms=time.time_ns() // 1_000_000,
            compression=options.compression,
            batch_bytes=options.produce.batch_bytes,
            marks=marks,
        )

    return encoded


def write_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Written:
    """Write and flush the rows of one task. Raises `headrace.client.ClientError`, and ValueError for a wrong row."""
    producer = _kept_producer(options)
    client = producer.client
    deliveries: list[Delivery] = []
    sources: list[tuple[int, int]] = []
    encoded_rows = encoder(client, options)
    try:
        for rows in batches:
            offsets = None
            if SOURCE_OFFSET in rows.schema.names:
                offsets = _in_order_of_writing(rows)
                rows = rows.drop_columns([SOURCE_OFFSET])
            for topic, partition, batch, count in encoded_rows(rows):
                deliveries.append(producer.send_batch(topic, partition, batch))
                if offsets is not None:
                    sources.append((offsets[0].as_py(), offsets[count - 1].as_py()))
                    offsets = offsets.slice(count)
        producer.flush()
    except BaseException:
        # what this attempt still holds must not be sent beside the next one
        _producers.pop(options, None)
        client.close()
        raise
    spans = tuple((done.topic, done.partition, done.base_offset, done.record_count) for done in deliveries)
    return Written(sum(span[3] for span in spans), spans, tuple(sources))


def _in_order_of_writing(rows: pa.RecordBatch) -> pa.Array:
    """The source offsets of rows as `encode_batch` takes them: by topic, by partition, and else as they are."""
    places = rows.select(["topic", "partition", SOURCE_OFFSET])
    return places.sort_by([("topic", "ascending"), ("partition", "ascending")]).column(SOURCE_OFFSET)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("headrace")`."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self.options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done: at least once, nothing is left to decide."""
        if self.options.exactly_once is not None:
            from headrace.spark.exactly_once import commit_write

            commit_write(self.options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed. At least once, what others wrote stays, and a repeated write doubles it; exactly once, nothing
        was sent, or it is decided."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace")`; Spark makes a new one for every batch."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self.options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks are done: at least once, nothing is left to decide."""
        if self.options.exactly_once is not None:
            from headrace.spark.exactly_once import commit_batch

            commit_batch(self.options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task failed, or `commit` did. At least once, what others wrote stays, and Spark's repetition of the batch
        doubles it; exactly once, what is decided stays, and what tasks have written else is aborted."""
        if self.options.exactly_once is not None:
            from headrace.spark.exactly_once import abort_batch

            abort_batch(self.options, messages)


def _write(rows: Iterator[pa.RecordBatch], options: SinkOptions) -> WriterCommitMessage:
    if options.exactly_once is None:
        return write_rows(rows, options)
    from headrace.spark.group_commit import write_task

    return write_task(rows, options)


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    chosen = sink_options(options)
    warn_of_ignored(options, SINK_KEYS, "sink")
    check_schema(to_arrow_schema(schema, timezone="UTC"), chosen.topic)
    return chosen


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """A writer of these columns. Raises ValueError with one sentence for what is wrong."""
    if overwrite:
        raise ValueError("headrace cannot overwrite a topic; use mode('append').")
    return BatchWriter(_checked(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """A writer of these columns. Raises ValueError with one sentence for what is wrong."""
    return StreamWriter(_checked(options, schema))
