"""Which run writes a batch task by task: the plan, which a run leaves in the query's mark before its tasks
commit anything.

Two runs may be at work on one batch at a time: a driver that is paused and the one in its place, or one with a copy
of the checkpoint. If they plan the batch in different numbers of tasks, or up to other offsets, each could commit some
of its tasks, and rows would be doubled or lost. So a task commits only while the plan is that of its run. It takes its
producer id first and reads the plan then, and a run that takes over does the opposite:

1. it takes the query's transactional id, and puts its plan into a transaction, so that readers of stable offsets wait;
2. it takes the ids of all tasks that the run before may have, so that what they have open is aborted;
3. it reads those tasks' marks, puts into the plan how far they have come with this write, and commits.

What others have committed by then is known. If that is nothing, each task of the new run commits by itself. Else those
tasks' rows must be the same in the new run, and no task can know of itself that the others' are. So the others write,
and leave their transactions to the driver, which ends them when every task has confirmed that its rows match.

A run takes over once: one that has been replaced does not come back. The plan stays in the query's mark from batch to
batch, so that it costs a run one transaction when it begins, and one whenever a batch has many more tasks than before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from headrace.client.cluster import Client
from headrace.client.errors import ClientError, FencedError
from headrace.client.transaction_states import list_transactions
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery import markers
from headrace.spark.delivery.markers import NO_BATCH, RUNS_KEPT, HistoryError, Mark, NextWrite, Plan, Step
from headrace.spark.delivery.messages import TaskMessage
from headrace.spark.delivery.next_write import last_mark
from headrace.spark.delivery.transactions import aborted_on_error, producer_of
from headrace.spark.delivery_options import PER_TASK, ExactlyOnce
from headrace.spark.options import SinkOptions
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

TASKS_MIN: Final = 8
"""Tasks that a plan counts with at least; it grows by powers of two."""


def plan_of(mark: Mark | None) -> Plan | None:
    """The plan in a query's mark."""
    return None if mark is None else mark.plan


def check_owner(mark: Mark | None, upcoming: NextWrite) -> Plan:
    """The plan, which must be that of the run that writes next. Raises `FencedError`."""
    plan = plan_of(mark)
    if plan is None or plan.run_id != upcoming.run_id:
        raise _replaced(plan, upcoming)
    return plan


def check_not_replaced(mark: Mark | None, upcoming: NextWrite) -> None:
    """Raises `FencedError` if another run has taken over from this one."""
    plan = plan_of(mark)
    if plan is not None and upcoming.run_id in plan.replaced:
        raise _replaced(plan, upcoming)


def check_task_marks(mark: Mark | None, upcoming: NextWrite, how: ExactlyOnce) -> None:
    """Raises `HistoryError` if tasks of another run may have committed a part of the next write, and their marks may
    have expired with the query's: the commit topic has no marks of tasks."""
    if mark is None or not mark.is_recalled or how.trusted or PER_TASK not in (how.mode, mark.mode):
        return
    if mark.run_id and mark.run_id == upcoming.run_id:
        return  # the run has committed what comes before: no other run has begun this
    raise HistoryError(
        f"Batch {upcoming.batch_id} of query {upcoming.query_id} is to be written, and the mark has expired "
        f"(offsets.retention.minutes): batch {mark.batch_id} is the last one in the commit topic, which does not say "
        f"whether tasks of another run have committed a part of the next one with delivery {PER_TASK}. Nothing was "
        "written. If none of its rows is in the topic, set the option markerMissing to trust for one run."
    )


def _check_kept_is_known(old: Plan | None, upcoming: NextWrite, kept: int) -> None:
    """Raises `HistoryError` if a run before has found more tasks committed than their marks say now."""
    if old is not None and old.place == upcoming.place and old.kept > kept:
        raise HistoryError(
            f"Task {old.kept - 1} of batch {upcoming.batch_id} of query {upcoming.query_id} had committed its rows "
            f"when run {old.run_id} began, and its mark has expired since (offsets.retention.minutes): a part of the "
            "batch is in the topic, and nothing was added to it."
        )


def _replaced(plan: Plan | None, upcoming: NextWrite) -> FencedError:
    error = FencedError(markers.group_of(upcoming.query_id), ErrorCode.PRODUCER_FENCED)
    now = "no run has a plan for it now" if plan is None else f"run {plan.run_id} writes it now"
    error.add_note(
        f"Batch {upcoming.batch_id} of query {upcoming.query_id} was to be written by run {upcoming.run_id}, and "
        f"{now}: two drivers have one checkpoint, or one has a copy of the other's."
    )
    return error


def take_over(options: SinkOptions, client: Client, upcoming: NextWrite, task: int) -> Plan | None:
    """Makes the plan that of the run that writes next, with room for this task, unless it is so already.

    Returns it, or None if the write is done. The query's driver must take the query's id again.

    Raises `FencedError` if somebody else takes over meanwhile, perhaps another task of the run, and `HistoryError` if
    the write cannot be the next one.
    """
    how = options.exactly_once
    assert how is not None
    producer = producer_of(options, client, markers.group_of(upcoming.query_id))
    producer.initialize()
    mark = last_mark(client, how, upcoming.query_id)
    check_not_replaced(mark, upcoming)
    plan = plan_of(mark)
    if markers.decide(mark, upcoming, trusted=how.trusted) is Step.SKIP:
        return None
    if plan is None or plan.run_id != upcoming.run_id:
        return seize(options, producer, upcoming, mark, task).plan
    if task >= plan.tasks:
        plan = replace(plan, number=plan.number + 1, tasks=_room_for(task))
        producer.begin()
        with aborted_on_error(producer):
            _send(options, producer, mark, plan)
            producer.commit()
    return plan


def seize(
    options: SinkOptions, producer: TransactionalProducer, upcoming: NextWrite, mark: Mark | None, task: int = 0
) -> Mark:
    """Takes over from the run that has the plan in `mark`, with the query's producer. Returns the mark with the new
    plan. Raises `HistoryError` if each task is no longer to commit itself, and some of them have."""
    assert options.exactly_once is not None
    check_task_marks(mark, upcoming, options.exactly_once)
    client, old = producer.client, plan_of(mark)
    if old is not None:
        known = max(old.tasks, old.kept)
        ids: Iterable[str] = [markers.task_group_of(upcoming.query_id, number) for number in range(known)]
        replaced = tuple(run for run in (*old.replaced, old.run_id) if run != upcoming.run_id)[-RUNS_KEPT:]
    else:
        ids, replaced = task_ids(client, upcoming.query_id), ()
    last = 0 if mark is None else mark.tasks
    number = 1 if old is None else old.number + 1
    plan = Plan(number, upcoming.run_id, max(_room_for(task), last), upcoming.place, replaced=replaced)
    producer.begin()
    with aborted_on_error(producer):
        _send(options, producer, mark, plan)
        kept = max((_committed(options, client, upcoming, each) for each in ids), default=0)
        if not options.exactly_once.trusted:
            _check_kept_is_known(old, upcoming, kept)
        if kept and options.exactly_once.mode != PER_TASK:
            raise HistoryError(
                f"Batch {upcoming.batch_id} of query {upcoming.query_id} was begun with delivery {PER_TASK}: let it "
                "end with that before another is chosen; a part of it is in the topic, and nothing was added to it."
            )
        left = _send(options, producer, mark, replace(plan, kept=kept)) if kept else _with(mark, plan)
        producer.commit()
    return left


def check_kept(plan: Plan, upcoming: NextWrite, tasks: int) -> None:
    """Raises `HistoryError` if a run before has committed tasks of this write that are not planned now."""
    if plan.place == upcoming.place and plan.kept > tasks:
        raise HistoryError(
            f"Batch {upcoming.batch_id} of query {upcoming.query_id} was planned with more tasks before than the "
            f"{tasks} of now: run it as before; a part of it is in the topic, and nothing was added to it."
        )


def commit_tasks(options: SinkOptions, client: Client, upcoming: NextWrite, parts: Iterable[TaskMessage]) -> None:
    """Ends the transactions that tasks have left to the driver, one after the other.

    If one cannot be committed the others are all the same, so that less is left to the next run. Raises its error.
    """
    assert options.exactly_once is not None
    wrong: ClientError | None = None
    for part in parts:
        if part.opened is None:
            continue
        group = part.opened.transactional_id
        producer = producer_of(options, client, group)
        try:
            producer.take_on(part.opened)
            producer.commit()
        except ClientError as error:
            # the run that has fenced it may have a transaction open for long
            is_fenced = isinstance(error, FencedError) or isinstance(error.__cause__, FencedError)
            if not is_fenced:
                producer.initialize()
            mark = markers.read_mark(client, group, options.exactly_once.marker_topic, stable=not is_fenced)
            if mark is None or mark.place != upcoming.place:
                wrong = error
    if wrong is not None:
        raise wrong


def task_ids(client: Client, query_id: str) -> list[str]:
    """The transactional ids of tasks of a query that the cluster remembers; none if it cannot list them, for then no
    task commits itself. A version without plans left no number of them."""
    if not client.supports(ApiKey.LIST_TRANSACTIONS):
        return []
    begins = markers.task_group_of(query_id, 0)[:-1]
    pattern = f"{re.escape(begins)}[0-9]+" if client.supports(ApiKey.LIST_TRANSACTIONS, 2) else None
    names = [found.transactional_id for found in list_transactions(client, pattern=pattern)]
    return sorted(name for name in names if name.startswith(begins) and name[len(begins) :].isdecimal())


def _room_for(task: int) -> int:
    return max(TASKS_MIN, 1 << task.bit_length())


def _committed(options: SinkOptions, client: Client, upcoming: NextWrite, group: str) -> int:
    """Takes the id of a task from the run that had it. Returns one more than the task's number if it has committed its
    part of this write, else 0."""
    assert options.exactly_once is not None
    producer_of(options, client, group).initialize()
    mark = markers.read_mark(client, group, options.exactly_once.marker_topic, stable=True)
    if mark is None or mark.place < upcoming.place:
        return 0
    number = int(group.rpartition("-")[2])
    if mark.place > upcoming.place:
        raise HistoryError(
            f"Task {number} of query {upcoming.query_id} has committed batch {mark.batch_id} already, and this is "
            f"batch {upcoming.batch_id}: another driver has gone on with this checkpoint; nothing was written."
        )
    return number + 1


def _with(mark: Mark | None, plan: Plan) -> Mark:
    return Mark(NO_BATCH, plan=plan) if mark is None else replace(mark, plan=plan)


def _send(options: SinkOptions, producer: TransactionalProducer, mark: Mark | None, plan: Plan) -> Mark:
    """The mark with another plan, in the producer's transaction."""
    assert options.exactly_once is not None
    left = _with(mark, plan)
    at = (left.topic or options.exactly_once.marker_topic, markers.PARTITION)
    producer.send_offsets(producer.transactional_id, {at: left.committed()})
    return left
