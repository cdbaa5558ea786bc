"""A program that does all of `format("headrace")`, for every place where Spark runs; it prints what it found as JSON.

    spark-submit ... everything.py BOOTSTRAP DIRECTORY [PART...]

It reads the topic `numbers`, whose values are 0, 1, 2, ... and whose keys are theirs modulo 7, and writes to topics of
its own. The session is the one that `spark-submit`, SPARK_REMOTE or the variable MASTER gives; over Connect
the variable BRING names an archive of the package. DIRECTORY is for checkpoints, one that all machines see.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import headrace.spark

GROUP = "everything"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": ROCKS,
}


class Program:
    """The parts, by their names: what they write is for a test to look at, what they read they return."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: str) -> None:
        self.spark = spark
        self.directory = directory
        self.brokers = {"kafka.bootstrap.servers": bootstrap}

    def batch(self) -> dict[str, int]:
        """How many values there are, and their sum."""
        rows = self.spark.read.format("headrace").options(**self.brokers, subscribe="numbers").load()
        found = rows.selectExpr("count(*) AS n", "sum(int(string(value))) AS total").collect()[0]
        return {"rows": found["n"], "sum": found["total"]}

    def write(self) -> None:
        """By a batch write, at least once and exactly once."""
        rows = self.spark.range(100).select(F.col("id").cast("string").alias("value"))
        for topic, more in (("written", {}), ("written-once", {"delivery": "exactly-once"})):
            writer = rows.write.format("headrace").options(**self.brokers, topic=topic, **more)
            writer.mode("append").save()

    def copy(self) -> None:
        """By a stream, at least once; it also commits offsets to a group."""
        writer = headrace.spark.write_stream(self._numbers(), {**self.brokers, "topic": "copied"})
        self._to_its_end(writer, "copy")

    def copy_once(self) -> None:
        """By a stream, exactly once."""
        options = {**self.brokers, "topic": "copied-once", "delivery": "exactly-once"}
        self._to_its_end(headrace.spark.write_stream(self._numbers(), options), "copy-once")

    def update(self) -> None:
        """Counts in update mode."""
        counts = self._numbers().groupBy("key").count().selectExpr("key", "string(count) AS value")
        self._to_its_end(self._updates(counts, "counts", "update"), "update")

    def state(self) -> None:
        """Sums that a StatefulProcessor keeps, from a topic into a topic."""
        keyed = self._numbers().selectExpr("string(key) AS key", "bigint(string(value)) AS number")
        sums = keyed.groupBy("key").transformWithState(
            statefulProcessor=Sums(), outputStructType="key STRING, value STRING", outputMode="Update", timeMode="None"
        )
        self._to_its_end(self._updates(sums, "sums", "state"), "state")

    def state_sink(self) -> None:
        """The same in append mode, which a sink of Python's takes itself."""
        keyed = self._numbers().selectExpr("string(key) AS key", "bigint(string(value)) AS number")
        sums = keyed.groupBy("key").transformWithState(
            statefulProcessor=Sums(), outputStructType="key STRING, value STRING", outputMode="Append", timeMode="None"
        )
        options = {**self.brokers, "topic": "sums-once", "delivery": "exactly-once"}
        self._to_its_end(headrace.spark.write_stream(sums, options), "state-sink")

    def _numbers(self) -> DataFrame:
        options = {**self.brokers, "subscribe": "numbers", "startingOffsets": "earliest", "kafka.group.id": GROUP}
        return self.spark.readStream.format("headrace").options(**options).load().select("key", "value")

    def _updates(self, rows: DataFrame, topic: str, name: str) -> Any:
        """A writer of update mode, exactly once. Over Connect the checkpoint tells it of its query."""
        options = {**self.brokers, "topic": topic, "delivery": "exactly-once"}
        options["checkpointLocation"] = f"{self.directory}/{name}"
        return rows.writeStream.outputMode("update").foreachBatch(headrace.spark.write_updates(options))

    def _to_its_end(self, writer: Any, name: str) -> None:
        query = writer.option("checkpointLocation", f"{self.directory}/{name}").trigger(availableNow=True).start()
        query.awaitTermination()


class Sums(StatefulProcessor):
    """The sum of the numbers of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self.total.get()
        total = (before[0] if before is not None else 0) + sum(row["number"] for row in rows)
        self.total.update((total,))
        yield Row(key=key[0], value=str(total))

    def close(self) -> None:
        pass


def session() -> SparkSession:
    """Whichever Spark the environment says."""
    builder = SparkSession.builder
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    if "MASTER" in os.environ:
        builder = builder.master(os.environ["MASTER"])
    return builder.getOrCreate()


def main(bootstrap: str, directory: str, *parts: str) -> None:
    spark = session()
    if "BRING" in os.environ:
        spark.addArtifacts(os.environ["BRING"], pyfile=True)
    headrace.spark.register(spark)
    program = Program(spark, bootstrap, directory)
    for name in parts or ("batch", "write", "copy", "copy_once", "update", "state", "state_sink"):
        part: Callable[[], dict[str, int] | None] = getattr(program, name)
        print(json.dumps({"part": name, **(part() or {})}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
