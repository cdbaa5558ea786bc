"""A driver to be killed: copies a topic into Parquet files and into another topic, until it dies or has read all.

python copying.py BOOTSTRAP FROM TO DIRECTORY forever|now files|topic|both
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Two cores, quiet, and what `settings` say otherwise."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
    )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(bootstrap: str, source: str, sink: str, directory: str, how_long: str, what: str) -> None:
    """Run one query, or both in turn; a line `batch N` for every batch that is done."""
    spark = session()

    def records() -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
        if how_long != "now":
            options["maxOffsetsPerTrigger"] = "2000"
        return spark.readStream.format("headrace").options(**options).load()

    trigger = {"availableNow": True} if how_long == "now" else {"processingTime": "0 seconds"}

    def to_files() -> StreamingQuery:
        writer = records().writeStream.format("parquet").option("path", f"{directory}/rows")
        return writer.option("checkpointLocation", f"{directory}/rows-checkpoint").trigger(**trigger).start()

    def to_topic() -> StreamingQuery:
        writer = records().select("key", "value").writeStream.format("headrace")
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", sink)
        return writer.option("checkpointLocation", f"{directory}/topic-checkpoint").trigger(**trigger).start()

    # One after the other: two streams of Python sources in one session of Spark 4.3 now and then fail a task's
    # serialization ("Illegal size 5 of collection, expected 7"), which has nothing to do with what is tested.
    for start in {"files": (to_files,), "topic": (to_topic,), "both": (to_files, to_topic)}[what]:
        follow(start())
    spark.stop()


def follow(query: StreamingQuery) -> None:
    """A line for every batch, until the query has ended."""
    seen = -1
    while query.isActive:
        time.sleep(0.05)
        progress = query.lastProgress
        if progress and progress["batchId"] != seen:
            seen = progress["batchId"]
            print(f"batch {seen}", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
