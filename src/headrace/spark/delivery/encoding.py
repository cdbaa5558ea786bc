"""Rows of a task as record batches, and where those went.

Returns values alone: what sends them is a mode's business.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from headrace.arrow.encode import Encoded, Headers, encode_batch, hash_rows
from headrace.client.cluster import Client
from headrace.client.deliveries import Delivery
from headrace.client.errors import UnknownTopicError
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.markers import ROW_HASH_MASK
from headrace.spark.options import SinkOptions

SOURCE_OFFSET: Final = "source_offset"
"""A column that is not written but reported: which record of a source a row is. Topic and partition must be there too,
without nulls."""

SourceRange = tuple[int, int] | None
"""The first and last of the source's offsets of a record batch; None where its rows have no such column."""


def partition_count(client: Client, topic: str) -> int:
    """Returns how many partitions a topic has that is to be written to."""
    try:
        return len(client.topic(topic).partitions)
    except UnknownTopicError:
        # as the connector's producer, which lets the brokers create a topic where they are set to
        client.refresh([topic], auto_create=True)
        return len(client.topics([topic])[0].partitions)


def batch_headers() -> Headers:
    """Returns which batch this task belongs to, and which of its tasks it is, as headers of its records.

    A batch that is repeated has the same two as long as Spark plans it the same, as it does for one that it replays
    from a checkpoint. Outside a stream there is no batch id.
    """
    task = TaskContext.get()
    if task is None:
        return ()
    batch_id = task.getLocalProperty("streaming.sql.batchId")
    marks = [] if batch_id is None else [("headrace.batch_id", str(batch_id).encode())]
    return (*marks, ("headrace.partition", str(task.partitionId()).encode()))


def encoded_rows(
    batches: Iterator[pa.RecordBatch], client: Client, options: SinkOptions
) -> Iterator[tuple[Encoded, SourceRange]]:
    """Yields the rows of one task as record batches, each with the records of a source that it has. Raises ValueError
    for a wrong row."""
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


def _in_order_of_writing(rows: pa.RecordBatch) -> pa.Array:
    """The source offsets of rows as `encode_batch` takes them: by topic, by partition, and otherwise unchanged."""
    places = rows.select(["topic", "partition", SOURCE_OFFSET])
    return places.sort_by([("topic", "ascending"), ("partition", "ascending")]).column(SOURCE_OFFSET)


class HashedRows:
    """The rows of a task, counted and hashed while something else iterates over them."""

    def __init__(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> None:
        self._batches = batches
        self._topic = topic
        self.count = 0
        self.row_hash = 0
        """The sum of the hashes of the rows so far, modulo 2**64."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for rows in self._batches:
            self.count += rows.num_rows
            self.row_hash = (self.row_hash + hash_rows(rows, self._topic)) & ROW_HASH_MASK
            yield rows

    def exhaust(self) -> None:
        """Counts and hashes all rows that are left."""
        for _ in self:
            pass


def span_of(delivery: Delivery, sources: SourceRange) -> Span:
    """Returns where the records of an acknowledged record batch are."""
    place = (delivery.topic, delivery.partition, delivery.base_offset, delivery.record_count)
    return Span(*place) if sources is None else Span(*place, *sources)
