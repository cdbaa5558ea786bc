"""Which task of which write a process runs."""

from __future__ import annotations

import pytest
from pyspark import TaskContext

from headrace.spark.delivery.spark_task import NO_BATCH, QueryBatch, SparkTask, current_task

OF_STREAM = {"sql.streaming.queryId": "query", "spark.jobGroup.id": "run", "streaming.sql.batchId": "7"}


class Context:
    """What Spark tells a task of itself."""

    def __init__(self, told: dict[str, str], task: int, attempt: int) -> None:
        self._told = told
        self._task = task
        self._attempt = attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self._told.get(name)

    def partitionId(self) -> int:
        return self._task

    def attemptNumber(self) -> int:
        return self._attempt


def in_spark(patch: pytest.MonkeyPatch, told: dict[str, str], task: int = 3, attempt: int = 1) -> None:
    patch.setattr(TaskContext, "get", lambda: Context(told, task, attempt))


def test_outside_spark() -> None:
    assert current_task() == SparkTask(QueryBatch("", "", NO_BATCH), "", None, 0)
    assert current_task(write_id="w") == SparkTask(write_id="w")


def test_a_task_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    in_spark(monkeypatch, OF_STREAM)
    assert current_task() == SparkTask(QueryBatch("query", "run", 7), "", 3, 1)


def test_a_task_of_a_batch_write(monkeypatch: pytest.MonkeyPatch) -> None:
    in_spark(monkeypatch, {"spark.jobGroup.id": "of a notebook"})
    assert current_task(write_id="w") == SparkTask(QueryBatch(), "w", 3, 1)


def test_a_batch_that_spark_does_not_tell_its_tasks_of(monkeypatch: pytest.MonkeyPatch) -> None:
    in_spark(monkeypatch, {})
    given = QueryBatch("query", "run", 2)
    assert current_task(batch=given) == SparkTask(given, "", 3, 1)
