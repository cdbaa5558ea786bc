"""The mode `exactly-once-per-task`: each task sends its rows and a mark of its own in one transaction.

No byte passes through the driver, and a batch is seen task by task. A task that Spark runs again finds its mark, and
does not send again; but then it must have the rows that it had. The mark has their number and the sum of their hashes,
so that rows which a repeated batch gives to other tasks end the query: they would be lost, or be there twice.

Before the first task of a run commits, it makes the query's plan that of its run: see `plans`. If a run before has
committed some tasks of the batch, the others leave their transactions to the driver.

When all tasks are done the driver commits the mark of the query, which says that the whole batch is there and how it
was delivered. As long as that is not so, the batch must end as it began. A transaction of `exactly_once` that is open
is ended by the first task, which takes its id for the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from headrace.arrow.encode import Encoded
from headrace.client.cluster import Client
from headrace.client.errors import FencedError, InDoubtError, ProtocolMismatchError
from headrace.client.transacting import OpenTransaction
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery import markers, plans
from headrace.spark.delivery.batch_commit import commit_parts
from headrace.spark.delivery.commit_records import Span
from headrace.spark.delivery.encoding import HashedRows, SourceRange, encoded_rows
from headrace.spark.delivery.markers import HistoryError, Mark, Plan, Step
from headrace.spark.delivery.next_write import compares_rows, last_mark, make_topics, next_write_of
from headrace.spark.delivery.spark_task import QueryBatch, SparkTask
from headrace.spark.delivery.transactions import abandon_tasks, aborted_on_error, producer_of
from headrace.spark.delivery_options import PER_TASK
from headrace.spark.options import SinkOptions
from headrace.spark.process_state import this_process
from headrace.wire.apis import ApiKey

TIMEOUT_MS: Final = 900_000
"""A task's transaction is open while the task runs; Kafka refuses a longer timeout unless `transaction.max.timeout.ms`
allows it.
"""


@dataclass
class CommittedTask(WriterCommitMessage):
    """What one task has committed, or found committed."""

    query_id: str
    run_id: str
    batch_id: int
    rows: int = 0
    row_hash: int | None = None
    batches: list[Encoded] = field(default_factory=list)
    """Always empty: the task has sent its rows itself."""
    sources: list[SourceRange] = field(default_factory=list)
    plan: int = 0
    opened: OpenTransaction | None = None
    """What the driver is to commit."""


class TaskWrite:
    """One attempt of a task, of a stream's batch or, where it has a `write_id`, of a batch write."""

    def __init__(self, options: SinkOptions, client: Client, task: SparkTask) -> None:
        assert options.exactly_once is not None
        self.options = options
        self.how = options.exactly_once
        self.client = client
        self.task = task.partition or 0
        self.of_query = not task.write_id
        self.query_id, self.run_id, self.batch_id = task.batch if self.of_query else QueryBatch(batch_id=0)
        # the checkpoint may be out of a worker's reach: the driver compares offsets, and here rows are
        self.upcoming = next_write_of(options, QueryBatch(self.query_id, self.run_id, self.batch_id), "")
        if task.write_id:
            self.group = f"headrace-write-{task.write_id}-task-{self.task}"
        else:
            self.group = markers.task_group_of(self.query_id, self.task)

    def run(self, batches: Iterator[pa.RecordBatch]) -> CommittedTask:
        """Commit the rows, unless they are in the topic. Raises `HistoryError` where that would lose or double rows,
        `FencedError` where a later attempt is under way, and other errors of the client."""
        if not self.client.supports(ApiKey.LIST_TRANSACTIONS):
            raise ProtocolMismatchError(f"delivery {PER_TASK} needs brokers of Apache Kafka 3.0 or later")
        make_topics(self.client, self.how)
        rows = HashedRows(batches, self.options.topic)
        plan, took_over = None, False
        if self.of_query:
            plan, took_over = self._planned()
            if plan is None:
                return self._repeated(rows)
        mark, opened = self._mark(stable=False), None
        producer = None
        if mark is None or mark.place < self.upcoming.place:
            producer = producer_of(self.options, self.client, self.group, timeout_ms=TIMEOUT_MS)
            producer.initialize()
            # earlier attempts are fenced now, and what they had open is over; who takes over from here on fences this
            if self.of_query:
                of_query = last_mark(self.client, self.how, self.query_id)
                if self._is_done(of_query):
                    return self._repeated(rows)
                plan = plans.check_owner(of_query, self.upcoming)
            mark = self._mark(stable=True)
        if mark is not None and mark.place >= self.upcoming.place:
            self._compare(mark, rows)
        else:
            assert producer is not None
            others = plan is not None and plan.place == self.upcoming.place and plan.kept > 0
            opened = self._commit(producer, rows, is_last=not others)
        done = self._done(rows)
        done.plan, done.opened = 0 if plan is None or took_over else plan.number, opened
        return done

    def _repeated(self, rows: HashedRows) -> CommittedTask:
        """The whole batch is there: the driver compares it with what the tasks would have written, if it has to."""
        if compares_rows(self.options):
            rows.exhaust()
            return self._done(rows)
        return CommittedTask(self.query_id, self.run_id, self.batch_id)

    def _done(self, rows: HashedRows) -> CommittedTask:
        return CommittedTask(self.query_id, self.run_id, self.batch_id, rows.count, rows.row_hash)

    def _mark(self, *, stable: bool) -> Mark | None:
        return markers.read_mark(self.client, self.group, self.how.marker_topic, stable=stable)

    def _planned(self) -> tuple[Plan | None, bool]:
        """The plan of this run, which has room for this task, or None if the query has the whole batch; and whether
        this took the query's id. Raises `HistoryError` where the batch cannot be the next one, and `FencedError` if
        another run has taken over.

        To take over is to take the query's id: a driver of another delivery that has a transaction open is fenced.
        """
        retry = self.client.router.retry()
        stable = took_over = False
        while True:
            mark = markers.read_mark(self.client, markers.group_of(self.query_id), self.how.marker_topic, stable=stable)
            plan = plans.plan_of(mark)
            is_own = plan is not None and plan.run_id == self.run_id and self.task < plan.tasks
            if not stable and is_own and mark is not None and not self._is_after(mark):
                # Spark knows that what comes before is committed: its end is on its way to the group, and is not
                # fenced, as the driver goes on with this producer
                stable = True
                continue
            plans.check_not_replaced(mark, self.upcoming)
            if mark is not None and mark.place >= self.upcoming.place and self._is_done(mark):
                return None, took_over
            if is_own and not self._is_done(mark):
                return plan, took_over
            took_over = True
            try:
                return plans.take_over(self.options, self.client, self.upcoming, self.task), took_over
            except (FencedError, InDoubtError) as error:
                self.client.run(retry.pause(error))  # another task of this run, perhaps
                stable = True

    def _is_done(self, mark: Mark | None) -> bool:
        """Whether the query has this write. Raises `HistoryError` where it cannot be the next one."""
        return markers.decide(mark, self.upcoming, trusted=self.how.trusted) is Step.SKIP

    def _is_after(self, mark: Mark) -> bool:
        """Whether the mark is that of the write before this one, or a newer one."""
        batch_id, number = self.upcoming.place
        return mark.place >= ((batch_id, number - 1) if number else (batch_id - 1, 0))

    def _compare(self, mark: Mark, rows: HashedRows) -> None:
        """The rows of this attempt must be those that are in the topic."""
        if mark.place > self.upcoming.place:
            raise HistoryError(
                f"Task {self.task} of query {self.query_id} has committed batch {mark.batch_id} already, and this is "
                f"batch {self.batch_id}: another driver has gone on with this checkpoint; nothing was written."
            )
        rows.exhaust()
        if (rows.count, rows.row_hash) != (mark.rows, mark.row_hash):
            raise HistoryError(
                f"Task {self.task} of batch {self.batch_id} has other rows ({rows.count}) than those that it committed "
                f"before ({mark.rows}): the batch was planned in another way this time, and delivery {PER_TASK} would "
                "lose or double rows; run it as before (spark.sql.shuffle.partitions, cores, the query), or take "
                "delivery exactly-once for a new query."
            )

    def _commit(self, producer: TransactionalProducer, rows: HashedRows, *, is_last: bool) -> OpenTransaction | None:
        """The rows and their mark; `is_last` says whether this decides of them, else it returns what the driver is to
        decide of."""
        producer.begin()
        try:
            with aborted_on_error(producer):
                for (topic, partition, batch, _), _ in encoded_rows(iter(rows), self.client, self.options):
                    producer.send_batch(topic, partition, batch)
                producer.flush()
                writes = (self.upcoming.write,) if self.of_query else ()
                mark = Mark(self.batch_id, self.run_id, 0, rows.count, PER_TASK, rows.row_hash, writes=writes)
                producer.send_offsets(self.group, {(self.how.marker_topic, markers.PARTITION): mark.committed()})
                if not is_last:
                    return producer.hand_over()
                producer.commit()
        except InDoubtError as doubt:
            if not isinstance(doubt.__cause__, FencedError):
                producer.initialize()
            found = self._mark(stable=True)
            if found is None or found.place != self.upcoming.place:
                raise
        return None


class PerTask:
    """The mode `exactly-once-per-task`."""

    def write(self, rows: Iterator[pa.RecordBatch], options: SinkOptions, task: SparkTask) -> CommittedTask:
        with this_process().writer(options.cluster) as client:
            return TaskWrite(options, client, task).run(rows)

    def commit_batch(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
    ) -> Sequence[Span]:
        """The mark of the query, and the sources' offsets: the batch is whole."""
        tasks = [message for message in messages if isinstance(message, CommittedTask)]
        if len(tasks) != len(messages):
            raise ValueError(f"{len(messages) - len(tasks)} of {len(messages)} tasks sent no commit message.")
        return commit_parts(options, tasks, batch_id)

    def commit_write(
        self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str
    ) -> Sequence[Span]:
        """All tasks have committed, and nobody asks for a mark of them together."""
        return []

    def abort(self, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str) -> None:
        """What tasks have committed stays, and their next attempts fence the rest; what they have left to the driver is
        aborted."""
        left = [message for message in messages if isinstance(message, CommittedTask) and message.opened is not None]
        if left:
            with options.cluster.client(known=True) as client:
                abandon_tasks(client, left)
