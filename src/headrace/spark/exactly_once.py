"""Exactly once into topics: tasks encode, and the driver sends a batch and its mark in one transaction.

Nothing is in Kafka before the driver has all of a batch, so tasks that fail, that Spark runs twice or that wake up late
leave no trace; one transaction decides for the whole batch. The mark (see `markers`) goes with it, so that a driver
that comes after a crash knows whether the batch is in the topic. InitProducerId fences the driver before, and returns
when its transaction is over. The process that commits keeps its producer for the next batch, as a hint: where it is
gone, the mark is read again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from headrace.arrow.encode import Encoded
from headrace.client.cluster import Client
from headrace.client.errors import ClientError, FencedError, InDoubtError
from headrace.client.groups import Committed
from headrace.client.transaction_groups import abandon, end_leftovers
from headrace.client.transactions import OpenTransaction, State, TransactionalProducer
from headrace.spark import checkpoint_offsets, markers
from headrace.spark.client_settings import ClusterSettings
from headrace.spark.delivery import ExactlyOnce
from headrace.spark.markers import Step
from headrace.spark.options import SinkOptions
from headrace.spark.sink import encoder, partition_count

NO_BATCH: Final = -1
"""The batch of a task that is not of a stream."""


@dataclass
class EncodedTask(WriterCommitMessage):
    """What one task has to write: whole record batches, and of which query, run and batch they are."""

    query_id: str = ""
    run_id: str = ""
    batch_id: int = NO_BATCH
    batches: list[Encoded] = field(default_factory=list)

    @property
    def opened(self) -> OpenTransaction | None:
        """The transaction that the rows lie in already, where the task has written them: see `group_commit`."""
        return None

    @property
    def size(self) -> int:
        return sum(len(batch) for _, _, batch, _ in self.batches)

    @property
    def rows(self) -> int:
        return sum(count for _, _, _, count in self.batches)


_clients: dict[ClusterSettings, Client] = {}
"""One client a worker process and cluster: tasks ask how many partitions topics have."""


def task_client(options: SinkOptions) -> Client:
    """The client of this worker process."""
    client = _clients.get(options.cluster)
    if client is None:
        client = _clients[options.cluster] = options.cluster.client(known=True)
    return client


def encode_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> EncodedTask:
    """The rows of one task as record batches. Raises ValueError for a wrong row, or where they are too many."""
    assert options.exactly_once is not None
    encoded_rows = encoder(task_client(options), options)
    done = of_this_task()
    size = 0
    for rows in batches:
        for encoded in encoded_rows(rows):
            done.batches.append(encoded)
            size += len(encoded[2])
            _check_size(size, options.exactly_once, "One task of a batch")
    return done


def of_this_task() -> EncodedTask:
    """A message without rows; outside a stream it says of no batch."""
    task = TaskContext.get()
    batch_id = None if task is None else task.getLocalProperty("streaming.sql.batchId")
    if task is None or batch_id is None:
        return EncodedTask()
    query_id = task.getLocalProperty("sql.streaming.queryId") or ""
    return EncodedTask(query_id, task.getLocalProperty("spark.jobGroup.id") or "", int(batch_id))


def _check_size(size: int, how: ExactlyOnce, what: str) -> None:
    if size > how.max_bytes:
        raise ValueError(
            f"{what} has {size} bytes of encoded records or more, and the option exactlyOnceMaxBytes allows "
            f"{how.max_bytes}: make batches smaller (maxOffsetsPerTrigger at the source, kafka.compression.type), "
            "or raise the option if the driver's memory allows."
        )


def _received(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> list[EncodedTask]:
    """The tasks' messages, if there is one of each and they are not too large together."""
    assert options.exactly_once is not None
    tasks = [message for message in messages if isinstance(message, EncodedTask)]
    if len(tasks) != len(messages):
        raise ValueError(f"{len(messages) - len(tasks)} of {len(messages)} tasks have not said what they encoded.")
    _check_size(sum(task.size for task in tasks), options.exactly_once, "A batch")
    return tasks


# -- a batch of a stream


@dataclass(slots=True)
class _Kept:
    """The producer of a query, and the last batch that it committed."""

    producer: TransactionalProducer
    batch_id: int


_kept: dict[tuple[SinkOptions, str], _Kept] = {}
"""By query, in the process beside the driver that commits. Spark may end that process at any time."""


def commit_batch(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
    """Write a batch, unless it is in the topic; what this returns from is there, once and whole.

    Raises `HistoryError` where the mark does not fit, `FencedError` where another driver has the query, `InDoubtError`
    and other errors of the client. After any of them nothing of the batch is visible, or all of it and its mark.
    """
    tasks = _received(options, messages)
    of = {(task.query_id, task.batch_id) for task in tasks}
    if len(of) != 1 or next(iter(of)) != (tasks[0].query_id, batch_id) or not tasks[0].query_id:
        raise ValueError(f"The tasks of batch {batch_id} say that they are of others: {sorted(of)}.")
    key = (options, tasks[0].query_id)
    kept = _kept.pop(key, None)  # kept again only when all is well
    client = options.cluster.client(known=True) if kept is None else kept.producer.client
    if kept is not None and kept.batch_id == batch_id:
        abandon_tasks(client, tasks)
        _kept[key] = kept
        return
    try:
        batch = Batch(options, client, tasks, batch_id)
        known = kept.producer if kept is not None and kept.batch_id + 1 == batch_id else None
        producer = batch.commit(known)
        if producer is None:
            abandon_tasks(client, tasks)
        elif known is None or _opened(tasks):
            _end_leftovers(client, batch.group, tasks)
    except BaseException:
        abandon_tasks(client, tasks)
        client.close()
        raise
    if producer is not None and producer.renews_epoch:
        _kept[key] = _Kept(producer, batch_id)
    else:
        # with the older protocol the epoch does not tell one batch from the next: the mark does
        client.close()


def _opened(tasks: Sequence[EncodedTask]) -> list[OpenTransaction]:
    return [task.opened for task in tasks if task.opened is not None]


def abandon_tasks(client: Client, tasks: Sequence[EncodedTask]) -> None:
    """Abort what tasks have written and nobody commits, so that readers do not wait for its timeout; what is decided
    stays."""
    try:
        abandon(client, _opened(tasks))
    except ClientError:
        pass  # nobody is asked twice: the timeout does the same


def _end_leftovers(client: Client, group: str, tasks: Sequence[EncodedTask]) -> None:
    """Abort what other tasks of the query have left open: those that failed, were killed, or lost to another attempt,
    and those of runs that are over. The batch is committed, whatever comes of this."""
    try:
        end_leftovers(client, group, keep={each.transactional_id for each in _opened(tasks)})
    except ClientError:
        pass  # their timeout does the same


def abort_batch(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Some tasks have failed, or the commit: what the others have written is aborted, unless it is decided."""
    tasks = [message for message in messages if isinstance(message, EncodedTask)]
    if _opened(tasks):
        with options.cluster.client(known=True) as client:
            abandon_tasks(client, tasks)


class Batch:
    """One batch on its way into its topics."""

    def __init__(self, options: SinkOptions, client: Client, tasks: list[EncodedTask], batch_id: int) -> None:
        assert options.exactly_once is not None
        self.options = options
        self.how = options.exactly_once
        self.client = client
        self.tasks = tasks
        self.batch_id = batch_id
        self.query_id = tasks[0].query_id
        self.group = markers.group_of(self.query_id)

    def commit(self, producer: TransactionalProducer | None) -> TransactionalProducer | None:
        """Commit with the producer of the batch before, else with a new one; returns it, or None where the batch was
        in the topic already."""
        if producer is None:
            producer = self._take_over()
            if producer is None:
                return None
        try:
            self._transact(producer)
        except InDoubtError as doubt:
            # whoever fenced us has the query: the mark may be read, but not the id taken back
            fenced = isinstance(doubt.__cause__, FencedError)
            over = self._step() if fenced else Step.SKIP if self._take_over() is None else Step.WRITE
            if over is Step.SKIP:
                return None
            raise
        return producer

    def _step(self) -> Step:
        marked = markers.read_marker(self.client, self.group, self.how.marker_topic, stable=True)
        return self._decide(marked)

    def _decide(self, marked: int | None) -> Step:
        return markers.decide(marked, self.batch_id, query_id=self.query_id, trusted=self.how.trusted)

    def _take_over(self) -> TransactionalProducer | None:
        """A producer that is alone with this query's id; None where the batch is in the topic already.

        The mark is read before, so that a stale driver fences nobody, and after, when no transaction is open any more:
        one that was open may have been decided, and a driver that was faster may have committed this batch. Before, to
        wait for an open one would be to wait for a dead driver's timeout.
        """
        partition_count(self.client, self.how.marker_topic)  # made, where brokers make topics
        marked = markers.read_marker(self.client, self.group, self.how.marker_topic, stable=False)
        if marked is not None and marked >= self.batch_id and self._decide(marked) is Step.SKIP:
            return None
        producer = _producer(self.options, self.client, self.group)
        producer.initialize()
        return None if self._step() is Step.SKIP else producer

    def _transact(self, producer: TransactionalProducer) -> None:
        """The rows, the mark and the sources' offsets, all or none."""
        rows = sum(task.rows for task in self.tasks)
        mark = markers.marker(self.batch_id, self.tasks[0].run_id, len(self.tasks), rows)
        groups: dict[str, dict[tuple[str, int], int | Committed]] = {
            self.group: {(self.how.marker_topic, markers.PARTITION): mark}
        }
        for end in checkpoint_offsets.source_ends(self.how.checkpoint, self.batch_id):
            if positions := checkpoint_offsets.of_cluster(self.client, end):
                groups.setdefault(end.group, {}).update(positions)
        _send(producer, self.tasks, groups)


def _producer(options: SinkOptions, client: Client, transactional_id: str) -> TransactionalProducer:
    return TransactionalProducer(
        client,
        transactional_id,
        request_timeout_s=options.cluster.request_timeout_ms / 1000,
        delivery_timeout_s=options.produce.delivery_timeout_ms / 1000,
    )


def _send(
    producer: TransactionalProducer,
    tasks: Sequence[EncodedTask],
    groups: dict[str, dict[tuple[str, int], int | Committed]],
) -> None:
    """One transaction. Where it cannot be committed it is aborted, so that readers do not wait for its timeout."""
    producer.begin()
    try:
        batches = [encoded for task in tasks for encoded in task.batches]
        producer.join((topic, partition) for topic, partition, _, _ in batches)
        for topic, partition, batch, _ in batches:
            producer.send_batch(topic, partition, batch)
        producer.flush()
        for group, offsets in groups.items():
            producer.send_offsets(group, offsets)
        producer.commit(_opened(tasks))
    except BaseException as error:
        if producer.state in (State.OPEN, State.FAILED):
            _abort(producer, error)
        raise


def _abort(producer: TransactionalProducer, error: BaseException) -> None:
    """Abort because of an error; if it was that a newer producer has the id, say so."""
    try:
        producer.abort()
    except FencedError as fenced:
        raise fenced from error
    except ClientError as second:
        error.add_note(f"the transaction could not be aborted and ends by its timeout: {second}")


# -- a batch write


def commit_write(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """All rows of a batch write in one transaction: seen together or never.

    Whoever runs the write again writes it again, as nothing tells two writes from one that is repeated; but where the
    write is said to be all of a stream's batch, it is committed as that.
    """
    assert options.exactly_once is not None
    if (batch_id := options.exactly_once.of_batch) is not None:
        # the number is no part of what a query's batches have in common
        query = replace(options, exactly_once=replace(options.exactly_once, of_batch=None))
        commit_batch(query, messages, batch_id)
        return
    tasks = _received(options, messages)
    if not any(task.batches for task in tasks):
        return
    with options.cluster.client(known=True) as client:
        _send(_producer(options, client, f"headrace-write-{uuid.uuid4()}"), tasks, {})
