"""A program whose first task is so slow that Spark runs it a second time: both attempts write at the same time.

    spark-submit ... speculating.py BOOTSTRAP DIRECTORY PART...

It copies the topic `numbers` by each part, into a topic named as the part is. DIRECTORY is for checkpoints and for the
names of the attempts that have begun; all machines see it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import headrace.spark

SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}
PATIENCE_S = 60.0
"""How long the slow attempt waits for the other."""
ALONE = "alone"
"""What the slow attempt leaves where no other came."""


def slow(directory: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on; the first attempt of the first task stops after some of them until another has begun."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        number, attempt = task.partitionId(), task.attemptNumber()
        (directory / f"{number}-{attempt}").touch()
        for count, rows in enumerate(batches):
            if count == 2 and number == attempt == 0 and not comes(directory / "0-1"):
                (directory / ALONE).touch()  # an error would be followed by an attempt of another kind
            yield rows

    return pass_on


def comes(file: Path) -> bool:
    """Whether a file is made in time. Who makes it runs on another machine, so that there is nothing to wait on."""
    until = time.monotonic() + PATIENCE_S
    while not file.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def main(bootstrap: str, directory: str, *parts: str) -> None:
    builder = SparkSession.builder
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    headrace.spark.register(spark)
    brokers = {"kafka.bootstrap.servers": bootstrap}
    for part in parts:
        attempts = Path(directory) / part
        attempts.mkdir()
        sink = {**brokers, "topic": part, "delivery": part.partition("_")[0]}

        def copied(rows: DataFrame, attempts: Path = attempts) -> DataFrame:
            return rows.select("key", "value").mapInArrow(slow(attempts), "key BINARY, value BINARY")

        source = {**brokers, "subscribe": "numbers", "startingOffsets": "earliest", "minPartitions": "4"}
        if part.endswith("_stream"):
            rows = copied(spark.readStream.format("headrace").options(**source).load())
            writer = headrace.spark.write_stream(rows, sink).option(
                "checkpointLocation", f"{directory}/{part}-checkpoint"
            )
            writer.trigger(availableNow=True).start().awaitTermination()
        else:
            rows = copied(spark.read.format("headrace").options(**source).load())
            rows.write.format("headrace").options(**sink).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
