"""The mode `at-least-once`: a task writes and flushes its rows, and reports where they are.

A task or a batch that Spark runs again is written again. Within a task the producer is idempotent, so that retries
towards the brokers double nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from headrace.client.deliveries import Delivery
from headrace.client.producer import Producer
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.encoding import SourceRange, encoded_rows, span_of
from headrace.spark.delivery.spark_task import SparkTask
from headrace.spark.options import SinkOptions
from headrace.spark.process_state import this_process


@dataclass
class AcknowledgedTask(WriterCommitMessage):
    """What one task wrote and the brokers acknowledged: how many records, and where they are.

    A span has offsets of the source where the rows had them.
    """

    records: int
    spans: tuple[Span, ...]


class AtLeastOnce:
    """The mode `at-least-once`: there is nothing to commit."""

    def write(self, rows: Iterator[pa.RecordBatch], options: SinkOptions, task: SparkTask) -> AcknowledgedTask:
        return write_rows(rows, options)

    def commit_batch(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
    ) -> Sequence[Span]:
        return _spans(messages)

    def commit_write(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str
    ) -> Sequence[Span]:
        return _spans(messages)

    def abort(self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str) -> None:
        """Does nothing: written records stay."""


def _spans(messages: Sequence[WriterCommitMessage | None]) -> list[Span]:
    return [span for message in messages if isinstance(message, AcknowledgedTask) for span in message.spans]


def write_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> AcknowledgedTask:
    """Writes and flushes the rows of one task. Raises `headrace.client.ClientError`, and ValueError for a wrong row."""
    kept = this_process().producers
    producer = kept.take(options) or _new_producer(options)
    deliveries: list[tuple[Delivery, SourceRange]] = []
    try:
        for (topic, partition, batch, _), sources in encoded_rows(batches, producer.client, options):
            deliveries.append((producer.send_batch(topic, partition, batch), sources))
        producer.flush()
    except BaseException:
        # what this attempt has not sent must not be sent beside the next one
        producer.client.close()
        raise
    kept.put(options, producer)
    spans = tuple(span_of(done, sources) for done, sources in deliveries)
    return AcknowledgedTask(sum(span.count for span in spans), spans)


def _new_producer(options: SinkOptions) -> Producer:
    settings = options.produce
    return Producer(
        options.cluster.client(known=True),
        acks=settings.acks,
        compression=options.compression,
        delivery_timeout_s=settings.delivery_timeout_ms / 1000,
        request_timeout_s=options.cluster.request_timeout_ms / 1000,
    )
