"""Batch writes by group commit, without Spark: tasks write while the write runs, and the driver's commit ends all of it
in one request, or nobody sees any of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, set_transaction_version, visible

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError
from headrace.client.reading import latest_offsets
from headrace.client.transaction_groups import end_leftovers
from headrace.client.transaction_states import describe_transaction, list_transactions
from headrace.client.transactions import TransactionalProducer
from headrace.spark.delivery.exactly_once import WholeBatch, commit_write
from headrace.spark.delivery.group_commit import FEW_ROWS_SHARE, TASK_TIMEOUT_MS, WrittenTask
from headrace.spark.delivery.markers import write_group_of
from headrace.spark.delivery.messages import EncodedTask
from headrace.spark.delivery.spark_task import SparkTask
from headrace.spark.options import SinkOptions
from headrace.spark.process_state import this_process
from headrace.wire.apis import ApiKey as A
from headrace.wire.errors import ErrorCode
from spark.dying import DEAD, DONE, Death, run_and_die

from .test_exactly_once import PARTITIONS, Query
from .test_group_commit import COLUMNS

PATIENCE_S = 30.0
WRITE = "f7a1"
FEW, MANY = 1, 40
"""Rows of a task for each partition: what the driver may be handed, and more."""


@pytest.fixture(scope="module")
def peer() -> Iterator[HeadracePeer]:
    with HeadracePeer(settings={**SMALL, "transaction.state.log.num.partitions": "7"}) as peer:
        yield peer


@pytest.fixture
def write(peer: HeadracePeer) -> Iterator[BatchWrite]:
    with Client(peer.bootstrap) as client, BatchWrite(client) as write:
        yield write
        this_process().writers.kept.pop(write.options.cluster, client).close()


class BatchWrite(Query):
    """Its tasks have few rows or many."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.write_id = f"{WRITE}-{self.id}"
        assert self.options.exactly_once is not None
        once = replace(self.options.exactly_once, max_bytes=1000 * FEW_ROWS_SHARE)
        self.options: SinkOptions = replace(self.options, exactly_once=once)

    def of_task(self, task: int, count: int, mark: str = "") -> list[bytes]:
        return [
            b"%d-%d-%d%s" % (task, number, partition, mark.encode())
            for number in range(count)
            for partition in range(PARTITIONS)
        ]

    def rows(self, task: int, count: int, mark: str) -> Iterator[pa.RecordBatch]:
        values = self.of_task(task, count, mark)
        partitions = list(range(PARTITIONS)) * count
        half = len(values) // 2
        for part in (slice(half), slice(half, None)):
            columns = [pa.array(values[part], pa.binary()), pa.array(partitions[part], pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, schema=COLUMNS)

    def run(self, task: int, count: int = MANY, *, attempt: int = 0, mark: str = "", dies: bool = False) -> EncodedTask:
        """One attempt of a task; one that `dies` does so with its transaction open."""

        def rows() -> Iterator[pa.RecordBatch]:
            yield from self.rows(task, count, mark)
            if dies:
                os._exit(DEAD)

        given = SparkTask(write_id=self.write_id, partition=task, attempt=attempt)
        return WholeBatch().write(rows(), self.options, given)

    def killed(self, task: int) -> None:
        def work() -> None:
            self.run(task, mark="killed", dies=True)

        assert run_and_die(work, None) == DEAD

    def expected(self, *counts: int) -> list[bytes]:
        return sorted(value for task, count in enumerate(counts) for value in self.of_task(task, count))

    def seen_now(self) -> list[bytes]:
        """What readers see once the ends that are decided are written."""
        until = time.monotonic() + PATIENCE_S
        while self._ids("PrepareCommit", "PrepareAbort"):
            assert time.monotonic() < until, "an end that is decided is not written"
            time.sleep(0.02)
        return sorted(visible(self.client, self.topic))

    def open_ids(self) -> list[str]:
        return self._ids("Ongoing")

    def _ids(self, *states: str) -> list[str]:
        found = list_transactions(self.client, states=states, pattern=f"{write_group_of(self.write_id)}.*")
        return sorted(each.transactional_id for each in found)


def test_all_of_it_waits_in_the_topic(write: BatchWrite) -> None:
    """No row passes through the driver, so that no bound of it holds; all are seen together."""
    assert write.options.exactly_once is not None
    small = replace(write.options, exactly_once=replace(write.options.exactly_once, max_bytes=10))
    tasks = [write.run(0), write.run(1), write.run(2)]
    assert all(isinstance(task, WrittenTask) and not task.batches for task in tasks)
    assert write.seen_now() == [] and len(write.open_ids()) == 3
    assert sum(latest_offsets(write.client, write.topic).values()) == len(write.expected(MANY, MANY, MANY))
    spans = commit_write(small, tasks, write.write_id)
    assert sum(span.count for span in spans) == len(write.expected(MANY, MANY, MANY))
    assert write.seen_now() == write.expected(MANY, MANY, MANY) and write.open_ids() == []


def test_a_transaction_may_be_open_for_as_long_as_is_said(write: BatchWrite) -> None:
    """Which the broker refuses where it allows less; what nobody has said it may shorten."""
    usual = write.run(0)
    write.options = replace(write.options, produce=replace(write.options.produce, transaction_timeout_ms=7000))
    said = write.run(1)
    for task, timeout_ms in ((usual, TASK_TIMEOUT_MS), (said, 7000)):
        assert task.opened is not None
        assert describe_transaction(write.client, task.opened.transactional_id).timeout_ms == timeout_ms
    few = [write.run(2, FEW)]
    commit_write(write.options, [usual, said, *few], write.write_id)
    write.options = replace(write.options, produce=replace(write.options.produce, transaction_timeout_ms=2**31 - 1))
    with pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT"):
        write.run(3)


@pytest.mark.parametrize(
    "counts", [(MANY,), (MANY, FEW), (FEW, FEW), (0, MANY), (FEW, 0), (0, 0), (FEW, MANY, 0, MANY)]
)
def test_tasks_with_few_rows_hand_them_over(write: BatchWrite, counts: tuple[int, ...]) -> None:
    tasks = [write.run(task, count) for task, count in enumerate(counts)]
    assert [isinstance(task, WrittenTask) for task in tasks] == [count == MANY for count in counts]
    spans = commit_write(write.options, tasks, write.write_id)
    assert sum(span.count for span in spans) == len(write.expected(*counts))
    assert write.seen_now() == write.expected(*counts) and write.open_ids() == []


def test_what_no_commit_names_is_aborted(write: BatchWrite) -> None:
    """A task that was killed, and an attempt that lost."""
    write.killed(0)
    write.run(1, mark="lost")
    tasks = [write.run(0, attempt=1), write.run(1, attempt=1)]
    assert len(write.open_ids()) == 4
    commit_write(write.options, tasks, write.write_id)
    assert write.seen_now() == write.expected(MANY, MANY) and write.open_ids() == []


def test_a_write_that_fails_leaves_nothing_open(write: BatchWrite) -> None:
    """Nor of those tasks that say nothing; what is decided stays."""
    write.killed(0)
    done = write.run(1)
    WholeBatch().abort(write.options, [None, done], write.write_id)
    assert write.open_ids() == [] and write.seen_now() == []
    tasks = [write.run(0, attempt=1), write.run(1, attempt=1)]
    commit_write(write.options, tasks, write.write_id)
    WholeBatch().abort(write.options, tasks, write.write_id)
    assert write.seen_now() == write.expected(MANY, MANY)


@pytest.mark.parametrize("counts", [(MANY, MANY, MANY), (FEW, MANY, MANY)])
def test_a_transaction_that_is_gone_takes_the_write_with_it(write: BatchWrite, counts: tuple[int, ...]) -> None:
    """It timed out, say. Nothing is seen, and nothing stays open."""
    tasks = [write.run(task, count) for task, count in enumerate(counts)]
    assert tasks[2].opened is not None
    TransactionalProducer(write.client, tasks[2].opened.transactional_id).initialize()
    with pytest.raises(BrokerError, match="of the group: PRODUCER_FENCED") as refused:
        commit_write(write.options, tasks, write.write_id)
    assert refused.value.code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert write.seen_now() == [] and write.open_ids() == []


DEATHS = [
    Death(A.HEADRACE_GROUP_END_TXN, "before"), Death(A.HEADRACE_GROUP_END_TXN, "sent"),
    Death(A.HEADRACE_GROUP_END_TXN, "answered"), Death(A.LIST_TRANSACTIONS, "before"),
]  # fmt: skip


@pytest.mark.parametrize("death", DEATHS, ids=str)
@pytest.mark.parametrize("counts", [(MANY, MANY), (FEW, MANY)])
def test_a_driver_that_dies_at_its_decision(write: BatchWrite, counts: tuple[int, ...], death: Death) -> None:
    """All of it is seen, or nothing; and until somebody ends it, or its timeout, what is not decided stays open."""
    tasks = [write.run(task, count) for task, count in enumerate(counts)]
    assert run_and_die(lambda: commit_write(write.options, tasks, write.write_id), death) == DEAD
    decided = death != DEATHS[0]
    assert bool(write.open_ids()) != decided
    end_leftovers(write.client, write_group_of(WRITE))
    assert write.seen_now() == (write.expected(*counts) if decided else [])


def test_a_driver_that_lives(write: BatchWrite) -> None:
    """The deaths are where they should be: without one it is done."""
    tasks = [write.run(0), write.run(1, FEW)]
    assert run_and_die(lambda: commit_write(write.options, tasks, write.write_id), None) == DONE
    assert write.seen_now() == write.expected(MANY, FEW)


def test_a_broker_killed_before_the_decision(
    write: BatchWrite, peer: HeadracePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = TransactionalProducer._end_all

    def killed(self: Any, others: Any) -> Any:
        monkeypatch.setattr(TransactionalProducer, "_end_all", end)
        peer.kill()
        peer.start()
        return end(self, others)

    tasks = [write.run(0), write.run(1)]
    monkeypatch.setattr(TransactionalProducer, "_end_all", killed)
    commit_write(write.options, tasks, write.write_id)
    assert write.seen_now() == write.expected(MANY, MANY) and write.open_ids() == []


def test_without_the_newer_protocol_tasks_encode(write: BatchWrite) -> None:
    set_transaction_version(write.client, 1)
    try:
        tasks = [write.run(0), write.run(1, FEW)]
        assert {type(task) for task in tasks} == {EncodedTask} and write.seen_now() == []
        commit_write(write.options, tasks, write.write_id)
        assert write.seen_now() == write.expected(MANY, FEW)
    finally:
        set_transaction_version(write.client, 2)


@pytest.mark.jvm
@pytest.mark.slow
def test_before_apache_kafka_tasks_encode() -> None:
    with KafkaPeer(settings=SMALL) as kafka, client_of(kafka) as client, BatchWrite(client) as write:
        tasks = [write.run(0), write.run(1, FEW)]
        assert {type(task) for task in tasks} == {EncodedTask}
        commit_write(write.options, tasks, write.write_id)
        assert write.seen_now() == write.expected(MANY, FEW)
        WholeBatch().abort(write.options, [None, *tasks], write.write_id)
        assert write.seen_now() == write.expected(MANY, FEW)
