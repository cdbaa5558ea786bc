"""The writers of `format("headrace")`: batch and stream, to one topic or to a `topic` column.

At least once, a task writes and flushes in `write` and reports what it wrote; a task that Spark runs again writes its
rows again. Within a task the producer is idempotent, so that retries towards the brokers double nothing. The other
deliveries have modules of their own, which `way_of` finds: `exactly_once` and `per_task`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.arrow.encode import Encoded, Headers, check_schema, encode_batch, hash_rows
from headrace.client.cluster import Client
from headrace.client.deliveries import Delivery
from headrace.client.errors import UnknownTopicError
from headrace.client.producer import Producer
from headrace.spark.commit_records import Span
from headrace.spark.delivery import PER_TASK
from headrace.spark.markers import ROW_HASH_MASK
from headrace.spark.option_table import SINK_KEYS
from headrace.spark.options import SinkOptions, sink_options, warn_of_ignored


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote and the brokers acknowledged: how many records, and where they are.

    A span has offsets of the source where the rows said them.
    """

    records: int
    spans: tuple[Span, ...]


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


Sources = tuple[int, int] | None
"""The first and last of the source's offsets of a record batch, where its rows have any."""


def encoded_rows(
    batches: Iterator[pa.RecordBatch], client: Client, options: SinkOptions
) -> Iterator[tuple[Encoded, Sources]]:
    """The rows of one task as record batches, and of which records of a source those are. Raises ValueError for a
    wrong row."""
    seen: set[str] = set()
    marks = batch_headers() if options.batch_headers else ()

    def count(topic: str) -> int:
        if topic not in seen:
            # partitions may have been added since this worker's last task
            client.forget([topic])
            seen.add(topic)
        return partition_count(client, topic)

    for rows in batches:
        offsets = None
        if SOURCE_OFFSET in rows.schema.names:
            offsets = _in_order_of_writing(rows)
            rows = rows.drop_columns([SOURCE_OFFSET])
        for encoded in encode_batch(
            rows,
            options.topic,
            count,
            now_ms=time.time_ns() // 1_000_000,
            compression=options.compression,
            batch_bytes=options.produce.batch_bytes,
            wanted_bytes=client.batch_limits.wanted,
            marks=marks,
        ):
            sources = None
            if offsets is not None:
                sources = (offsets[0].as_py(), offsets[encoded[3] - 1].as_py())
                offsets = offsets.slice(encoded[3])
            yield encoded, sources


class TaskRows:
    """The rows of a task on their way, counted and hashed."""

    def __init__(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> None:
        self._batches = batches
        self._topic = topic
        self.count = 0
        self.row_hash = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for rows in self._batches:
            self.count += rows.num_rows
            self.row_hash = (self.row_hash + hash_rows(rows, self._topic)) & ROW_HASH_MASK
            yield rows

    def read(self) -> None:
        """To the end, without another use of them."""
        for _ in self:
            pass


def span_of(delivery: Delivery, sources: Sources) -> Span:
    """Where a record batch went."""
    place = (delivery.topic, delivery.partition, delivery.base_offset, delivery.record_count)
    return Span(*place) if sources is None else Span(*place, *sources)


def write_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Written:
    """Write and flush the rows of one task. Raises `headrace.client.ClientError`, and ValueError for a wrong row."""
    producer = _kept_producer(options)
    client = producer.client
    deliveries: list[tuple[Delivery, Sources]] = []
    try:
        for (topic, partition, batch, _), sources in encoded_rows(batches, client, options):
            deliveries.append((producer.send_batch(topic, partition, batch), sources))
        producer.flush()
    except BaseException:
        # what this attempt still holds must not be sent beside the next one
        _producers.pop(options, None)
        client.close()
        raise
    spans = tuple(span_of(done, sources) for done, sources in deliveries)
    return Written(sum(span.count for span in spans), spans)


def _in_order_of_writing(rows: pa.RecordBatch) -> pa.Array:
    """The source offsets of rows as `encode_batch` takes them: by topic, by partition, and else as they are."""
    places = rows.select(["topic", "partition", SOURCE_OFFSET])
    return places.sort_by([("topic", "ascending"), ("partition", "ascending")]).column(SOURCE_OFFSET)


class Way(Protocol):
    """A delivery: what a task does with its rows, and what is done beside the driver when all tasks are done.

    `write_id` is a batch write's own, the same for all of its tasks; it is empty where the rows are a stream's batch.
    """

    def write(self, rows: Iterator[pa.RecordBatch], options: SinkOptions, write_id: str) -> WriterCommitMessage:
        """Runs in a worker."""

    def commit_batch(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
    ) -> Sequence[Span]:
        """The end of a stream's batch; where its records are, as far as that is known."""

    def commit_write(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str
    ) -> Sequence[Span]:
        """The same of a batch write."""

    def abort(self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str) -> None:
        """Some tasks have failed, or the end: what waits for a decision in vain is given up."""


class AtLeastOnce:
    """A task writes, and nothing is left to decide: a task or batch that is repeated is written again."""

    def write(self, rows: Iterator[pa.RecordBatch], options: SinkOptions, write_id: str) -> Written:
        return write_rows(rows, options)

    def commit_batch(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
    ) -> Sequence[Span]:
        return self.commit_write(options, messages, "")

    def commit_write(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str
    ) -> Sequence[Span]:
        return [span for message in messages if isinstance(message, Written) for span in message.spans]

    def abort(self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str) -> None:
        """What is written stays."""


def way_of(options: SinkOptions) -> Way:
    """The delivery that the options choose."""
    if options.exactly_once is None:
        return AtLeastOnce()
    if options.exactly_once.mode == PER_TASK:
        from headrace.spark.per_task import PerTask

        return PerTask()
    from headrace.spark.exactly_once import WholeBatch

    return WholeBatch()


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("headrace")`."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        # said to be one of a stream's batch, it is committed as that
        self.of_batch = None if options.exactly_once is None else options.exactly_once.of_batch
        self.write_id = str(uuid.uuid4()) if self.of_batch is None else ""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self.of_batch is None or self.of_batch.query is None:
            return way_of(self.options).write(iterator, self.options, self.write_id)
        from headrace.spark.parts import told

        with told((*self.of_batch.query, self.of_batch.batch_id)):
            return way_of(self.options).write(iterator, self.options, self.write_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        self.finish(messages)

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> Sequence[Span]:
        """What `commit` does; where the records are, as far as that is known."""
        if self.of_batch is None:
            return way_of(self.options).commit_write(self.options, messages, self.write_id)
        return way_of(self.options).commit_batch(self.options, messages, self.of_batch.batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed. What tasks have committed by themselves stays, and a write that is repeated doubles it; what
        the driver would have sent or committed was not, or it is decided."""
        way_of(self.options).abort(self.options, messages, self.write_id)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace")`; Spark makes a new one for every batch."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return way_of(self.options).write(iterator, self.options, "")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks are done."""
        way_of(self.options).commit_batch(self.options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task failed, or `commit` did. At least once, what others wrote stays, and Spark's repetition of the batch
        doubles it; exactly once, what is decided stays, and what tasks have written else is aborted."""
        way_of(self.options).abort(self.options, messages, "")


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
