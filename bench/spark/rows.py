"""The rows of `make bench-spark`, and how each is measured on a side."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.bars import Barred
from bench.link import Link
from bench.memory import touch
from bench.rigs import ROOT, Rig, run_python
from bench.spark.sides import Peak, Side
from bench.wire_rows import MB, drop, p99, topic_for

MILLION = 1_000_000
PARTITIONS = 2
SMALL, LARGE = 100, 1024
RECORD_OVERHEAD = 40
"""Bytes that a record takes on disk besides its value, at most."""
JSON = "bench-json"
JSON_BYTES = 130
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Renames where Spark's default asks Hadoop's file contexts: half the time of a small micro-batch on a local disk."""


@dataclass(frozen=True)
class Scale:
    """How much work a measurement is."""

    read_small: int = 4 * MILLION
    read_large: int = MILLION
    write_small: int = 3 * MILLION
    write_large: int = 600_000
    json: int = 2 * MILLION
    trickle_per_s: int = 100
    trickle_warm_s: float = 5.0
    trickle_s: float = 20.0
    rounds: int = 3

    def read(self, size: int) -> int:
        """Records in the topic whose values have this size."""
        return self.read_small if size == SMALL else self.read_large

    def write(self, size: int) -> int:
        """Records that a write of this size is."""
        return self.write_small if size == SMALL else self.write_large


QUICK = Scale(300_000, 100_000, 300_000, 100_000, 200_000, 100, 3.0, 5.0, 1)


@dataclass(frozen=True)
class Row(Barred):
    """One line of the table; its ratio is ours over theirs."""

    key: str
    title: str
    unit: str
    bar: float
    lower: bool = False


Measure = Callable[[Side, Scale], tuple[float, ...]]
"""What measures a row, or several at once."""


@dataclass(frozen=True)
class Work:
    """A measurement and the rows that it gives, in the order of its values.

    `topics` are those that it reads. Work that is `alone` starts Sparks of its own, with no other up. Else the side's
    Spark is warm: it has done the same before, unless the measurement warms itself.
    """

    rows: tuple[Row, ...]
    measure: Measure
    topics: tuple[str, ...] = ()
    alone: bool = False
    warms_itself: bool = False
    needs_broker: bool = False
    """Whether a source of batches made beforehand cannot do it."""
    ours_alone: bool = False
    """Whether it looks into our connector, so that no other can do it."""


def filled(size: int) -> str:
    """The topic whose values have this size."""
    return f"bench-{size}"


def fill(rig: Rig, topic: str, scale: Scale) -> None:
    """A topic that rows read, on one broker."""
    topic_for(rig, topic, PARTITIONS)
    if topic == JSON:
        touch(scale.json * (JSON_BYTES + RECORD_OVERHEAD))
        run_python("bench.spark.load", "json", rig.bootstrap, topic, str(scale.json))
        return
    size = SMALL if topic == filled(SMALL) else LARGE
    rows = scale.read(size)
    touch(rows * (size + RECORD_OVERHEAD))
    run_python("bench.clients", "produce", rig.bootstrap, topic, str(rows), str(size), str(PARTITIONS))


def batch_sum(size: int) -> Measure:
    """Million rows a second of a batch read."""

    def measure(side: Side, scale: Scale) -> tuple[float, ...]:
        rows = scale.read(size)
        return (rows / side.ask("batch_sum", topic=filled(size), rows=rows, size=size)["seconds"] / MILLION,)

    return measure


def available_now(size: int, *, values_only: bool = False) -> Measure:
    """Million rows a second of a stream that ends: from its start to its end, and of its batches alone."""

    def measure(side: Side, scale: Scale) -> tuple[float, ...]:
        rows = scale.read(size)
        took = side.ask("available_now", topic=filled(size), rows=rows, size=size, values_only=values_only)
        return rows / took["seconds"] / MILLION, rows / took["batch_seconds"] / MILLION

    return measure


def batch_write(size: int) -> Measure:
    """Million rows a second of a batch write into a topic of its own; all of them have arrived."""

    def measure(side: Side, scale: Scale) -> tuple[float, ...]:
        rows = scale.write(size)
        topic = topic_for(side.rig, f"written-{time.monotonic_ns()}", PARTITIONS)
        touch(rows * (size + RECORD_OVERHEAD))
        seconds = side.ask("batch_write", topic=topic, rows=rows, size=size)["seconds"]
        with Link(side.rig.port) as link:
            arrived = sum(link.end_offset(topic, each) for each in range(PARTITIONS))
        drop(side.rig, topic)
        assert arrived == rows, f"{arrived} of {rows} rows arrived"
        return (rows / seconds / MILLION,)

    return measure


def json_columns(side: Side, scale: Scale) -> tuple[float, ...]:
    """Million rows a second from JSON to typed columns."""
    return (scale.json / side.ask("json_columns", topic=JSON, rows=scale.json)["seconds"] / MILLION,)


def micro_batches(manager: str, delivery: str = "") -> Measure:
    """Milliseconds that a micro-batch takes while records trickle in: the median and the 99th percentile.

    With a `delivery` its rows go to another topic, else nowhere.
    """

    def measure(side: Side, scale: Scale) -> tuple[float, ...]:
        topic = topic_for(side.rig, f"trickle-{time.monotonic_ns()}", PARTITIONS)
        to = topic_for(side.rig, f"{topic}-copy", PARTITIONS) if delivery else ""
        command = [sys.executable, "-m", "bench.spark.load", "trickle", side.rig.bootstrap, topic]
        writer = subprocess.Popen([*command, str(scale.trickle_per_s)], cwd=ROOT)
        try:
            answer = side.ask(
                "micro_batches",
                topic=topic,
                rate=scale.trickle_per_s,
                warm_s=scale.trickle_warm_s,
                seconds=scale.trickle_s,
                manager=manager,
                to=to,
                delivery=delivery,
            )
            assert writer.poll() is None, "the trickle has ended"
        finally:
            writer.kill()
            writer.wait()
        for each in filter(None, (topic, to)):
            drop(side.rig, each)
        return median(answer["times_ms"]), p99(answer["times_ms"])

    return measure


def memory(side: Side, scale: Scale) -> tuple[float, ...]:
    """Megabytes that a new Spark holds at most over a batch read and a stream of the same topic."""
    rows, topic = scale.read(LARGE), filled(LARGE)
    try:
        side.start()
        with Peak(side) as peak:
            side.ask("batch_sum", topic=topic, rows=rows, size=LARGE)
            side.ask("available_now", topic=topic, rows=rows, size=LARGE)
    finally:
        side.stop()
    return (peak.bytes / MB,)


def _reading(row: Row, measure: Measure, *topics: str) -> Work:
    return Work((row,), measure, topics)


RATE = "M rows/s"
WORKS = (
    Work(
        (Row("memory", "driver and workers, peak memory, 1 KB", "MB", 0.8, lower=True),),
        memory,
        (filled(LARGE),),
        alone=True,
    ),
    _reading(Row("batch-100", "batch sum(length(value)), 100 B", RATE, 2.5), batch_sum(SMALL), filled(SMALL)),
    _reading(Row("batch-1k", "batch sum(length(value)), 1 KB", RATE, 2.5), batch_sum(LARGE), filled(LARGE)),
    *(
        Work(
            (
                Row(f"{key}-{name}", f"AvailableNow, {what} to noop, {shown}", RATE, bar),
                Row(f"{key}-{name}-batch", "the same, without the query's start", RATE, bar),
            ),
            available_now(size, values_only=values_only),
            (filled(size),),
        )
        for size, name, shown, bar in ((SMALL, "100", "100 B", 1.8), (LARGE, "1k", "1 KB", 1.4))
        for key, what, values_only in (("now", "all columns", False), ("now-value", "values", True))
    ),
    Work((Row("write-100", "batch write, 100 B", RATE, 1.2),), batch_write(SMALL), needs_broker=True),
    Work((Row("write-1k", "batch write, 1 KB", RATE, 2.0),), batch_write(LARGE), needs_broker=True),
    Work((Row("json", "JSON values to 5 typed columns", RATE, 1.5),), json_columns, (JSON,), needs_broker=True),
    Work(
        (
            Row("trickle-p50", "micro-batch with a trickle, p50", "ms", 1.5, lower=True),
            Row("trickle-p99", "the same, p99", "ms", 1.5, lower=True),
        ),
        micro_batches(""),
        warms_itself=True,
    ),
    Work(
        (
            Row("trickle-files-p50", "the same, FileSystemBased manager, p50", "ms", 1.5, lower=True),
            Row("trickle-files-p99", "the same, p99", "ms", 1.5, lower=True),
        ),
        micro_batches(FILE_MANAGER),
        warms_itself=True,
    ),
)
