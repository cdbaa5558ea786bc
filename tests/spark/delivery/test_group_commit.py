"""Delivery exactly once by group commit, without Spark: tasks that write while the batch runs, and drivers that end all
of it in one request, killed at each of their requests.

A reader of committed records follows the topic all the while. It must have every record of the source once, and batches
in order; and nothing may stay open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, set_transaction_version, settled_ends, state_of, visible

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, ConnectionLostError, FencedError
from headrace.client.reading import latest_offsets
from headrace.client.routing import Router
from headrace.client.transaction_states import list_transactions
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery.exactly_once import abort_batch, commit_batch
from headrace.spark.delivery.group_commit import WrittenTask, write_task
from headrace.spark.delivery.markers import HistoryError
from headrace.spark.delivery.messages import EncodedTask
from headrace.spark.delivery.spark_task import QueryBatch, SparkTask
from headrace.spark.process_state import this_process
from headrace.wire.apis import ApiKey as A
from headrace.wire.errors import ErrorCode
from spark.dying import DEAD, DONE, Death, commit_and_die

from .test_exactly_once import PARTITIONS, Query

COLUMNS = pa.schema([("value", pa.binary()), ("partition", pa.int32())])


@pytest.fixture(scope="module")
def peer() -> Iterator[HeadracePeer]:
    with HeadracePeer(settings={**SMALL, "transaction.state.log.num.partitions": "7"}) as peer:
        yield peer


@pytest.fixture
def query(peer: HeadracePeer) -> Iterator[GroupQuery]:
    with Client(peer.bootstrap) as client, GroupQuery(client) as query:
        yield query
        this_process().writers.kept.pop(query.options.cluster, client).close()


class GroupQuery(Query):
    """Its tasks write, where the broker can end what they write."""

    def rows(self, batch_id: int, task: int, mark: str = "") -> Iterator[pa.RecordBatch]:
        """Those of `Query.tasks`, in two parts."""
        for part in range(2):
            values = [
                b"%d-%d-%d-%d%s%s" % (batch_id, task, partition, part, mark.encode(), end)
                for partition in range(PARTITIONS)
                for end in (b"", b"b")
            ]
            partitions = [partition for partition in range(PARTITIONS) for _ in range(2)]
            yield pa.RecordBatch.from_arrays([pa.array(values), pa.array(partitions, pa.int32())], schema=COLUMNS)

    def write(
        self,
        batch_id: int,
        task: int,
        *,
        run: str = "run",
        attempt: int = 0,
        rows: Iterator[pa.RecordBatch] | None = None,
    ) -> EncodedTask:
        """One task's message."""
        given = SparkTask(QueryBatch(self.id, run, batch_id), partition=task, attempt=attempt)
        return write_task(self.rows(batch_id, task) if rows is None else rows, self.options, given)

    def written(self, batch_id: int, *, run: str = "run") -> list[EncodedTask]:
        messages = [self.write(batch_id, task, run=run) for task in range(2)]
        assert all(isinstance(message, WrittenTask) for message in messages)
        return messages

    def killed(self, batch_id: int, task: int, at: int, **how: Any) -> None:
        """A task's process that ends after so many parts of its rows, without a word."""
        child = os.fork()
        if child == 0:
            try:
                self.write(batch_id, task, rows=self._dying(batch_id, task, at), **how)
            finally:
                os._exit(1)
        _, state = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(state) == DEAD

    def _dying(self, batch_id: int, task: int, at: int) -> Iterator[pa.RecordBatch]:
        for number, rows in enumerate(self.rows(batch_id, task, "killed")):
            if number == at:
                os._exit(DEAD)
            yield rows
        os._exit(DEAD)

    def open_ids(self) -> list[str]:
        """Transactional ids of this query with an open transaction."""
        found = list_transactions(self.client, states=["Ongoing"], pattern=f"headrace-{self.id}.*")
        return [each.transactional_id for each in found]

    def check(self, *batch_ids: int) -> None:
        assert self.open_ids() == []
        super().check(*batch_ids)


def commit(query: GroupQuery, batch_id: int, *, run: str = "run", fresh: bool = False) -> None:
    if fresh:
        this_process().query_producers.kept.clear()
    commit_batch(query.options, query.written(batch_id, run=run), batch_id)


def test_batches_one_after_the_other(query: GroupQuery) -> None:
    for batch_id in range(4):
        commit(query, batch_id)
        commit(query, batch_id)  # Spark asks again where it does not know that it was done, with other tasks
    commit(query, 3, fresh=True)
    commit(query, 4, run="next", fresh=True)
    query.check(0, 1, 2, 3, 4)
    query.check_reader(0, 1, 2, 3, 4)


def test_all_of_it_waits_in_the_topic(query: GroupQuery) -> None:
    """What tasks write is there and not seen; nothing of it passes through the driver, so that no bound holds."""
    small = replace(query.options, exactly_once=replace(query.options.exactly_once, max_bytes=10))  # type: ignore[type-var]
    tasks = query.written(0)
    assert visible(query.client, query.topic) == []
    assert sum(latest_offsets(query.client, query.topic).values()) == len(query.values(0))
    assert sum(task.size for task in tasks) == 0 and sum(task.rows for task in tasks) == len(query.values(0))
    commit_batch(small, tasks, 0)
    query.check(0)


def test_an_empty_batch_and_a_task_without_rows(query: GroupQuery) -> None:
    empty = query.write(0, 0, rows=iter(()))
    assert isinstance(empty, WrittenTask) and empty.opened is None
    commit_batch(query.options, [empty], 0)
    assert query.marked() == 0
    commit_batch(query.options, [*query.written(1), query.write(1, 2, rows=iter(()))], 1)
    assert sorted(visible(query.client, query.topic)) == query.values(1)


DEATHS = [
    Death(A.OFFSET_FETCH, "before"), Death(A.OFFSET_FETCH, "answered"),
    Death(A.INIT_PRODUCER_ID, "before"), Death(A.INIT_PRODUCER_ID, "sent"), Death(A.INIT_PRODUCER_ID, "answered"),
    Death(A.OFFSET_FETCH, "answered", 2),
    Death(A.TXN_OFFSET_COMMIT, "before"), Death(A.TXN_OFFSET_COMMIT, "sent"), Death(A.TXN_OFFSET_COMMIT, "answered"),
    Death(A.HEADRACE_GROUP_END_TXN, "before"), Death(A.HEADRACE_GROUP_END_TXN, "sent"),
    Death(A.HEADRACE_GROUP_END_TXN, "answered"), Death(A.LIST_TRANSACTIONS, "before"),
    Death(A.LIST_TRANSACTIONS, "answered"),
]  # fmt: skip
DECIDED = (A.HEADRACE_GROUP_END_TXN, A.LIST_TRANSACTIONS)


@pytest.mark.slow
def test_a_driver_that_dies_at_any_request(query: GroupQuery) -> None:
    """Each death hits a batch of its own; the next run writes all of it anew, and its driver knows nothing."""
    commit(query, 0)
    for batch_id, death in enumerate(DEATHS, 1):
        messages = query.written(batch_id, run=f"dying-{batch_id}")
        assert commit_and_die(query.options, messages, batch_id, death) == DEAD, str(death)
        if death.api not in DECIDED or (death.when == "before" and death.api != A.LIST_TRANSACTIONS):
            assert sum(map(len, query.seen)) <= len(query.values(*range(batch_id))), f"{death}: none of it is seen"
        again = query.written(batch_id, run=f"next-{batch_id}")
        assert commit_and_die(query.options, again, batch_id, None) == DONE, str(death)
        assert query.marked() == batch_id, str(death)
        assert query.open_ids() == [], str(death)
    every = range(len(DEATHS) + 1)
    query.check(*every)
    query.check_reader(*every)


def test_tasks_that_are_killed_and_tasks_that_fail(query: GroupQuery) -> None:
    """Before its first row, between its sends, behind the last: the next attempt has an id of its own."""
    for at in range(3):
        query.killed(at, 0, at)
        query.killed(at, 0, at, attempt=1)

        def failing(batch_id: int = at) -> Iterator[pa.RecordBatch]:
            yield next(query.rows(batch_id, 1, "failed"))
            raise RuntimeError("the task fails")

        with pytest.raises(RuntimeError, match="the task fails"):
            query.write(at, 1, rows=failing())
        messages = [query.write(at, 0, attempt=2), query.write(at, 1, attempt=1)]
        commit_batch(query.options, messages, at)
        query.check(*range(at + 1))
    query.check_reader(0, 1, 2)


def test_attempts_beside_each_other(query: GroupQuery) -> None:
    """Speculation: two attempts write, one of them is in the list; the other is aborted with the batch's commit."""
    first, second = query.write(0, 0), query.write(0, 0, attempt=1, rows=query.rows(0, 0, "slow"))
    assert len(query.open_ids()) == 2 and second.opened is not None
    commit_batch(query.options, [first, query.write(0, 1)], 0)
    query.check(0)
    with pytest.raises(BrokerError):  # it wakes up late
        late = TransactionalProducer(query.client, f"headrace-{query.id}")
        late.begin()
        late.send_offsets(f"headrace-{query.id}", {(query.topic, 0): 7})
        late.commit([second.opened])
    late.abort()
    this_process().query_producers.kept.clear()
    commit(query, 1)
    query.check(0, 1)


def test_a_transaction_that_is_gone_takes_the_batch_with_it(query: GroupQuery) -> None:
    """A task's transaction timed out, or a zombie has its id: nothing of the batch is seen, and a replay writes it."""
    messages = query.written(0)
    assert messages[1].opened is not None
    TransactionalProducer(query.client, messages[1].opened.transactional_id).initialize()
    with pytest.raises(BrokerError, match="of the group: PRODUCER_FENCED") as refused:
        commit_batch(query.options, messages, 0)
    assert refused.value.code == ErrorCode.OPERATION_NOT_ATTEMPTED
    query.check()
    commit(query, 0, run="next")
    query.check(0)


def test_spark_aborts(query: GroupQuery) -> None:
    """A job that failed, with the tasks that were done; and a commit that raised when all was decided."""
    abort_batch(query.options, [query.write(0, 0), None])
    assert query.open_ids() == []
    messages = query.written(0)
    commit_batch(query.options, messages, 0)
    abort_batch(query.options, messages)
    query.check(0)


def test_of_two_drivers_one_wins(query: GroupQuery) -> None:
    commit(query, 0)
    older = dict(this_process().query_producers.kept)
    commit(query, 1, run="newer", fresh=True)
    newer = dict(this_process().query_producers.kept)
    this_process().query_producers.kept.clear()
    this_process().query_producers.kept.update(older)
    late = [query.write(1, task, rows=query.rows(1, task, "late")) for task in range(2)]
    with pytest.raises(FencedError, match=f"headrace-{query.id}: a newer producer"):
        commit_batch(query.options, late, 1)
    this_process().query_producers.kept.clear()
    this_process().query_producers.kept.update(newer)
    commit(query, 2, run="newer")
    query.check(0, 1, 2)
    query.check_reader(0, 1, 2)


def test_the_two_ways_follow_each_other(query: GroupQuery) -> None:
    """Tasks that write and tasks that encode, from batch to batch and in one batch: id and mark are the same. A driver
    that dies in one is finished by the other."""
    commit(query, 0)
    commit_batch(query.options, query.tasks(1), 1)
    commit_batch(query.options, [query.write(2, 0), query.tasks(2)[1]], 2)
    for batch_id, (written, death) in enumerate(
        [
            (True, Death(A.HEADRACE_GROUP_END_TXN, "before")), (True, Death(A.HEADRACE_GROUP_END_TXN, "sent")),
            (False, Death(A.END_TXN, "before")), (False, Death(A.END_TXN, "sent")),
        ], 3,
    ):  # fmt: skip
        ways: list[Callable[[int], list[EncodedTask]]] = [query.written, query.tasks]
        first, then = ways if written else reversed(ways)
        assert commit_and_die(query.options, first(batch_id), batch_id, death) == DEAD
        assert commit_and_die(query.options, then(batch_id), batch_id, None) == DONE
        assert query.open_ids() == []
    query.check(*range(7))
    query.check_reader(*range(7))


@pytest.mark.slow
def test_a_broker_killed_in_the_middle_of_a_commit(
    query: GroupQuery, peer: HeadracePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads everything and coordinates everything; each batch is committed by the broker that comes back."""
    from headrace.wire.messages.k19900_headrace_group_end_txn import HeadraceGroupEndTxnResponse

    kills = []

    def killed(point: str) -> None:
        kills.append(point)
        peer.kill()
        peer.start()

    end, wait = TransactionalProducer._end_all, Router.wait

    def before_the_end(self: Any, others: Any) -> Any:
        monkeypatch.setattr(TransactionalProducer, "_end_all", end)
        killed("end")
        return end(self, others)

    def answer_of_the_end_is_lost(self: Router, call: Any, deadline: float) -> Any:
        answer = yield from wait(self, call, deadline)
        if isinstance(answer, HeadraceGroupEndTxnResponse):
            monkeypatch.setattr(Router, "wait", wait)
            killed("answer")
            raise ConnectionLostError("the answer did not come")
        return answer

    commit(query, 0)
    messages = query.written(1)
    killed("written")
    commit_batch(query.options, messages, 1)
    monkeypatch.setattr(TransactionalProducer, "_end_all", before_the_end)
    commit(query, 2)
    monkeypatch.setattr(Router, "wait", answer_of_the_end_is_lost)
    commit(query, 3)
    commit(query, 4)
    assert kills == ["written", "end", "answer"]
    query.check(0, 1, 2, 3, 4)
    query.check_reader(0, 1, 2, 3, 4)


def test_a_batch_that_was_planned_again_leaves_nothing_open(query: GroupQuery) -> None:
    """A restored checkpoint, or a copied one: the tasks have written when the driver sees the mark."""
    commit_batch(query.options, query.written(0), 0, "aa")
    this_process().query_producers.kept.clear()
    with pytest.raises(HistoryError, match="^Batch 0 .* with other records of its sources"):
        commit_batch(query.options, query.written(0, run="copy"), 0, "bb")
    query.check(0)
    commit_batch(query.options, query.written(0), 0, "aa")
    commit_batch(query.options, query.written(1), 1, "bb")
    query.check(0, 1)


def test_without_the_newer_protocol_tasks_encode(query: GroupQuery) -> None:
    set_transaction_version(query.client, 1)
    try:
        assert type(query.write(0, 0)) is EncodedTask
    finally:
        set_transaction_version(query.client, 2)
    commit(query, 0)
    query.check(0)
    assert state_of(query.client, f"headrace-{query.id}") == "CompleteCommit"
    assert settled_ends(query.client, query.topic) == latest_offsets(query.client, query.topic)


@pytest.mark.jvm
@pytest.mark.slow
def test_before_apache_kafka_tasks_encode() -> None:
    with KafkaPeer(settings=SMALL) as kafka, client_of(kafka) as client, GroupQuery(client) as query:
        messages = [query.write(0, task) for task in range(2)]
        assert {type(message) for message in messages} == {EncodedTask}
        commit_batch(query.options, messages, 0)
        query.check(0)
