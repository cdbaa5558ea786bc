"""What a delivery mode offers to the sink's writers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.spark_task import SparkTask
from headrace.spark.options import SinkOptions


class DeliveryMode(Protocol):
    """What a task does with its rows, and what the driver's side does with the messages of all tasks.

    A message is None where a task failed. Every method raises `ClientError` for what the brokers refuse.
    """

    def write(self, rows: Iterator[pa.RecordBatch], options: SinkOptions, task: SparkTask) -> WriterCommitMessage:
        """Writes or encodes the rows of one task, in a worker. Raises ValueError for a wrong row."""

    def commit_batch(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
    ) -> Sequence[Span]:
        """Commits a stream's batch. Returns where its records are, as far as that is known."""

    def commit_write(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str
    ) -> Sequence[Span]:
        """Commits a batch write, and returns the same."""

    def abort(self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str) -> None:
        """Gives up what tasks have written and nobody has committed, after a task or the commit failed."""
