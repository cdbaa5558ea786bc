"""What the tasks of a write say to its driver, where it is written exactly once.

A task that encodes its rows hands them over as record batches; one that has written them names its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from headrace.arrow.encode import Encoded
from headrace.client.cluster import Client
from headrace.client.transactions import OpenTransaction
from headrace.spark.client_settings import ClusterSettings
from headrace.spark.commit_records import Span
from headrace.spark.delivery import PER_TASK, ExactlyOnce
from headrace.spark.options import SinkOptions
from headrace.spark.sink import Sources, encoded_rows
from headrace.spark.turns import TaskNames

NO_BATCH: Final = -1
"""The batch of a task that is not of a stream."""


class Part(Protocol):
    """What one task says of its part of a batch. `batches` are what is still to be sent, and `sources` are of them."""

    query_id: str
    run_id: str
    batch_id: int
    batches: list[Encoded]
    sources: list[Sources]
    row_hash: int | None
    plan: int
    """The number of the query's plan, as a task has seen it that commits itself; 0 if it is not known, or the task took
    the query's id for it."""

    @property
    def rows(self) -> int: ...

    @property
    def opened(self) -> OpenTransaction | None: ...


@dataclass
class EncodedTask(WriterCommitMessage):
    """What one task has to write: whole record batches, and of which query, run and batch they are."""

    query_id: str = ""
    run_id: str = ""
    batch_id: int = NO_BATCH
    batches: list[Encoded] = field(default_factory=list)
    sources: list[Sources] = field(default_factory=list)
    """As many as there are batches, or none."""
    row_hash: int | None = None
    """The sum of the hashes of its rows, where the driver compares that: see `turns.compares_rows`."""
    plan: int = 0

    @property
    def opened(self) -> OpenTransaction | None:
        """The transaction that the rows lie in already, where the task has written them: see `group_commit`."""
        return None

    @property
    def spans(self) -> Sequence[Span]:
        """Where they lie, then."""
        return ()

    @property
    def size(self) -> int:
        return sum(len(batch) for _, _, batch, _ in self.batches)

    @property
    def rows(self) -> int:
        return sum(count for _, _, _, count in self.batches)


_clients: dict[ClusterSettings, Client] = {}
"""One client a worker process and cluster: tasks ask how many partitions topics have."""


def kept_client(options: SinkOptions) -> Client:
    """The worker's client."""
    client = _clients.get(options.cluster)
    if client is None:
        client = _clients[options.cluster] = options.cluster.client(known=True)
    return client


def encode_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> EncodedTask:
    """The rows of one task as record batches. Raises ValueError for a wrong row, or where they are too many."""
    return encoded_task(encoded_rows(batches, kept_client(options), options), options)


def encoded_task(rows: Iterable[tuple[Encoded, Sources]], options: SinkOptions) -> EncodedTask:
    """The same of rows that are encoded."""
    assert options.exactly_once is not None
    done = EncodedTask(*task_names())
    size = 0
    for encoded, sources in rows:
        done.batches.append(encoded)
        done.sources.append(sources)
        size += len(encoded[2])
        check_size(size, options.exactly_once, "One task of a batch")
    return done


_told: list[TaskNames] = []


@contextmanager
def told(names: TaskNames) -> Iterator[None]:
    """Inside the block this task is of these: Spark tells the tasks of a stream itself, but not over Connect."""
    _told.append(names)
    try:
        yield
    finally:
        _told.pop()


def task_names() -> TaskNames:
    """Of which query, run and batch this task is; outside a stream it is of none."""
    if _told:
        return _told[-1]
    task = TaskContext.get()
    batch_id = None if task is None else task.getLocalProperty("streaming.sql.batchId")
    if task is None or batch_id is None:
        return "", "", NO_BATCH
    query_id = task.getLocalProperty("sql.streaming.queryId") or ""
    return query_id, task.getLocalProperty("spark.jobGroup.id") or "", int(batch_id)


def check_size(size: int, how: ExactlyOnce, what: str) -> None:
    if size > how.max_bytes:
        raise ValueError(
            f"{what} has {size} bytes of encoded records or more, and the option exactlyOnceMaxBytes allows "
            f"{how.max_bytes}: make batches smaller (maxOffsetsPerTrigger at the source, kafka.compression.type), "
            "raise the option if the driver's memory allows, or let each task commit itself "
            f"(delivery = {PER_TASK})."
        )


def received(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> list[EncodedTask]:
    """The tasks' messages, if there is one of each and they are not too large together."""
    assert options.exactly_once is not None
    tasks = [message for message in messages if isinstance(message, EncodedTask)]
    if len(tasks) != len(messages):
        raise ValueError(f"{len(messages) - len(tasks)} of {len(messages)} tasks have not said what they encoded.")
    check_size(sum(task.size for task in tasks), options.exactly_once, "A batch")
    return tasks
