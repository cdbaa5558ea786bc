"""A Spark under measurement: a session with one of the two connectors, which does the jobs that it is asked for.

    python -m bench.spark.driver headrace|kafka|prebuilt BOOTSTRAP DIRECTORY [JAR...]

A job is a line of JSON on standard input, `{"job": "batch_sum", ...}`; the answer is a line of JSON on standard output,
with what it measured or with `error`. It ends with its input. Both connectors get the same jobs and the
same settings; ours is told of the columns and of the format of the values by its own options.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["PYSPARK_PYTHON"] = sys.executable

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

JSON_SCHEMA = "id BIGINT, name STRING, amount DOUBLE, paid BOOLEAN, at TIMESTAMP"
CHECKED_ROWS = 1000
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
BATCHES_KEPT = 100_000
ROWS_OF_ARROW = 10_000
"""In one Arrow batch, as Spark hands them to a sink."""


def session(directory: Path, jars: list[str]) -> SparkSession:
    """Two cores, Spark's own defaults, and silence."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", str(BATCHES_KEPT))
        .config("spark.log.level", "ERROR")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@dataclass
class Jobs:
    """The jobs of one connector at one broker. Each returns what it measured, and raises where the result is wrong."""

    spark: SparkSession
    connector: str
    bootstrap: str
    directory: Path
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def _options(self, topic: str, *, values_only: bool = False, **prebuilt: int) -> dict[str, str]:
        """`prebuilt` says what the topic would hold. A Python source is told of the columns that a query uses."""
        chosen = {"columns": "value"} if values_only and self.connector != "kafka" else {}
        if self.connector == "prebuilt":
            return {key: str(value) for key, value in prebuilt.items()} | chosen
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **chosen}

    def _read(self, options: dict[str, str]) -> DataFrame:
        return self.spark.read.format(self.connector).options(**options).load()

    def _checkpoint(self) -> Path:
        return self.directory / f"checkpoint-{next(self._numbers)}"

    def about(self) -> dict[str, Any]:
        """What runs here."""
        return {"pyspark": pyspark.__version__}

    def batch_sum(self, topic: str, rows: int, size: int) -> dict[str, Any]:
        """All of a topic, the lengths of its values added up."""
        before = time.perf_counter()
        frame = self._read(self._options(topic, values_only=True, rows=rows, size=size))
        summed = frame.selectExpr("sum(length(value))").first()
        seconds = time.perf_counter() - before
        assert summed is not None
        total = summed[0]
        assert total == rows * size, f"{total} bytes, not {rows * size}"
        return {"seconds": seconds}

    def available_now(self, topic: str, rows: int, size: int, values_only: bool = False) -> dict[str, Any]:
        """All of a topic as a stream that ends, to nowhere: every column or the values; from start() to its end.

        `batch_seconds` are those of the batches alone, without the start of the query, for which Spark starts a Python
        process where the source is written in Python.
        """
        checkpoint = self._checkpoint()
        options = self._options(topic, values_only=values_only, rows=rows, size=size)
        before = time.perf_counter()
        reader = self.spark.readStream.format(self.connector).options(**options)
        frame = reader.option("startingOffsets", "earliest").load()
        writer = (frame.select("value") if values_only else frame).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - before
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert read == rows, f"{read} rows, not {rows}"
        shutil.rmtree(checkpoint)
        took_ms = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress)
        return {"seconds": seconds, "batch_seconds": took_ms / 1000}

    def batch_write(self, topic: str, rows: int, size: int) -> dict[str, Any]:
        """Values of one size to a topic, no keys, two tasks."""
        values = self.spark.range(0, rows, 1, 2).select(F.lit(b"x" * size).alias("value"))
        before = time.perf_counter()
        writer = values.write.format(self.connector).mode("append")
        writer.option("kafka.bootstrap.servers", self.bootstrap).option("topic", topic).save()
        return {"seconds": time.perf_counter() - before}

    def json_columns(self, topic: str, rows: int) -> dict[str, Any]:
        """All of a topic as typed columns, to nowhere."""
        before = time.perf_counter()
        self._typed(topic).write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - before
        some = self._typed(topic).limit(CHECKED_ROWS)
        whole = some.where("id > 0 and name like 'customer-%' and amount >= 0 and paid is not null and at is not null")
        found = whole.count()
        assert found == min(rows, CHECKED_ROWS), f"{found} of {CHECKED_ROWS} values are whole"
        return {"seconds": seconds}

    def _typed(self, topic: str) -> DataFrame:
        """Each in its own way: ours decodes in the source, theirs in the query."""
        if self.connector == "headrace":
            options = self._options(topic, values_only=True) | {"valueFormat": "json", "valueSchema": JSON_SCHEMA}
            return self._read(options).select("value.*")
        parsed = F.from_json(F.col("value").cast("string"), JSON_SCHEMA)
        return self._read(self._options(topic)).select(parsed.alias("parsed")).select("parsed.*")

    def copy(self, topic: str, to: str, rows: int, batch_rows: int, delivery: str) -> dict[str, Any]:
        """All of a topic's values into another topic, as a stream that ends; `delivery` is for ours alone.

        `batch_seconds` are those of the batches, without the start of the query.
        """
        checkpoint = self._checkpoint()
        reader = self.spark.readStream.format(self.connector).options(**self._options(topic, values_only=True))
        frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", batch_rows).load()
        writer = self._into(frame.select("value"), to, delivery)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert read == rows, f"{read} rows, not {rows}"
        shutil.rmtree(checkpoint)
        took_ms = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress)
        return {"batch_seconds": took_ms / 1000}

    def _into(self, rows: DataFrame, topic: str, delivery: str) -> DataStreamWriter:
        """A stream into a topic."""
        writer = rows.writeStream.format(self.connector).option("kafka.bootstrap.servers", self.bootstrap)
        if self.connector == "headrace":
            writer = writer.option("delivery", delivery)
        return writer.option("topic", topic)

    def hands_of_exactly_once(self, to: str, rows: int, size: int) -> dict[str, Any]:
        """One batch of exactly once in parts: a task's encoding, and the driver's commit, each alone in this process.

        What Spark takes to carry the encoded rows from one to the other is in neither.
        """
        import pyarrow as pa

        from headrace.spark.delivery.exactly_once import commit_write
        from headrace.spark.delivery.messages import encode_rows
        from headrace.spark.delivery.spark_task import QueryBatch
        from headrace.spark.options import sink_options

        options = sink_options({
            "kafka.bootstrap.servers": self.bootstrap, "topic": to, "delivery": "exactly-once",
        })  # fmt: skip
        values = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * size] * ROWS_OF_ARROW)})
        before = time.perf_counter()
        task = encode_rows((values for _ in range(rows // ROWS_OF_ARROW)), options, QueryBatch())
        encoded = time.perf_counter()
        commit_write(options, [task], "bench")
        return {"rows": task.rows, "encode": encoded - before, "commit": time.perf_counter() - encoded}

    def micro_batches(
        self, topic: str, rate: int, warm_s: float, seconds: float, manager: str, to: str = "", delivery: str = ""
    ) -> dict[str, Any]:
        """How long each micro-batch with rows takes, in milliseconds, while somebody writes to the topic: to nowhere,
        or to another topic."""
        was = self.spark.conf.get(MANAGER, None)
        if manager:
            self.spark.conf.set(MANAGER, manager)
        checkpoint = self._checkpoint()
        try:
            frame = self.spark.readStream.format(self.connector).options(**self._options(topic, rate=rate)).load()
            writer = self._into(frame.select("value"), to, delivery) if to else frame.writeStream.format("noop")
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            query.awaitTermination(warm_s)  # type: ignore[arg-type]  # parts of a second will do
            warm = len(query.recentProgress)
            query.awaitTermination(seconds)  # type: ignore[arg-type]
            measured = query.recentProgress[warm:]
            query.stop()
        finally:
            if manager:
                self.spark.conf.unset(MANAGER) if was is None else self.spark.conf.set(MANAGER, was)
        times = [each["durationMs"]["triggerExecution"] for each in measured if each["numInputRows"]]
        assert times, "no batch had a row"
        return {"times_ms": times}


def answer(jobs: Jobs, line: str) -> dict[str, Any]:
    """What came of one job."""
    asked = json.loads(line)
    job: Callable[..., dict[str, Any]] = getattr(jobs, asked.pop("job"))
    try:
        return job(**asked)
    except Exception:
        # a query adds its plan to what went wrong
        said, _, _ = traceback.format_exc().partition("=== Streaming Query ===")
        return {"error": said.strip()}


def main(connector: str, bootstrap: str, directory: str, *jars: str) -> None:
    jobs = Jobs(session(Path(directory), list(jars)), connector, bootstrap, Path(directory))
    if connector == "prebuilt":
        from bench.spark.prebuilt import Source

        jobs.spark.dataSource.register(Source)
    for line in sys.stdin:
        print(json.dumps(answer(jobs, line)), flush=True)
    jobs.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
