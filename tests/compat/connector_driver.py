"""Spark's own Kafka connector at work: six programs one after the other, in a process of their own.

    python connector_driver.py BOOTSTRAP DIRECTORY JAR...

The topics are there. What each program found, or how it failed, is left in DIRECTORY/said.json.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

import pyarrow as pa
import pyspark
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

ROOT = Path(__file__).resolve().parents[2]
TRIPS_MIN = 20
TRIPS_MAX = 20_000
ANSWER_PATIENCE_S = 60.0


def session(jars: list[str], directory: Path) -> SparkSession:
    """Two cores, quiet, and the connector."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@dataclass(frozen=True)
class Place:
    """Where the programs run: a session, a broker, a directory."""

    spark: SparkSession
    bootstrap: str
    directory: Path

    def batch(self, topic: str, **options: str) -> DataFrame:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    def stream(self, topic: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()

    def to_topic(self, rows: DataFrame, topic: str) -> DataStreamWriter:
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return writer.option("topic", topic).option("checkpointLocation", str(self.directory / f"{topic}-checkpoint"))

    def append(self, topic: str, first: int, end: int, **options: str) -> None:
        """Records `k1: v1` from `first` up to, not including, `end`, by a batch write."""
        numbers = self.spark.range(first, end).select(
            F.concat(F.lit("k"), "id").alias("key"),
            F.concat(F.lit("v"), "id").alias("value"),
            F.array(F.struct(F.lit("h").alias("key"), F.lit(b"x").alias("value"))).alias("headers"),
        )
        writer = numbers.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        writer.option("topic", topic).options(**options).save()


def batch_read(place: Place) -> dict[str, Any]:
    """All of a topic, left as Arrow; parts of it, by offsets and by time."""
    rows = place.batch("read", includeHeaders="true").orderBy("partition", "offset").toArrow()
    with pa.OSFile(str(place.directory / "read.arrow"), "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
        writer.write_table(rows)
    starting, ending = '{"read": {"0": 10, "1": -2, "2": 5}}', '{"read": {"0": 25, "1": -1, "2": 5}}'
    between = place.batch("read", startingOffsets=starting, endingOffsets=ending)
    counts = {str(row["partition"]): row["count"] for row in between.groupBy("partition").count().collect()}
    since_ms = (place.directory / "since_ms.txt").read_text()
    return {"between": counts, "since": place.batch("read", startingTimestamp=since_ms).count()}


def batch_write(place: Place) -> dict[str, Any]:
    """Records with keys and headers, uncompressed and compressed."""
    place.append("written", 0, 1000)
    place.append("written", 1000, 2000, **{"kafka.compression.type": "lz4"})
    return {}


def rows_of(query: StreamingQuery) -> list[int]:
    """How many rows each batch of a query had, those with none left out."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def stream(place: Place) -> dict[str, Any]:
    """A topic copied while it grows, stopped, and gone on with from the checkpoint."""
    rows = place.stream("stream-in").select("key", "value")
    query = place.to_topic(rows, "stream-out").start()
    query.processAllAvailable()
    place.append("stream-in", 300, 400)
    query.processAllAvailable()
    query.stop()
    first = rows_of(query)
    place.append("stream-in", 400, 450)
    query = place.to_topic(rows, "stream-out").start()
    query.processAllAvailable()
    query.stop()
    return {"first": first, "second": rows_of(query)}


def available_now(place: Place) -> dict[str, Any]:
    """What is there, a hundred at a time, to the end; then what has come since."""
    rows = place.stream("now-in", maxOffsetsPerTrigger="100").select("key", "value")

    def run() -> list[int]:
        query = place.to_topic(rows, "now-out").trigger(availableNow=True).start()
        query.awaitTermination()
        return rows_of(query)

    first = run()
    place.append("now-in", 300, 340)
    return {"first": first, "second": run()}


def taken_over(place: Place) -> dict[str, Any]:
    """The query before, gone on with in `format("headrace")` as docs/from-the-kafka-connector.md says."""
    place.append("now-in", 340, 360)
    page = (ROOT / "docs" / "from-the-kafka-connector.md").read_text()
    (recipe,) = re.findall(r"```python\n(from pathlib .*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"spark": place.spark}
    exec(recipe.replace("old-checkpoint", str(place.directory / "now-out-checkpoint")), names)
    reader = names["flights"].option("kafka.bootstrap.servers", place.bootstrap).option("subscribe", "now-in")
    writer = reader.load().writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(place.directory / "new-checkpoint")).start()
    query.awaitTermination()
    return {"rows": rows_of(query)}


def real_time(place: Place) -> dict[str, Any]:
    """Round trips through a query in real-time mode, each begun when the one before has come back, until the query has
    finished a batch at least."""
    rows = place.stream("real-in").select(F.concat(F.lit("seen "), F.col("value").cast("string")).alias("value"))
    writer = place.to_topic(rows, "real-out").outputMode("update")
    query = writer.trigger(realTime="5 seconds").start()  # type: ignore[call-overload]  # PySpark's overloads lack it
    producer = Producer({"bootstrap.servers": place.bootstrap, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "real", "enable.auto.commit": False})
    consumer.assign([TopicPartition("real-out", 0, 0)])
    seen: list[str] = []
    try:
        while len(seen) < TRIPS_MIN or (len(seen) < TRIPS_MAX and not query.recentProgress):
            producer.produce("real-in", b"%d" % len(seen))
            producer.poll(0)
            message = consumer.poll(ANSWER_PATIENCE_S)
            if message is None or message.error():
                why = message.error() if message else query.exception()
                raise RuntimeError(f"no answer to record {len(seen)}: {why}")
            seen.append((message.value() or b"").decode())
        return {"seen": seen, "batches": len(query.recentProgress)}
    finally:
        consumer.close()
        query.stop()


PROGRAMS = (batch_read, batch_write, stream, available_now, taken_over, real_time)


def main(bootstrap: str, directory: str, *jars: str) -> None:
    """Every program, whatever became of the one before."""
    place = Place(session(list(jars), Path(directory)), bootstrap, Path(directory))
    said: dict[str, dict[str, Any]] = {"spark": {"version": pyspark.__version__}}
    for program in PROGRAMS:
        try:
            said[program.__name__] = program(place)
        except Exception:
            said[program.__name__] = {"error": traceback.format_exc()}
    (place.directory / "said.json").write_text(json.dumps(said))
    place.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
