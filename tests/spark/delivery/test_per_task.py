"""Delivery task by task against a broker, without Spark: tasks and drivers that die at each of their requests, attempts
side by side, plans that change, and the change to and from one transaction a batch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, set_transaction_version, settled_ends, visible

from headrace.client.cluster import Client
from headrace.client.connection import Connection
from headrace.client.errors import FencedError, InDoubtError
from headrace.client.groups import commit_offsets
from headrace.client.reading import latest_offsets
from headrace.client.transacting import State
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery import markers
from headrace.spark.delivery.batch_commit import commit_parts
from headrace.spark.delivery.exactly_once import commit_batch
from headrace.spark.delivery.markers import HistoryError, Mark, Plan, group_of, read_mark, task_group_of
from headrace.spark.delivery.per_task import CommittedTask, PerTask, TaskWrite
from headrace.spark.delivery.spark_task import QueryBatch, SparkTask
from headrace.spark.options import SinkOptions
from headrace.spark.process_state import this_process
from headrace.wire.apis import ApiKey as A
from headrace.wire.records import decode_batch
from spark.dying import DEAD, DONE, Death, commit_and_die, run_and_die

from .test_exactly_once import Query

Rows = list[tuple[int, bytes]]
"""Partition and value."""


@pytest.fixture(
    scope="module",
    params=[
        ("headrace", 2),
        pytest.param(("headrace", 1), marks=pytest.mark.soak),
        pytest.param(("kafka", 2), marks=[pytest.mark.jvm, pytest.mark.soak]),
        pytest.param(("kafka", 1), marks=[pytest.mark.jvm, pytest.mark.soak]),
    ],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Client]:
    kind, level = request.param
    peer = HeadracePeer(settings=SMALL) if kind == "headrace" else KafkaPeer(settings=SMALL)
    with peer, client_of(peer) as client:
        set_transaction_version(client, level)
        yield client


@pytest.fixture
def query(cluster: Client) -> Iterator[Query]:
    with Query(cluster) as query:
        yield query


def per_task(query: Query, **more: Any) -> SinkOptions:
    assert query.options.exactly_once is not None
    return replace(
        query.options, exactly_once=replace(query.options.exactly_once, mode="exactly-once-per-task", **more)
    )


def rows_of(query: Query, batch_id: int, task: int) -> Rows:
    """What the task has to write, as `Query.values` wants it."""
    encoded = query.tasks(batch_id)[task].batches
    return [(partition, record.value or b"") for _, partition, batch, _ in encoded for record in decode_batch(batch)]


def arrow(rows: Rows, size: int = 5) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        partitions, values = zip(*rows[at : at + size])
        yield pa.RecordBatch.from_pydict({"partition": pa.array(partitions, pa.int32()), "value": list(values)})


def run(
    query: Query,
    batch_id: int,
    task: int,
    rows: Rows | None = None,
    options: SinkOptions | None = None,
    *,
    of: str = "run",
) -> CommittedTask:
    """An attempt of a task `of` a run, with a client of its own."""
    options = options or per_task(query)
    with options.cluster.client(known=True) as client:
        attempt = SparkTask(QueryBatch(query.id, of, batch_id), partition=task)
        given = rows_of(query, batch_id, task) if rows is None else rows
        return TaskWrite(options, client, attempt).run(arrow(given))


def finish(query: Query, batch_id: int, tasks: Sequence[CommittedTask]) -> None:
    PerTask().commit_batch(per_task(query), tasks, batch_id)


def whole(query: Query, batch_id: int, *, of: str = "run") -> None:
    """A batch from a driver that knows nothing."""
    this_process().query_producers.kept.clear()
    finish(query, batch_id, [run(query, batch_id, task, of=of) for task in range(2)])


def test_batches_one_after_the_other(query: Query) -> None:
    for batch_id in range(3):
        finish(query, batch_id, [run(query, batch_id, task) for task in range(2)])
    whole(query, 2)
    query.check(0, 1, 2)
    query.check_reader(0, 1, 2)
    mark = read_mark(query.client, f"headrace-{query.id}", query.topic, stable=True)
    assert mark is not None and (mark.mode, mark.tasks, mark.rows) == ("exactly-once-per-task", 2, 24)


TASK_DEATHS = [
    Death(A.OFFSET_FETCH, "answered"),
    Death(A.INIT_PRODUCER_ID, "sent"), Death(A.INIT_PRODUCER_ID, "answered"),
    Death(A.PRODUCE, "before"), Death(A.PRODUCE, "sent"), Death(A.PRODUCE, "answered"),
    Death(A.TXN_OFFSET_COMMIT, "before"), Death(A.TXN_OFFSET_COMMIT, "sent"), Death(A.TXN_OFFSET_COMMIT, "answered"),
    Death(A.END_TXN, "before"), Death(A.END_TXN, "sent"), Death(A.END_TXN, "answered"),
]  # fmt: skip
"""Before, between and after a task's sends."""
DRIVER_DEATHS = [
    Death(A.OFFSET_FETCH, "answered"), Death(A.INIT_PRODUCER_ID, "answered"),
    Death(A.TXN_OFFSET_COMMIT, "sent"), Death(A.TXN_OFFSET_COMMIT, "answered"),
    Death(A.END_TXN, "before"), Death(A.END_TXN, "sent"), Death(A.END_TXN, "answered"),
]  # fmt: skip


def test_a_task_that_dies_at_any_request(query: Query) -> None:
    """The other task commits before or after; attempt 2 finds what attempt 1 has left."""
    whole(query, 0)
    for batch_id, death in enumerate(TASK_DEATHS, 1):
        other = run(query, batch_id, 1) if batch_id % 2 else None
        assert run_and_die(partial(run, query, batch_id, 0), death) == DEAD, str(death)
        done = run(query, batch_id, 0)
        this_process().query_producers.kept.clear()
        finish(query, batch_id, [done, other or run(query, batch_id, 1)])
    every = range(len(TASK_DEATHS) + 1)
    query.check(*every)
    query.check_reader(*every)


def test_a_driver_that_dies_at_any_request(query: Query) -> None:
    """Its tasks have committed, all of them or one; the next driver plans the batch again."""
    for batch_id, death in enumerate(DRIVER_DEATHS):
        done = [run(query, batch_id, task) for task in range(2)]
        this_process().query_producers.kept.clear()
        assert run_and_die(partial(finish, query, batch_id, done), death) == DEAD, str(death)
        whole(query, batch_id)
    last = len(DRIVER_DEATHS)
    run(query, last, 1)  # and then the driver is killed
    whole(query, last)
    query.check(*range(last + 1))
    query.check_reader(*range(last + 1))


def test_a_mark_that_counts_late_is_waited_for(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction of the batch before is decided, and its group has not heard of that; its driver goes on."""
    marks: list[Mark | None] = [None]

    def late(client: Client, group: str, topic: str, *, stable: bool, is_alone: bool = False) -> Mark | None:
        mark = read_mark(client, group, topic, stable=stable, is_alone=is_alone)
        if stable or group != group_of(query.id):
            return mark
        marks.append(mark)
        return marks[-2]

    for batch_id in range(4):
        with monkeypatch.context() as patched:
            patched.setattr(markers, "read_mark", late)
            done = [run(query, batch_id, 0)]
        finish(query, batch_id, [*done, run(query, batch_id, 1)])
    query.check(*range(4))
    query.check_reader(*range(4))


def test_rows_that_move_between_tasks_are_refused(query: Query) -> None:
    whole(query, 0)
    first, second = rows_of(query, 1, 0), rows_of(query, 1, 1)
    run(query, 1, 0)
    moved = [*first[:-1], second[0]]
    for rows in (first[:-1], [*first, second[0]], moved, [(0, b"x")], []):
        with pytest.raises(HistoryError, match=r"^Task 0 of batch 1 has other rows .*would lose or double rows"):
            run(query, 1, 0, rows)
    elsewhere = [((partition + 1) % 3, value) for partition, value in first]
    with pytest.raises(HistoryError, match="has other rows"):
        run(query, 1, 0, elsewhere)
    shuffled = random.Random(1).sample(first, len(first))
    assert run(query, 1, 0, shuffled).rows == len(first), "their order is nobody's business"
    this_process().query_producers.kept.clear()
    finish(query, 1, [run(query, 1, 0, shuffled), run(query, 1, 1)])
    query.check(0, 1)


def test_fewer_tasks_than_before_are_refused(query: Query) -> None:
    whole(query, 0)
    run(query, 1, 1)
    both = [*rows_of(query, 1, 0), *rows_of(query, 1, 1)]
    done = run(query, 1, 0, both, of="other")
    this_process().query_producers.kept.clear()
    with pytest.raises(HistoryError, match="planned with more tasks before than the 1 of now"):
        finish(query, 1, [done])
    assert query.marked() == 0


def test_of_two_attempts_one_commits(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is frozen before its end, and thaws when the batch is over."""
    whole(query, 0)
    end = TransactionalProducer._end

    def frozen(self: Any, *, committed: bool) -> Any:
        monkeypatch.setattr(TransactionalProducer, "_end", end)
        whole(query, 1)
        return end(self, committed=committed)

    monkeypatch.setattr(TransactionalProducer, "_end", frozen)
    with pytest.raises(FencedError):
        run(query, 1, 0)
    assert run(query, 1, 0).rows == 12, "the batch is done, and these are compared with it"
    take = TransactionalProducer.initialize_steps

    def late(self: Any) -> Any:
        monkeypatch.setattr(TransactionalProducer, "initialize_steps", take)
        whole(query, 2)
        return take(self)

    monkeypatch.setattr(TransactionalProducer, "initialize_steps", late)
    run(query, 2, 0, [(0, b"of another plan")])
    query.check(0, 1, 2)
    query.check_reader(0, 1, 2)


def test_an_answer_that_is_lost_is_found_in_the_mark(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    end = TransactionalProducer._end
    for decided in (True, False):

        def lost(self: Any, *, committed: bool, decided: bool = decided) -> Any:
            if decided:
                yield from end(self, committed=committed)
            self.state = State.DEAD
            raise InDoubtError("no answer")

        monkeypatch.setattr(TransactionalProducer, "_end", lost)
        if decided:
            run(query, 0, 0)
        else:
            with pytest.raises(InDoubtError):
                run(query, 0, 1)
        monkeypatch.setattr(TransactionalProducer, "_end", end)
    whole(query, 0)
    query.check(0)


def test_the_delivery_changes_between_batches_and_not_within_one(query: Query) -> None:
    whole(query, 0)
    this_process().query_producers.kept.clear()
    commit_batch(query.options, query.tasks(1), 1)
    whole(query, 2)
    run(query, 3, 1)
    this_process().query_producers.kept.clear()
    for _ in range(2):
        with pytest.raises(HistoryError, match="Batch 3 .* was begun with delivery exactly-once-per-task: let it end"):
            commit_batch(query.options, query.tasks(3), 3)
    whole(query, 3)
    this_process().query_producers.kept.clear()
    commit_batch(query.options, query.tasks(3), 3)
    commit_batch(query.options, query.tasks(4), 4)
    # the other way a batch is there or not: what was begun is aborted, what was decided is found
    assert commit_and_die(query.options, query.tasks(5), 5, Death(A.END_TXN, "before", 2)) == DEAD
    whole(query, 5, of="next")
    this_process().query_producers.kept.clear()
    after = query.tasks(6, run="after")
    assert commit_and_die(query.options, after, 6, Death(A.END_TXN, "answered", 2)) == DEAD
    whole(query, 6, of="last")
    query.check(*range(7))
    query.check_reader(*range(7))


def test_a_driver_frozen_in_its_transaction_is_fenced_by_tasks(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """The delivery changes while an old driver of the other one is about to decide."""
    commit_batch(query.options, query.tasks(0), 0)
    end = TransactionalProducer._end

    def frozen(self: Any, *, committed: bool) -> Any:
        monkeypatch.setattr(TransactionalProducer, "_end", end)
        assert run_and_die(lambda: whole(query, 1), None) == DONE
        return end(self, committed=committed)

    monkeypatch.setattr(TransactionalProducer, "_end", frozen)
    with pytest.raises(FencedError):
        commit_batch(query.options, query.tasks(1, attempt="old"), 1)
    query.check(0, 1)
    query.check_reader(0, 1)


def test_what_does_not_fit_is_refused(query: Query) -> None:
    whole(query, 0)
    with pytest.raises(HistoryError, match="remembers batch 0 as the last one"):
        run(query, 2, 0)
    whole(query, 1)
    with pytest.raises(HistoryError, match="comes after batch 1"):
        run(query, 0, 0)
    with pytest.raises(ValueError, match="1 of 2 tasks sent no commit message"):
        PerTask().commit_batch(per_task(query), [run(query, 2, 0), None], 2)
    with pytest.raises(ValueError, match="say that they are of others"):
        finish(query, 3, [run(query, 2, 0)])
    assert run(query, 7, 0, options=per_task(query, trusted=True)).rows == 12


def test_a_commit_topic_says_which_batch_but_not_where(query: Query) -> None:
    from headrace.client.groups import delete_offsets
    from headrace.spark.delivery.commit_records import read_last

    options = per_task(query, commit_topic="commits")
    for batch_id in range(2):
        for _ in range(2):
            this_process().query_producers.kept.clear()
            done = [run(query, batch_id, task, options=options) for task in range(2)]
            PerTask().commit_batch(options, done, batch_id)
            delete_offsets(query.client, f"headrace-{query.id}", [(query.topic, 0)])
    record = read_last(query.client, "commits", query.id)
    assert record is not None and (record.mark.batch_id, record.mark.mode, record.spans) == (
        1, "exactly-once-per-task", None,
    )  # fmt: skip
    query.check_reader(0, 1)


def test_tasks_of_a_batch_write(query: Query) -> None:
    """Whose second attempts find the first ones; another write writes again."""
    options = per_task(query)

    def attempt(write_id: str, task: int, rows: Rows | None = None) -> None:
        with options.cluster.client(known=True) as client:
            given = rows_of(query, 0, task) if rows is None else rows
            TaskWrite(options, client, SparkTask(write_id=write_id, partition=task)).run(arrow(given))

    first = f"{query.id}-a"
    assert run_and_die(lambda: attempt(first, 0), Death(A.END_TXN, "before")) == DEAD
    assert run_and_die(lambda: attempt(first, 1), Death(A.END_TXN, "answered")) == DEAD
    attempt(first, 0)
    attempt(first, 1)
    with pytest.raises(HistoryError, match="has other rows"):
        attempt(first, 1, [])
    assert PerTask().commit_write(options, [], first) == []
    assert sorted(visible(query.client, query.topic)) == query.values(0)
    attempt(f"{query.id}-b", 0)
    assert len(visible(query.client, query.topic)) == 36
    assert settled_ends(query.client, query.topic) == latest_offsets(query.client, query.topic)


def test_no_task_is_left_open(query: Query) -> None:
    whole(query, 0)
    for task in range(2):
        mark = read_mark(query.client, task_group_of(query.id, task), query.topic, stable=True)
        assert mark is not None and (mark.batch_id, mark.rows) == (0, 12) and mark.row_hash is not None


def test_a_batch_that_was_planned_again_after_it_was_whole(query: Query) -> None:
    """Its tasks find the query's mark and write nothing; the driver sees that the mark is of other records."""
    tasks = [run(query, 0, task) for task in range(2)]
    commit_batch_of(query, tasks, "aa")
    with pytest.raises(HistoryError, match="^Batch 0 .* with other records of its sources.*a copy"):
        commit_batch_of(query, [run(query, 0, task, rows_of(query, 1, task)) for task in range(2)], "bb")
    commit_batch_of(query, [run(query, 0, task) for task in range(2)], "aa")
    query.check(0)


def commit_batch_of(query: Query, tasks: Sequence[CommittedTask], offsets: str) -> None:
    this_process().query_producers.kept.clear()
    commit_parts(per_task(query), tasks, 0, offsets)


def thirds(query: Query, batch_id: int) -> list[Rows]:
    """The rows of a batch as three tasks have them."""
    rows = [*rows_of(query, batch_id, 0), *rows_of(query, batch_id, 1)]
    return [rows[task::3] for task in range(3)]


def plan_in(query: Query) -> Plan:
    mark = read_mark(query.client, group_of(query.id), query.topic, stable=True)
    assert mark is not None and mark.plan is not None
    return mark.plan


def test_of_two_runs_that_plan_a_batch_differently_one_writes(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stands still before one of its tasks commits, and goes on when the second has begun."""
    whole(query, 0)
    end = TransactionalProducer._end
    first = thirds(query, 1)

    def frozen(self: Any, *, committed: bool) -> Any:
        monkeypatch.setattr(TransactionalProducer, "_end", end)
        whole(query, 1, of="second")
        return end(self, committed=committed)

    monkeypatch.setattr(TransactionalProducer, "_end", frozen)
    with pytest.raises(FencedError):
        run(query, 1, 2, first[2])
    for task in range(3):
        with pytest.raises(FencedError):
            run(query, 1, task, first[task])
    assert (plan_in(query).run_id, plan_in(query).replaced) == ("second", ("run",))
    whole(query, 2, of="second")
    query.check(0, 1, 2)
    query.check_reader(0, 1, 2)


def test_a_task_that_has_seen_its_plan_before_another_run_took_over(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its producer id when the other run has fenced those that were known."""
    whole(query, 0)
    take = TransactionalProducer.initialize_steps

    def late(self: Any) -> Any:
        if "-task-2" in self.transactional_id:
            monkeypatch.setattr(TransactionalProducer, "initialize_steps", take)
            run(query, 1, 0, of="second")
        return take(self)

    monkeypatch.setattr(TransactionalProducer, "initialize_steps", late)
    with pytest.raises(FencedError):
        run(query, 1, 2, thirds(query, 1)[2])
    this_process().query_producers.kept.clear()
    finish(query, 1, [run(query, 1, task, of="second") for task in range(2)])
    query.check(0, 1)


def test_a_plan_that_fits_what_others_have_committed_is_finished_by_its_driver(query: Query) -> None:
    """No task of another plan commits anything meanwhile."""
    whole(query, 0)
    three = thirds(query, 1)
    run(query, 1, 0, three[0])
    seen = sorted(visible(query.client, query.topic))
    other = [run(query, 1, 1, of="second")]
    with pytest.raises(HistoryError, match="Task 0 of batch 1 has other rows"):
        run(query, 1, 0, of="second")
    assert other[0].opened is not None
    PerTask().abort(per_task(query), [*other, None], "")
    assert settled_ends(query.client, query.topic) == latest_offsets(query.client, query.topic)
    assert sorted(visible(query.client, query.topic)) == seen
    third = [run(query, 1, task, rows, of="third") for task, rows in enumerate(three)]
    assert [done.opened is None for done in third] == [True, False, False]
    assert sorted(visible(query.client, query.topic)) == seen
    this_process().query_producers.kept.clear()
    finish(query, 1, third)
    assert plan_in(query).kept == 1
    this_process().query_producers.kept.clear()
    finish(query, 2, [run(query, 2, task, of="third") for task in range(2)])
    query.check(0, 1, 2)
    query.check_reader(0, 1, 2)


def test_of_what_tasks_have_left_to_the_driver_one_is_gone(query: Query) -> None:
    """The others are committed, and the next run has less to do."""
    whole(query, 0)
    three = thirds(query, 1)
    run(query, 1, 0, three[0])
    second = [run(query, 1, task, rows, of="second") for task, rows in enumerate(three)]
    run(query, 1, 1, three[1], of="second")  # another attempt
    this_process().query_producers.kept.clear()
    with pytest.raises(FencedError):
        finish(query, 1, second)
    third = [run(query, 1, task, rows, of="third") for task, rows in enumerate(three)]
    assert [done.opened is None for done in third] == [True, False, True]
    for death in (Death(A.END_TXN, "sent"), Death(A.END_TXN, "answered")):
        this_process().query_producers.kept.clear()
        assert run_and_die(partial(finish, query, 1, third), death) == DEAD
    whole_again = [run(query, 1, task, rows, of="fourth") for task, rows in enumerate(three)]
    this_process().query_producers.kept.clear()
    finish(query, 1, whole_again)
    query.check(0, 1)
    query.check_reader(0, 1)


def test_a_driver_whose_run_was_replaced_commits_no_mark(query: Query) -> None:
    whole(query, 0)
    done = [run(query, 1, task) for task in range(2)]
    again = [run(query, 1, task, of="second") for task in range(2)]
    for _ in range(2):
        this_process().query_producers.kept.clear()
        with pytest.raises(FencedError, match="a newer producer"):
            finish(query, 1, done)
    finish(query, 1, again)
    query.check(0, 1)


def test_more_tasks_than_the_plan_has_room_for(query: Query) -> None:
    """In the first batch of a run, and in one whose driver goes on with its producer; the next run fences all."""
    for batch_id in range(3):
        rows = [*rows_of(query, batch_id, 0), *rows_of(query, batch_id, 1)]
        count = (2, 9, 20)[batch_id]
        done = [run(query, batch_id, task, rows[task::count]) for task in range(count)]
        finish(query, batch_id, done)
        assert (plan_in(query).number, plan_in(query).tasks) == (batch_id + 1, (8, 16, 32)[batch_id])
    query.check(0, 1, 2)
    rows = [*rows_of(query, 3, 0), *rows_of(query, 3, 1)]
    run(query, 3, 18, rows[18::20])
    run(query, 3, 0, of="second")
    assert plan_in(query).kept == 19


def test_a_mark_of_the_version_before(query: Query) -> None:
    """Which had no plan: a part of a batch that its tasks have committed counts, and so does the mark of the batch."""
    whole(query, 0)
    mark = read_mark(query.client, group_of(query.id), query.topic, stable=True)
    assert mark is not None
    rows = thirds(query, 1)
    run(query, 1, 2, rows[2])
    at = (query.topic, markers.PARTITION)
    commit_offsets(query.client, group_of(query.id), {at: replace(mark, plan=None).committed()})
    with pytest.raises(HistoryError, match="Batch 1 .* was begun with delivery exactly-once-per-task: let it end"):
        this_process().query_producers.kept.clear()
        commit_batch(query.options, query.tasks(1), 1)
    this_process().query_producers.kept.clear()
    commit_offsets(query.client, group_of(query.id), {at: replace(mark, plan=None).committed()})
    assert run(query, 1, 0, of="newer").opened is not None
    assert (plan_in(query).kept, plan_in(query).replaced) == (3, ())
    finish(query, 1, [run(query, 1, task, rows[task], of="newer") for task in range(3)])
    query.check(0, 1)
    query.check_reader(0, 1)


def test_what_a_plan_costs(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing from a run's second batch on: a task makes four requests for marks and its id, and the driver two."""
    asked: list[int] = []
    send = Connection.send

    def counted(self: Any, request: Any, *given: Any, **more: Any) -> Any:
        asked.append(request.API_KEY)
        return send(self, request, *given, **more)

    monkeypatch.setattr(Connection, "send", counted)
    first = run(query, 0, 0)
    asked_first = Counter(asked)
    finish(query, 0, [first, run(query, 0, 1)])
    asked.clear()
    done = [run(query, 1, task) for task in range(2)]
    of_tasks = Counter(asked)
    asked.clear()
    finish(query, 1, done)
    of_driver = Counter(asked)
    costs = A.INIT_PRODUCER_ID, A.OFFSET_FETCH, A.TXN_OFFSET_COMMIT, A.END_TXN, A.LIST_TRANSACTIONS
    assert [of_tasks[each] for each in costs] == [2, 8, 2, 2, 0]
    is_kept = of_driver[A.INIT_PRODUCER_ID] == 0
    assert [of_driver[each] for each in costs[1:4]] == ([0, 1, 1] if is_kept else [2, 1, 1])
    # of the query's first run: its id, what the cluster remembers, the plan, and the mark again
    assert [asked_first[each] for each in costs] == [2, 6, 2, 2, 1]
