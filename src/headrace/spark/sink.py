"""The writers of `format("headrace")`: batch and stream, to one topic or to a `topic` column.

A writer says which task or batch it is called for, and leaves the rest to a mode of `delivery`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.arrow.encode import check_schema
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.registry import delivery_mode
from headrace.spark.delivery.spark_task import QueryBatch, SparkTask, current_task
from headrace.spark.option_table import SINK_KEYS
from headrace.spark.options import SinkOptions, sink_options, warn_of_ignored


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("headrace")`."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        # if it belongs to a batch of a stream, it is committed as that
        self.of_batch = None if options.exactly_once is None else options.exactly_once.of_batch
        self.write_id = str(uuid.uuid4()) if self.of_batch is None else ""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        of, batch = self.of_batch, None
        if of is not None and of.query is not None:
            batch = QueryBatch(*of.query, of.batch_id)
        return self.write_task(iterator, current_task(write_id=self.write_id, batch=batch))

    def write_task(self, rows: Iterator[pa.RecordBatch], task: SparkTask) -> WriterCommitMessage:
        """Does what `write` does, for the task that is given."""
        return delivery_mode(self.options).write(rows, self.options, task)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits the write when all tasks are done."""
        self.finish(messages)

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> Sequence[Span]:
        """Does what `commit` does, and returns where the records are, as far as that is known."""
        if self.of_batch is None:
            return delivery_mode(self.options).commit_write(self.options, messages, self.write_id)
        return delivery_mode(self.options).commit_batch(self.options, messages, self.of_batch.batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Ends the write after a task failed. What tasks have committed themselves stays, and a write that is repeated
        doubles it; what the driver would have sent or committed is not written, or it is decided."""
        delivery_mode(self.options).abort(self.options, messages, self.write_id)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace")`; Spark makes a new one for every batch."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_task(iterator, current_task())

    def write_task(self, rows: Iterator[pa.RecordBatch], task: SparkTask) -> WriterCommitMessage:
        """Does what `write` does, for the task that is given."""
        return delivery_mode(self.options).write(rows, self.options, task)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commits the batch when all tasks are done."""
        delivery_mode(self.options).commit_batch(self.options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Ends the batch after a task or `commit` failed. At least once, what others wrote stays, and Spark's
        repetition of the batch doubles it; exactly once, decided transactions stay, and the rest is aborted."""
        delivery_mode(self.options).abort(self.options, messages, "")


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    chosen = sink_options(options)
    warn_of_ignored(options, SINK_KEYS, "sink")
    check_schema(to_arrow_schema(schema, timezone="UTC"), chosen.topic)
    return chosen


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """A writer of these columns. Raises ValueError with one sentence for a wrong option."""
    if overwrite:
        raise ValueError("headrace cannot overwrite a topic; use mode('append').")
    return BatchWriter(_checked(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """A writer of these columns. Raises ValueError with one sentence for a wrong option."""
    return StreamWriter(_checked(options, schema))
