"""Exactly once into topics: tasks encode, and the driver sends a batch and its mark in one transaction.

Nothing is in Kafka before the driver has all of a batch, so tasks that fail, that Spark runs twice or that wake up late
leave no trace; one transaction decides for the whole batch. The mark (see `markers`) goes with it, so that a driver
that comes after a crash knows whether the batch is in the topic. InitProducerId fences the driver before, and returns
when its transaction is over. The process that commits keeps its producer for the next batch, as a hint: where it is
gone, the mark is read again.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from headrace.arrow.encode import Encoded
from headrace.client.cluster import Client
from headrace.client.deliveries import Delivery
from headrace.client.errors import BrokerError, ClientError, FencedError, InDoubtError
from headrace.client.groups import Committed
from headrace.client.transaction_groups import abandon, end_leftovers
from headrace.client.transaction_states import list_transactions
from headrace.client.transactions import TIMEOUT_MS, OpenTransaction, State, TransactionalProducer
from headrace.spark import checkpoint_offsets, commit_records, markers
from headrace.spark.client_settings import ClusterSettings
from headrace.spark.commit_records import CommitRecord, Span
from headrace.spark.delivery import PER_TASK, ExactlyOnce
from headrace.spark.markers import HistoryError, Mark, Step, Turn
from headrace.spark.options import SinkOptions
from headrace.spark.sink import Sources, encoded_rows, span_of
from headrace.spark.turns import TaskNames, last_mark, make_topics, turn_of
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

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

    @property
    def rows(self) -> int: ...


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
        _check_size(size, options.exactly_once, "One task of a batch")
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


def _check_size(size: int, how: ExactlyOnce, what: str) -> None:
    if size > how.max_bytes:
        raise ValueError(
            f"{what} has {size} bytes of encoded records or more, and the option exactlyOnceMaxBytes allows "
            f"{how.max_bytes}: make batches smaller (maxOffsetsPerTrigger at the source, kafka.compression.type), "
            "raise the option if the driver's memory allows, or let each task commit itself "
            f"(delivery = {PER_TASK})."
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
    """The producer of a query, the mark that it left last, and where the records of that batch are. `made` is what the
    producer was made with: the writes of a query may differ in it."""

    producer: TransactionalProducer
    run_id: str
    mark: Mark
    spans: list[Span]
    made: object


_kept: dict[tuple[ClusterSettings, str], _Kept] = {}
"""By cluster and query, in the process beside the driver that commits: one, however many sinks the query has, as they
share its transactional id. Spark may end that process at any time."""


def commit_batch(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int,
    offsets: str | None = None,
) -> Sequence[Span]:
    """Write a batch, unless it is in the topic; what this returns from is there, once and whole.

    `offsets` is a digest of what the batch is of, where the query's checkpoint does not say it.
    Returns where its records are; nothing where it was there before and there is no `commitTopic`. Raises
    `HistoryError` where the mark does not fit, `FencedError` where another driver has the query, `InDoubtError` and
    other errors of the client. After any of them nothing of the batch is visible, or all of it and its mark.
    """
    return commit_parts(options, _received(options, messages), batch_id, offsets)


def commit_parts(
    options: SinkOptions, parts: Sequence[Part], batch_id: int, offsets: str | None = None
) -> Sequence[Span]:
    """The same of what the tasks have said."""
    of = {(part.query_id, part.batch_id) for part in parts}
    if len(of) != 1 or next(iter(of)) != (parts[0].query_id, batch_id) or not parts[0].query_id:
        raise ValueError(f"The tasks of batch {batch_id} say that they are of others: {sorted(of)}.")
    turn = turn_of(options, (parts[0].query_id, parts[0].run_id, batch_id), offsets)
    key = (options.cluster, turn.query_id)
    kept = _kept.pop(key, None)  # kept again only when all is well
    if kept is not None and not (kept.run_id == turn.run_id and turn.follows(kept.mark)):
        # others may have written since: a run that begins asks the cluster, and so does one that has other processes
        kept.producer.client.close()
        kept = None
    client = options.cluster.client(known=True) if kept is None else kept.producer.client
    try:
        batch = Batch(options, client, parts, turn)
        known = None
        if kept is not None and kept.made == batch.made:
            known, batch.mark = kept.producer, kept.mark
            batch.spans = list(kept.spans) if kept.mark.batch_id == batch_id else []
        producer = batch.commit(known)
        if batch.is_repeated:
            abandon_tasks(client, parts)
        elif producer is not known or _opened(parts):
            _end_leftovers(client, batch.group, parts)
    except BaseException:
        abandon_tasks(client, parts)
        client.close()
        raise
    if producer is not None and producer.renews_epoch and batch.mark is not None:
        _kept[key] = _Kept(producer, turn.run_id, batch.mark, batch.spans, batch.made)
    else:
        # with the older protocol the epoch does not tell one batch from the next: the mark does
        client.close()
    return batch.spans


def _opened(parts: Sequence[Part]) -> list[OpenTransaction]:
    """The transactions in which tasks have written, and which nobody has ended."""
    return [part.opened for part in parts if isinstance(part, EncodedTask) and part.opened is not None]


def abandon_tasks(client: Client, parts: Sequence[Part]) -> None:
    """Abort what tasks have written and nobody commits, so that readers do not wait for its timeout; what is decided
    stays."""
    try:
        abandon(client, _opened(parts))
    except ClientError as error:  # nobody is asked twice: the timeout does the same
        warnings.warn(f"What tasks have written stays open until its timeout: {error}.", RuntimeWarning, stacklevel=2)


def _end_leftovers(client: Client, group: str, parts: Sequence[Part]) -> None:
    """Abort what other tasks of the query have left open: those that failed, were killed, or lost to another attempt,
    and those of runs that are over. The batch is committed, whatever comes of this."""
    try:
        end_leftovers(client, group, keep={each.transactional_id for each in _opened(parts)})
    except ClientError as error:
        what = "What other tasks of the query have left open stays so until its timeout"
        warnings.warn(f"{what}: {error}.", RuntimeWarning, stacklevel=2)


def abort_batch(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str = "") -> None:
    """Some tasks have failed, or the commit: what the others have written is aborted, unless it is decided.

    So is what tasks of a batch write have left open that say nothing: no other batch comes that would do it.
    """
    tasks = [message for message in messages if isinstance(message, EncodedTask)]
    if write_id or _opened(tasks):
        with options.cluster.client(known=True) as client:
            abandon_tasks(client, tasks)
            if write_id:
                _end_leftovers(client, write_group_of(write_id), [])


class Batch:
    """One write of a batch on its way into its topics.

    `mark` is the newest one of the query, as far as it is known, and `is_repeated` whether that has this write already;
    `spans` say where the batch's records are, as far as that is known.
    """

    def __init__(self, options: SinkOptions, client: Client, parts: Sequence[Part], turn: Turn) -> None:
        assert options.exactly_once is not None
        self.options = options
        self.how = options.exactly_once
        self.made = (options.produce, options.compression, self.how.mode)
        self.client = client
        self.parts = parts
        self.turn = turn
        self.batch_id = turn.batch_id
        self.query_id = turn.query_id
        self.group = markers.group_of(self.query_id)
        self.mark: Mark | None = None
        self.is_repeated = False
        self.spans: list[Span] = []

    def commit(self, known: TransactionalProducer | None) -> TransactionalProducer | None:
        """Commit with a producer that is `known`, and which has left the `mark`, else with a new one. Returns it, or
        None where the write was done already and there was no need of one."""
        try:
            producer, step = self._take_over() if known is None else (known, self._decide(self.mark))
            if step is Step.SKIP:
                self._pass_over(producer)
            else:
                assert producer is not None
                self._transact(producer)
        except FencedError as newer:
            self._say_who(newer)
            raise
        except BrokerError as error:
            if known is None or error.code != ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise
            # nothing is open: the coordinator forgot the id of a query that rested for so long
            return self.commit(None)
        except InDoubtError as doubt:
            # whoever fenced us has the query: the mark may be read, but not the id taken back
            if isinstance(doubt.__cause__, FencedError):
                self.mark = last_mark(self.client, self.how, self.query_id)
                over = self._decide(self.mark)
            else:
                _, over = self._take_over()
            if over is not Step.SKIP:
                raise
            self._pass_over(None)
            return None
        return producer

    def _pass_over(self, producer: TransactionalProducer | None) -> None:
        """This write was done before. If its batch had others behind it, the mark says that it is being repeated: one
        that ends too early must be noticed when the next batch is written, by whatever run."""
        self.is_repeated = True
        assert self.mark is not None
        self._compare(self.mark)
        if not self.spans:
            self._recall()
        repeated = self._repeated(self.mark)
        if producer is None or repeated == self.mark.repeated:
            return
        mark = replace(self.mark, repeated=repeated)
        at = (self.mark.topic or self.how.marker_topic, markers.PARTITION)
        producer.begin()
        with aborted_on_error(producer):
            producer.send_offsets(self.group, {at: mark.committed()})
            producer.commit()
        self.mark = mark

    def _compare(self, mark: Mark) -> None:
        """Raises `HistoryError` where other rows than those in the topic are passed over, or warns."""
        warning = markers.compare_rows(mark, self.turn, self._rows, self._row_hash, trusted=self.how.trusted)
        if warning:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)

    @property
    def _rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def _row_hash(self) -> int | None:
        """The sum of the hashes of all rows; None where a task has not told its own, or offsets tell more."""
        hashes = [part.row_hash for part in self.parts if part.row_hash is not None]
        if self.turn.offsets or len(hashes) < len(self.parts):
            return None
        return sum(hashes) & markers.ROW_HASH_MASK

    def _repeated(self, mark: Mark) -> int | None:
        """What the mark is to say when this write is passed over."""
        return self.turn.write.number + 1 if self.turn.write.number < mark.last else None

    def _say_who(self, fenced: FencedError) -> None:
        """Adds to the error which run has taken the query over, as far as its mark says it."""
        try:
            mark = markers.read_mark(self.client, self.group, self.how.marker_topic, stable=False)
        except ClientError as error:
            fenced.add_note(f"Which run has taken over is not known: {error}.")
            return
        if mark is not None and mark.run_id != self.turn.run_id:
            fenced.add_note(
                f"Run {mark.run_id} has committed batch {mark.batch_id} of query {self.query_id}, and this is run "
                f"{self.turn.run_id}: two drivers have one checkpoint, or one has a copy of the other's."
            )

    def _recall(self) -> None:
        """Where the batch is that is in the topic, perhaps by another driver: the commit topic says it."""
        self.spans = []
        if self.how.commit_topic:
            record = commit_records.read_last(self.client, self.how.commit_topic, self.query_id)
            if record is not None and record.mark.batch_id == self.batch_id:
                self.spans = list(record.spans or ())

    def _decide(self, mark: Mark | None) -> Step:
        return markers.decide(mark, self.turn, trusted=self.how.trusted)

    def _take_over(self) -> tuple[TransactionalProducer | None, Step]:
        """A producer that is alone with this query's id, and whether the write is still to be done; no producer where
        that is clear without one.

        The mark is read before, so that a stale driver fences nobody, and after, when no transaction is open any more:
        one that was open may have been decided, and a driver that was faster may have committed this batch. Before, to
        wait for an open one would be to wait for a dead driver's timeout.
        """
        make_topics(self.client, self.how)
        mark = markers.read_mark(self.client, self.group, self.how.marker_topic, stable=False)
        if mark is not None and mark.batch_id >= self.batch_id:
            self.mark = mark
            if self._decide(mark) is Step.SKIP and self._repeated(mark) == mark.repeated:
                return None, Step.SKIP
        producer = producer_of(self.options, self.client, self.group)
        producer.initialize()
        self.mark = last_mark(self.client, self.how, self.query_id)
        step = self._decide(self.mark)
        if step is Step.WRITE:
            self._check_tasks()
            if self.mark is not None and self.mark.batch_id == self.batch_id:
                self._recall()
        return producer, step

    def _check_tasks(self) -> None:
        """No task may have committed a part of this batch that this driver knows nothing of.

        Tasks that could still commit one are fenced. Where each task commits itself, those that have reported are
        known.
        """
        if not self.client.supports(ApiKey.LIST_TRANSACTIONS):
            return  # nor could tasks commit themselves
        known = len(self.parts) if self.how.mode == PER_TASK else 0
        begins = markers.task_group_of(self.query_id, 0)[:-1]
        for group in _transactional_ids(self.client, begins):
            if int(group.removeprefix(begins)) < known:
                continue
            producer_of(self.options, self.client, group).initialize()
            mark = markers.read_mark(self.client, group, self.how.marker_topic, stable=True)
            if mark is not None and mark.place >= self.turn.place:
                why = (
                    f"was planned with more tasks before than the {known} of now: run it as before"
                    if known
                    else f"was begun with delivery {PER_TASK}: let it end with that before another is chosen"
                )
                raise HistoryError(
                    f"Batch {self.batch_id} of query {self.query_id} {why}; a part of it is in the topic, and nothing "
                    "was added to it."
                )

    def _transact(self, producer: TransactionalProducer) -> None:
        """The rows, the mark and the sources' offsets, all or none."""
        counts = {"tasks": len(self.parts), "rows": self._rows}
        mark = self.turn.marked(self.mark, **counts, mode=self.how.mode, row_hash=self._row_hash)
        groups: dict[str, dict[tuple[str, int], int | Committed]] = {
            self.group: {(self.how.marker_topic, markers.PARTITION): mark.committed()}
        }
        for end in checkpoint_offsets.source_ends(self.how.checkpoint, self.batch_id):
            if positions := checkpoint_offsets.of_cluster(self.client, end):
                groups.setdefault(end.group, {}).update(positions)
        producer.begin()
        with aborted_on_error(producer):
            spans = [*self.spans, *send_parts(producer, self.parts), *self._written()]
            if self.how.commit_topic:
                self._record(producer, mark, spans)
            for group, offsets in groups.items():
                producer.send_offsets(group, offsets)
            producer.commit(_opened(self.parts))
        self.mark, self.spans = mark, spans

    def _written(self) -> list[Span]:
        """Where tasks have written by themselves what this commits."""
        return [span for part in self.parts if isinstance(part, EncodedTask) for span in part.spans]

    def _record(self, producer: TransactionalProducer, mark: Mark, spans: list[Span]) -> None:
        # where each task sends its own, the driver does not know of all where they went
        known = None if self.how.mode == PER_TASK else tuple(spans)
        value = CommitRecord(mark, known).value()
        producer.send(self.how.commit_topic, value, key=self.query_id.encode(), partition=commit_records.PARTITION)


def settled_mark(options: SinkOptions, query_id: str) -> Mark | None:
    """The query's mark, when no transaction of an earlier driver is open any more, and none of it can come."""
    assert options.exactly_once is not None
    with options.cluster.client(known=True) as client:
        make_topics(client, options.exactly_once)
        producer_of(options, client, markers.group_of(query_id)).initialize()
        return last_mark(client, options.exactly_once, query_id)


def _transactional_ids(client: Client, begins: str) -> list[str]:
    """The ids of tasks of a query, that the cluster remembers."""
    pattern = f"{re.escape(begins)}[0-9]+" if client.supports(ApiKey.LIST_TRANSACTIONS, 2) else None
    names = [found.transactional_id for found in list_transactions(client, pattern=pattern)]
    return [name for name in names if name.startswith(begins) and name[len(begins) :].isdecimal()]


def producer_of(
    options: SinkOptions, client: Client, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS
) -> TransactionalProducer:
    """A transactional producer with the sink's settings; where these do not say for how long its transaction may be
    open, `timeout_ms` does."""
    return TransactionalProducer(
        client,
        transactional_id,
        timeout_ms=options.produce.transaction_timeout_ms or timeout_ms,
        request_timeout_s=options.cluster.request_timeout_ms / 1000,
        delivery_timeout_s=options.produce.delivery_timeout_ms / 1000,
        compression=options.compression,
    )


def send_parts(producer: TransactionalProducer, parts: Sequence[Part]) -> list[Span]:
    """Everything the tasks have encoded, acknowledged when this returns, and where it is."""
    producer.join((topic, partition) for part in parts for topic, partition, _, _ in part.batches)
    sent: list[tuple[Delivery, Sources]] = []
    for part in parts:
        for place, (topic, partition, batch, _) in enumerate(part.batches):
            sources = part.sources[place] if part.sources else None
            sent.append((producer.send_batch(topic, partition, batch), sources))
    producer.flush()
    return commit_records.joined(span_of(done, sources) for done, sources in sent)


@contextmanager
def aborted_on_error(producer: TransactionalProducer) -> Iterator[None]:
    """A transaction that cannot be committed is aborted, so that readers do not wait for its timeout; where a newer
    producer has the id, this says so."""
    try:
        yield
    except BaseException as error:
        if producer.state in (State.OPEN, State.FAILED):
            try:
                producer.abort()
            except FencedError as fenced:
                raise fenced from error
            except ClientError as second:
                error.add_note(f"the transaction could not be aborted and ends by its timeout: {second}")
        raise


# -- a batch write


def write_group_of(write_id: str) -> str:
    """The transactional id of a batch write; those of its tasks begin with it."""
    return f"headrace-write-{write_id}"


def commit_write(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], write_id: str) -> Sequence[Span]:
    """All rows of a batch write in one transaction, or as one: seen together or never.

    Whoever runs the write again writes it again, as nothing tells two writes from one that is repeated.
    """
    tasks = _received(options, messages)
    opened = _opened(tasks)
    spans = [span for task in tasks for span in task.spans]
    if not opened and not any(task.batches for task in tasks):
        return []
    with options.cluster.client(known=True) as client:
        try:
            if any(task.batches for task in tasks):
                producer = producer_of(options, client, write_group_of(write_id))
                producer.begin()
            else:  # one of the tasks' own transactions stands for all
                first, *opened = opened
                producer = producer_of(options, client, first.transactional_id)
                producer.take_on(first)
            with aborted_on_error(producer):
                spans += send_parts(producer, tasks)
                producer.commit(opened)
        except BaseException:
            abandon_tasks(client, tasks)
            raise
        if _opened(tasks):
            _end_leftovers(client, write_group_of(write_id), tasks)
    return spans


class WholeBatch:
    """The delivery `exactly-once`. Tasks write by themselves where the coordinator ends groups."""

    def write(self, rows: Iterator[pa.RecordBatch], options: SinkOptions, write_id: str) -> EncodedTask:
        from headrace.spark.group_commit import write_task

        return write_task(rows, options, write_id)

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
