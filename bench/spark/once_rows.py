"""The rows about delivery: what exactly once costs over at least once, and where its driver becomes the limit.

The connector of Spark's own writes at least once alone, so that it stands beside both. The cost of exactly once is the
difference between two rows of ours: by group commit on our broker, by the driver on Apache Kafka, and task by task on
either, as its tasks send in transactions of their own. By the driver, tasks encode, and one driver sends what they have
encoded: when the tasks of a cluster encode faster together than the driver commits alone, more of them bring nothing.
The last rows have both rates.
"""

from __future__ import annotations

import time

from bench.link import Link
from bench.memory import touch
from bench.spark.rows import (
    LARGE,
    MILLION,
    PARTITIONS,
    RATE,
    RECORD_OVERHEAD,
    SMALL,
    Measure,
    Row,
    Scale,
    Work,
    filled,
    micro_batches,
)
from bench.spark.sides import Side
from bench.wire_rows import MB, drop, topic_for

BATCH_BYTES = 64 << 20
"""Of the values in a micro-batch: well below what a batch of exactly once may have."""
AT_LEAST, EXACTLY, PER_TASK = "at-least-once", "exactly-once", "exactly-once-per-task"


def fresh_name() -> str:
    """Of a topic to be written to."""
    return f"once-{time.monotonic_ns()}"


def copy(size: int, delivery: str) -> Measure:
    """Million rows a second from one topic to another, of the batches alone; all rows have arrived."""

    def measure(side: Side, scale: Scale) -> tuple[float, ...]:
        rows = scale.read(size)
        to = topic_for(side.rig, fresh_name(), PARTITIONS)
        touch(rows * (size + RECORD_OVERHEAD))
        took = side.ask("copy", topic=filled(size), to=to, rows=rows, batch_rows=BATCH_BYTES // size, delivery=delivery)
        check_arrived(side, to, rows)
        return (rows / took["batch_seconds"] / MILLION,)

    return measure


def check_arrived(side: Side, topic: str, rows: int) -> None:
    """Raises AssertionError where a topic has fewer records. Ends of transactions take an offset each, too."""
    with Link(side.rig.port) as link:
        arrived = sum(link.end_offset(topic, each) for each in range(PARTITIONS))
    drop(side.rig, topic)
    assert arrived >= rows, f"{arrived} of {rows} rows arrived"


def hands(size: int) -> Measure:
    """Megabytes of values a second: that one task encodes, and that the driver commits."""

    def measure(side: Side, scale: Scale) -> tuple[float, ...]:
        to = topic_for(side.rig, fresh_name(), PARTITIONS)
        took = side.ask("hands_of_exactly_once", to=to, rows=BATCH_BYTES // size, size=size)
        check_arrived(side, to, took["rows"])
        megabytes = took["rows"] * size / MB
        return megabytes / took["encode"], megabytes / took["commit"]

    return measure


def _copies(size: int, name: str, shown: str) -> tuple[Work, ...]:
    topics = (filled(size),)
    least = Row(f"copy-{name}", f"topic to topic, {shown}, at least once", RATE, 1.0)
    once = Row(f"once-{name}", "the same, ours exactly once", RATE, 0.8)
    per_task = Row(f"per-task-{name}", "the same, ours task by task", RATE, 0.8)
    encode = Row(f"once-{name}-task", f"of exactly once, {shown}: a task encodes", "MB/s", 1.0)
    commit = Row(f"once-{name}-driver", "and the driver commits", "MB/s", 1.0)
    return (
        Work((least,), copy(size, AT_LEAST), topics, needs_broker=True),
        Work((once,), copy(size, EXACTLY), topics, needs_broker=True),
        Work((per_task,), copy(size, PER_TASK), topics, needs_broker=True, ours_alone=True),
        Work((encode, commit), hands(size), needs_broker=True, ours_alone=True),
    )


def _trickle(key: str, title: str, delivery: str, *, ours_alone: bool = False) -> Work:
    rows = (
        Row(f"{key}-p50", f"{title}, p50", "ms", 1.5, lower=True),
        Row(f"{key}-p99", "the same, p99", "ms", 1.5, lower=True),
    )
    return Work(rows, micro_batches("", delivery), warms_itself=True, needs_broker=True, ours_alone=ours_alone)


ONCE_WORKS = (
    *_copies(SMALL, "100", "100 B"),
    *_copies(LARGE, "1k", "1 KB"),
    _trickle("trickle-copy", "a trickle to a topic, at least once", AT_LEAST),
    _trickle("trickle-once", "the same, ours exactly once", EXACTLY),
    _trickle("trickle-per-task", "the same, ours task by task", PER_TASK, ours_alone=True),
)
