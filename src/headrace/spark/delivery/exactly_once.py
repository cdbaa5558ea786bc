"""The mode `exactly-once`: tasks encode, and the driver sends a batch and its mark in one transaction.

Nothing is in Kafka before the driver has all of a batch, so tasks that fail, that Spark runs twice or that wake up late
leave no trace; one transaction decides for the whole batch. The mark (`markers`) goes with it, so that a driver that
comes after a crash knows whether the batch is in the topic. If the coordinator can end groups of transactions, tasks
write their rows themselves, and the driver's one request commits them with the mark (`group_commit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from headrace.spark.delivery.batch_commit import commit_parts
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.group_commit import write_task
from headrace.spark.delivery.markers import write_group_of
from headrace.spark.delivery.messages import EncodedTask, received
from headrace.spark.delivery.spark_task import SparkTask
from headrace.spark.delivery.transactions import (
    abandon_tasks,
    aborted_on_error,
    end_others,
    opened_by,
    producer_of,
    send_parts,
)
from headrace.spark.options import SinkOptions


class WholeBatch:
    """The mode `exactly-once`. Tasks write by themselves where the coordinator ends groups of transactions."""

    def write(self, rows: Iterator[pa.RecordBatch], options: SinkOptions, task: SparkTask) -> EncodedTask:
        return write_task(rows, options, task)

    def commit_batch(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
    ) -> Sequence[Span]:
        return commit_batch(options, messages, batch_id)

    def commit_write(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str
    ) -> Sequence[Span]:
        return commit_write(options, messages, write_id)

    def abort(self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str) -> None:
        abort_batch(options, messages, write_id)


def commit_batch(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int,
    offsets: str | None = None,
) -> Sequence[Span]:
    """Commits a batch of a stream, unless it is in the topic; when this returns it is there, once and whole.

    `offsets` is a digest of where the batch ends in its sources, if the query's checkpoint does not say it.
    Returns where its records are; nothing if it was there before and there is no `commitTopic`. Raises `HistoryError`
    if the mark does not fit, `FencedError` if another driver has the query, `InDoubtError` and other errors of the
    client. After any of them nothing of the batch is visible, or all of it and its mark.
    """
    return commit_parts(options, received(options, messages), batch_id, offsets)


def commit_write(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str) -> Sequence[Span]:
    """Commits all rows of a batch write in one transaction, or in several that end as one: seen together or never.

    A write that is run again is written again, as nothing tells two writes from one that is repeated.
    """
    tasks = received(options, messages)
    opened = opened_by(tasks)
    spans = [span for task in tasks for span in task.spans]
    if not opened and not any(task.batches for task in tasks):
        return []
    with options.cluster.client(known=True) as client:
        try:
            if any(task.batches for task in tasks):
                producer = producer_of(options, client, write_group_of(write_id))
                producer.begin()
            else:  # one of the tasks' own transactions is the parent of all
                first, *opened = opened
                producer = producer_of(options, client, first.transactional_id)
                producer.take_on(first)
            with aborted_on_error(producer):
                spans += send_parts(producer, tasks)
                producer.commit(opened)
        except BaseException:
            abandon_tasks(client, tasks)
            raise
        if opened_by(tasks):
            end_others(client, write_group_of(write_id), tasks)
    return spans


def abort_batch(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str = "") -> None:
    """Aborts what tasks have written after others or the commit have failed, unless it is decided.

    Of a batch write this aborts also what tasks have left open that report nothing: no later batch would do it.
    """
    tasks = [message for message in messages if isinstance(message, EncodedTask)]
    if write_id or opened_by(tasks):
        with options.cluster.client(known=True) as client:
            abandon_tasks(client, tasks)
            if write_id:
                end_others(client, write_group_of(write_id), [])
