"""Commits a batch of a query and its mark in one transaction, by whichever mode its tasks have written.

InitProducerId fences the driver before, and returns when its transaction is over. Then the mark says whether the batch
is in the topic. The process that commits keeps its producer for the next batch, as a hint: where it is gone, the mark
is read again.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, ClientError, FencedError, InDoubtError
from headrace.client.groups import Committed
from headrace.client.transactions import TransactionalProducer
from headrace.spark import checkpoint_offsets
from headrace.spark.delivery import commit_records, markers, plans
from headrace.spark.delivery.commit_records import CommitRecord, Span
from headrace.spark.delivery.markers import Mark, NextWrite, Step
from headrace.spark.delivery.messages import EncodedTask, TaskMessage
from headrace.spark.delivery.next_write import last_mark, make_topics, next_write_of
from headrace.spark.delivery.query_producer import QueryProducer
from headrace.spark.delivery.spark_task import QueryBatch
from headrace.spark.delivery.transactions import (
    abandon_tasks,
    aborted_on_error,
    end_others,
    opened_by,
    producer_of,
    send_parts,
)
from headrace.spark.delivery_options import PER_TASK
from headrace.spark.options import SinkOptions
from headrace.spark.process_state import this_process
from headrace.wire.errors import ErrorCode


def commit_parts(
    options: SinkOptions, parts: Sequence[TaskMessage], batch_id: int, offsets: str | None = None
) -> Sequence[Span]:
    """Commits what the tasks have reported of a batch, unless it is in the topic; see `exactly_once.commit_batch`."""
    of = {(part.query_id, part.batch_id) for part in parts}
    if len(of) != 1 or next(iter(of)) != (parts[0].query_id, batch_id) or not parts[0].query_id:
        raise ValueError(f"The tasks of batch {batch_id} say that they are of others: {sorted(of)}.")
    upcoming = next_write_of(options, QueryBatch(parts[0].query_id, parts[0].run_id, batch_id), offsets)
    key, query_producers = (options.cluster, upcoming.query_id), this_process().query_producers
    kept = query_producers.take(key)  # put back only when all is well
    if kept is not None and not (
        kept.run_id == upcoming.run_id and upcoming.follows(kept.mark) and _has_plan(kept, parts)
    ):
        # others may have written since: a run that begins asks the cluster, and so does one that has other processes
        kept.producer.client.close()
        kept = None
    client = options.cluster.client(known=True) if kept is None else kept.producer.client
    try:
        batch = Batch(options, client, parts, upcoming)
        known = None
        if kept is not None and kept.settings == batch.settings:
            known, batch.mark = kept.producer, kept.mark
            batch.spans = list(kept.spans) if kept.mark.batch_id == batch_id else []
        producer = batch.commit(known)
        if batch.is_repeated:
            abandon_tasks(client, parts)
        elif producer is not known or opened_by(parts):
            end_others(client, batch.group, parts)
    except BaseException:
        abandon_tasks(client, parts)
        client.close()
        raise
    if producer is not None and producer.renews_epoch and batch.mark is not None:
        query_producers.put(key, QueryProducer(producer, upcoming.run_id, batch.mark, batch.spans, batch.settings))
    else:
        # with the older protocol the epoch does not tell one batch from the next: the mark does
        client.close()
    return batch.spans


def _has_plan(kept: QueryProducer, parts: Sequence[TaskMessage]) -> bool:
    """Whether no task has taken the query's id since, to leave another plan."""
    plan = kept.mark.plan
    return all(isinstance(part, EncodedTask) or (plan is not None and plan.number == part.plan) for part in parts)


class Batch:
    """One write of a batch on its way into its topics.

    `mark` is the newest one of the query, as far as it is known, and `is_repeated` whether that has this write already;
    `spans` say where the batch's records are, as far as that is known.
    """

    def __init__(self, options: SinkOptions, client: Client, parts: Sequence[TaskMessage], upcoming: NextWrite) -> None:
        assert options.exactly_once is not None
        self.options = options
        self.how = options.exactly_once
        self.settings = (options.produce, options.compression, self.how.mode)
        self.client = client
        self.parts = parts
        self.upcoming = upcoming
        self.batch_id = upcoming.batch_id
        self.query_id = upcoming.query_id
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
            # a newer run fenced this one: the mark may be read, but not the id taken back
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
        that ends too early must be noticed when the next batch is written, by whatever run. A mark that only the commit
        topic had is the group's again: no run has begun what comes next."""
        self.is_repeated = True
        assert self.mark is not None
        self._compare(self.mark)
        if not self.spans:
            self._recall()
        repeated = self._repeated(self.mark)
        if producer is None or (repeated == self.mark.repeated and not self.mark.is_recalled):
            return
        mark = replace(self.mark, repeated=repeated, is_recalled=False)
        at = (self.mark.topic or self.how.marker_topic, markers.PARTITION)
        producer.begin()
        with aborted_on_error(producer):
            producer.send_offsets(self.group, {at: mark.committed()})
            producer.commit()
        self.mark = mark

    def _compare(self, mark: Mark) -> None:
        """Raises `HistoryError` where other rows than those in the topic are passed over, or warns."""
        warning = markers.compare_rows(mark, self.upcoming, self._rows, self._row_hash, trusted=self.how.trusted)
        if warning:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)

    @property
    def _rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def _row_hash(self) -> int | None:
        """The sum of the hashes of all rows; None if a task has not sent its own, or if offsets identify the batch."""
        hashes = [part.row_hash for part in self.parts if part.row_hash is not None]
        if self.upcoming.offsets or len(hashes) < len(self.parts):
            return None
        return sum(hashes) & markers.ROW_HASH_MASK

    def _repeated(self, mark: Mark) -> int | None:
        """What the mark is to say when this write is passed over."""
        return self.upcoming.write.number + 1 if self.upcoming.write.number < mark.last else None

    def _say_who(self, fenced: FencedError) -> None:
        """Adds to the error which run has taken the query over, as far as its mark says it."""
        try:
            mark = markers.read_mark(self.client, self.group, self.how.marker_topic, stable=False)
        except ClientError as error:
            fenced.add_note(f"Which run has taken over is not known: {error}.")
            return
        if mark is not None and mark.run_id != self.upcoming.run_id:
            fenced.add_note(
                f"Run {mark.run_id} has committed batch {mark.batch_id} of query {self.query_id}, and this is run "
                f"{self.upcoming.run_id}: two drivers have one checkpoint, or one has a copy of the other's."
            )

    def _recall(self) -> None:
        """Where the batch is that is in the topic, perhaps by another driver: the commit topic says it."""
        self.spans = []
        if self.how.commit_topic:
            record = commit_records.read_last(self.client, self.how.commit_topic, self.query_id)
            if record is not None and record.mark.batch_id == self.batch_id:
                self.spans = list(record.spans or ())

    def _decide(self, mark: Mark | None) -> Step:
        return markers.decide(mark, self.upcoming, trusted=self.how.trusted)

    def _take_over(self) -> tuple[TransactionalProducer | None, Step]:
        """A producer that is alone with this query's id, and whether the write is still to be done; no producer where
        that is clear without one.

        The mark is read before, so that a stale driver fences nobody, and after, when no transaction is open any more:
        one that was open may have been decided, and a driver that was faster may have committed this batch. Before, to
        wait for an open one would be to wait for a dead driver's timeout.
        """
        make_topics(self.client, self.how)
        mark = markers.read_mark(self.client, self.group, self.how.marker_topic, stable=False)
        plans.check_not_replaced(mark, self.upcoming)
        if mark is not None and mark.batch_id >= self.batch_id:
            self.mark = mark
            if self._decide(mark) is Step.SKIP and self._repeated(mark) == mark.repeated:
                return None, Step.SKIP
        producer = producer_of(self.options, self.client, self.group)
        producer.initialize()
        self.mark = last_mark(self.client, self.how, self.query_id)
        step = self._decide(self.mark)
        if step is Step.WRITE:
            self._check_tasks(producer)
            if self.mark is not None and self.mark.batch_id == self.batch_id:
                self._recall()
        return producer, step

    def _check_tasks(self, producer: TransactionalProducer) -> None:
        """No task may have committed a part of this batch that this driver knows nothing of, nor may one that could
        still commit a part."""
        if self.how.mode == PER_TASK:
            plans.check_kept(plans.check_owner(self.mark, self.upcoming), self.upcoming, len(self.parts))
            return
        plans.check_task_marks(self.mark, self.upcoming, self.how)
        if plans.plan_of(self.mark) is not None or plans.task_ids(self.client, self.query_id):
            self.mark = plans.seize(self.options, producer, self.upcoming, self.mark)

    def _transact(self, producer: TransactionalProducer) -> None:
        """The rows, the mark and the sources' offsets, all or none."""
        counts = {"tasks": len(self.parts), "rows": self._rows}
        mark = self.upcoming.marked(self.mark, **counts, mode=self.how.mode, row_hash=self._row_hash)
        opened = opened_by(self.parts)
        if self.how.mode == PER_TASK:
            plans.commit_tasks(self.options, self.client, self.upcoming, self.parts)
            opened = []
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
            producer.commit(opened)
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
