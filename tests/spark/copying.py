"""A driver to be killed: copies a topic into Parquet files and into another topic, until it dies or has read all.

python copying.py BOOTSTRAP FROM TO DIRECTORY forever|now
"""

from __future__ import annotations

import os
import sys
import time

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession


def session() -> SparkSession:
    """Two cores, quiet."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(bootstrap: str, source: str, sink: str, directory: str, how_long: str) -> None:
    """Run both queries; a line `batch N` for every batch that is done."""
    spark = session()

    def records() -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
        if how_long != "now":
            options["maxOffsetsPerTrigger"] = "2000"
        return spark.readStream.format("headrace").options(**options).load()

    trigger = {"availableNow": True} if how_long == "now" else {"processingTime": "0 seconds"}
    files = (
        records()
        .writeStream.format("parquet")
        .option("path", f"{directory}/rows")
        .option("checkpointLocation", f"{directory}/rows-checkpoint")
        .trigger(**trigger)
        .start()
    )
    topic = (
        records()
        .select("key", "value")
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", f"{directory}/topic-checkpoint")
        .trigger(**trigger)
        .start()
    )
    seen = -1
    while files.isActive and topic.isActive:
        time.sleep(0.05)
        progress = files.lastProgress
        if progress and progress["batchId"] != seen:
            seen = progress["batchId"]
            print(f"batch {seen}", flush=True)
    files.awaitTermination()
    topic.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
