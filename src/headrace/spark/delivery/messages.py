"""What the tasks of a write report to its driver, where it is written exactly once.

A task that encodes its rows hands them over as record batches; one that has written them names its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from headrace.arrow.encode import Encoded
from headrace.client.transacting import OpenTransaction
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.encoding import SourceRange, encoded_rows
from headrace.spark.delivery.spark_task import NO_BATCH, QueryBatch
from headrace.spark.delivery_options import PER_TASK, ExactlyOnce
from headrace.spark.options import SinkOptions
from headrace.spark.process_state import this_process


class TaskMessage(Protocol):
    """What one task reports of its part of a batch: `batches` are still to be sent, and `sources` belong to them."""

    query_id: str
    run_id: str
    batch_id: int
    batches: list[Encoded]
    sources: list[SourceRange]
    row_hash: int | None
    plan: int
    """The number of the query's plan that a task has seen which commits itself; 0 if it is not known, or if the task
    took the query's id to make it."""

    @property
    def rows(self) -> int: ...

    @property
    def opened(self) -> OpenTransaction | None: ...


@dataclass
class EncodedTask(WriterCommitMessage):
    """What one task has to write: whole record batches, and the query, run and batch that they belong to."""

    query_id: str = ""
    run_id: str = ""
    batch_id: int = NO_BATCH
    batches: list[Encoded] = field(default_factory=list)
    sources: list[SourceRange] = field(default_factory=list)
    """As many as there are batches, or none."""
    row_hash: int | None = None
    """The sum of the hashes of its rows, where the driver compares that (`next_write.compares_rows`)."""
    plan: int = 0

    @property
    def opened(self) -> OpenTransaction | None:
        """The open transaction that has the rows already, if the task has written them (`group_commit`)."""
        return None

    @property
    def spans(self) -> Sequence[Span]:
        """Where they are then."""
        return ()

    @property
    def size(self) -> int:
        return sum(len(batch) for _, _, batch, _ in self.batches)

    @property
    def rows(self) -> int:
        return sum(count for _, _, _, count in self.batches)


def encode_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions, batch: QueryBatch) -> EncodedTask:
    """Encodes the rows of one task of a batch. Raises ValueError for a wrong row, or if they are too many."""
    with this_process().writer(options.cluster) as client:
        return encoded_task(encoded_rows(batches, client, options), options, batch)


def encoded_task(rows: Iterable[tuple[Encoded, SourceRange]], options: SinkOptions, batch: QueryBatch) -> EncodedTask:
    """Collects rows that are encoded. Raises ValueError if they are too many."""
    assert options.exactly_once is not None
    done = EncodedTask(*batch)
    size = 0
    for encoded, sources in rows:
        done.batches.append(encoded)
        done.sources.append(sources)
        size += len(encoded[2])
        check_size(size, options.exactly_once, "One task of a batch")
    return done


def check_size(size: int, how: ExactlyOnce, what: str) -> None:
    """Raises ValueError if so many bytes may not pass through the driver."""
    if size > how.max_bytes:
        raise ValueError(
            f"{what} has {size} bytes of encoded records or more, and the option exactlyOnceMaxBytes allows "
            f"{how.max_bytes}: make batches smaller (maxOffsetsPerTrigger at the source, kafka.compression.type), "
            "raise the option if the driver's memory allows, or let each task commit itself "
            f"(delivery = {PER_TASK})."
        )


def received(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> list[EncodedTask]:
    """Returns the tasks' messages. Raises ValueError if one is missing, or if they are too large together."""
    assert options.exactly_once is not None
    tasks = [message for message in messages if isinstance(message, EncodedTask)]
    if len(tasks) != len(messages):
        raise ValueError(f"{len(messages) - len(tasks)} of {len(messages)} tasks sent no commit message.")
    check_size(sum(task.size for task in tasks), options.exactly_once, "A batch")
    return tasks
