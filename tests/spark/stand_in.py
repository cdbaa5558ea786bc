"""What Spark does around a reader, done here: options, offsets through JSON, tasks and readers through pickle."""

from __future__ import annotations

import json
import pickle
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.spark.options import SourceOptions, source_options


def write(client: Client, topic: str, count: int, start: int = 0) -> None:
    with Producer(client) as producer:
        for number in range(start, start + count):
            producer.send(topic, b"%d" % number, key=b"k%d" % number, partition=number % 2)


def options(client: Client, topic: str, **more: str) -> SourceOptions:
    """Of a stream."""
    return source_options(given(client, topic, more), streaming=True)


def batch_options(client: Client, topic: str, **more: str) -> SourceOptions:
    return source_options(given(client, topic, more), streaming=False)


def given(client: Client, topic: str, more: dict[str, str]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": client.bootstrap_text, "subscribe": topic, **more}  # type: ignore[attr-defined]


def values(reader: Any, tasks: Any) -> list[int]:
    """What the tasks read, in a worker's stead: the reader goes through pickle as it does in Spark."""
    remote = pickle.loads(pickle.dumps(reader))
    found: list[int] = []
    for task in tasks:
        for batch in remote.read(pickle.loads(pickle.dumps(task))):
            found += [int(value) for value in batch.column(1).to_pylist()]
    return sorted(found)


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    """Offsets travel as JSON."""
    result: dict[str, Any] = json.loads(json.dumps(offset))
    return result


TRIGGERS = ("processing time", "availableNow", "once")
IDLE_TIMES = 3
"""So often a query that goes on is told that nothing is new, before a test takes it for finished."""


def run_stream(reader: Any, trigger: str, logged: dict[str, Any] | None = None) -> tuple[list[int], dict[str, Any]]:
    """What a query reads under a trigger, and its last offset: from that of a checkpoint on, or as a new one.

    The calls are those of Spark's MicroBatchExecution, in its order.
    """
    if trigger == "availableNow":
        reader.prepareForTriggerAvailableNow()
    limit = ReadAllAvailable() if trigger == "once" else reader.getDefaultReadLimit()
    start = logged
    if start is None:
        start = through_json(reader.initialOffset())
        assert through_json(reader.initialOffset()) == start
    found: list[int] = []
    idle = 0
    while idle < IDLE_TIMES:
        end = through_json(reader.latestOffset(start, limit))
        if end == start:
            if trigger != "processing time":
                break
            idle += 1
            continue
        found += values(reader, reader.partitions(start, end))
        start = end
        if trigger == "once":
            break
    return sorted(found), start
