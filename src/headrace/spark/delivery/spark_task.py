"""Which task of which write a process is running: read from Spark once, and passed on as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark import TaskContext

NO_BATCH: Final = -1
"""The batch of a task that does not belong to a stream."""


class QueryBatch(NamedTuple):
    """The ids of a query and of its run, and the number of one of its batches."""

    query_id: str = ""
    run_id: str = ""
    batch_id: int = NO_BATCH


_OF_NO_BATCH: Final = QueryBatch()


@dataclass(frozen=True, slots=True)
class SparkTask:
    """One attempt of a task that writes rows.

    `batch` is the stream's batch that it writes a part of, if it does. `write_id` names a batch write, with the same
    value in all of its tasks; it is empty if the rows are a stream's batch. `partition` is the task's number in its
    job, None outside of Spark's tasks.
    """

    batch: QueryBatch = _OF_NO_BATCH
    write_id: str = ""
    partition: int | None = None
    attempt: int = 0


def current_task(*, write_id: str = "", batch: QueryBatch | None = None) -> SparkTask:
    """Returns the task that this process runs. `batch` is given where Spark does not tell its tasks of it, as over
    Connect."""
    context = TaskContext.get()
    if batch is None:
        batch = _OF_NO_BATCH if context is None else _batch_of(context)
    if context is None:
        return SparkTask(batch, write_id)
    return SparkTask(batch, write_id, context.partitionId(), context.attemptNumber())


def _batch_of(context: TaskContext) -> QueryBatch:
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if batch_id is None:
        return _OF_NO_BATCH
    query_id = context.getLocalProperty("sql.streaming.queryId") or ""
    return QueryBatch(query_id, context.getLocalProperty("spark.jobGroup.id") or "", int(batch_id))
