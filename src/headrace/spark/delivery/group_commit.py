"""Exactly once where the coordinator ends groups of transactions: tasks write while the batch runs, each in a
transaction of its own, and the driver's commit ends them all in one request.

A task's transactional id is `headrace-<query>-<run>-<task>-<attempt>~<salt>`, the salt such that it falls to the
coordinator of the query's own id. The task's message names its transaction, which stays open; the driver takes the
query's id, puts the mark and the sources' offsets into that one's transaction as it does without groups (see
`exactly_once`), and ends it with those of all tasks. A transaction that no message names is aborted: by the driver when
the batch is committed, or by its timeout.

A batch write has no query and no mark: the tasks' ids are `headrace-write-<write>-<task>-<attempt>~<salt>`, and the
transaction of one of them is the parent of all, or one of the driver's with the rows of tasks that have few.

Where the coordinator does not serve this, a task encodes its rows instead and the driver sends them. The two can follow
each other from batch to batch, and from task to task: id and mark are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from headrace.arrow.encode import Encoded
from headrace.client.deliveries import Delivery
from headrace.client.errors import BrokerError
from headrace.client.transacting import TIMEOUT_MS, OpenTransaction
from headrace.client.transaction_groups import child_id, serves_groups
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery import markers
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.encoding import HashedRows, SourceRange, encoded_rows, span_of
from headrace.spark.delivery.messages import EncodedTask, encode_rows, encoded_task
from headrace.spark.delivery.next_write import compares_rows
from headrace.spark.delivery.spark_task import SparkTask
from headrace.spark.delivery.transactions import producer_of
from headrace.spark.options import SinkOptions
from headrace.spark.process_state import this_process
from headrace.wire.errors import ErrorCode

TASK_TIMEOUT_MS: Final = 900_000
"""How long the transaction of a task may be open, from its first row to the end of the batch: what brokers allow by
default (transaction.max.timeout.ms). Where they allow less, it is a minute."""
FEW_ROWS_SHARE: Final = 1024
"""A task of a batch write that has this part of `exactlyOnceMaxBytes`, or less, hands its rows to the driver: a write
may take long, and a transaction may not."""


@dataclass
class WrittenTask(EncodedTask):
    """What one task has written in a transaction that is open, and where."""

    transaction: OpenTransaction | None = None
    places: tuple[Span, ...] = ()

    @property
    def spans(self) -> tuple[Span, ...]:
        return self.places

    @property
    def opened(self) -> OpenTransaction | None:
        return self.transaction

    @property
    def rows(self) -> int:
        return sum(span.count for span in self.places)


def write_task(batches: Iterator[pa.RecordBatch], options: SinkOptions, task: SparkTask) -> EncodedTask:
    """Writes or encodes the rows of one task, and hashes them if the driver compares that.

    The rows are encoded where the coordinator cannot end what the task would write, or if they are few in a batch
    write. Raises ValueError for a wrong row, and `ClientError`: then nothing of the rows is visible, or ever will be.
    """
    if task.write_id or not compares_rows(options):
        return _written_task(batches, options, task)
    rows = HashedRows(batches, options.topic)
    done = _written_task(iter(rows), options, task)
    done.row_hash = rows.row_hash
    return done


def _written_task(batches: Iterator[pa.RecordBatch], options: SinkOptions, task: SparkTask) -> EncodedTask:
    if task.partition is None or not (task.write_id or task.batch.query_id):
        return encode_rows(batches, options, task.batch)
    with this_process().writer(options.cluster) as client:
        rows = encoded_rows(batches, client, options)
        few: list[tuple[Encoded, SourceRange]] = []
        if task.write_id:
            few, is_all = _first_of(rows, options)
            if is_all:
                return encoded_task(few, options, task.batch)
            main_id = stem = markers.write_group_of(task.write_id)
        else:
            main_id = markers.group_of(task.batch.query_id)
            stem = f"{main_id}-{task.batch.run_id}"
        if not serves_groups(client, main_id):
            return encoded_task(chain(few, rows), options, task.batch)
        name = child_id(client, main_id, f"{stem}-{task.partition}-{task.attempt}")
        written = WrittenTask(*task.batch)
        with producer_of(options, client, name, timeout_ms=TASK_TIMEOUT_MS) as producer:
            deliveries: list[tuple[Delivery, SourceRange]] = []
            for (topic, partition, batch, _), sources in chain(few, rows):
                if not deliveries:
                    _begin(producer)
                deliveries.append((producer.send_batch(topic, partition, batch), sources))
            if deliveries:
                written.transaction = producer.hand_over()
                written.places = tuple(span_of(done, sources) for done, sources in deliveries)
        return written


def _first_of(
    rows: Iterator[tuple[Encoded, SourceRange]], options: SinkOptions
) -> tuple[list[tuple[Encoded, SourceRange]], bool]:
    """Returns the first rows of a task of a batch write, up to what it may hand to the driver, and whether these are
    all."""
    assert options.exactly_once is not None
    found: list[tuple[Encoded, SourceRange]] = []
    size = 0
    for each in rows:
        found.append(each)
        size += len(each[0][2])
        if size > options.exactly_once.max_bytes // FEW_ROWS_SHARE:
            return found, False
    return found, True


def _begin(producer: TransactionalProducer) -> None:
    try:
        producer.initialize()
    except BrokerError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT or producer.timeout_ms != TASK_TIMEOUT_MS:
            raise  # also where the sink's option asked for more than the broker allows
        producer.timeout_ms = TIMEOUT_MS
    producer.begin()
