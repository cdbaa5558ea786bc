"""A Spark driver with two queries that copy a topic: one with Spark's own Kafka connector, one with ours.

    python spark_driver.py BOOTSTRAP DIRECTORY SOURCE JAR...

Each query copies SOURCE to the topic that is called like its format. The first line on standard input says that all is
written; then the driver reads to the end, and says as JSON how many rows each query had, and what it died of.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

FORMATS = ("kafka", "headrace")


def copy(spark: SparkSession, format_: str, bootstrap: str, directory: str, source: str) -> StreamingQuery:
    """Values and keys, from the earliest record on."""
    server = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format(format_).options(**server, subscribe=source, startingOffsets="earliest")
    writer = reader.load().select("key", "value").writeStream.format(format_).options(**server, topic=format_)
    return writer.option("checkpointLocation", f"{directory}/{format_}").queryName(format_).start()


def main(bootstrap: str, directory: str, source: str, *jars: str) -> None:
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.local.dir": f"{directory}/local",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    queries = {format_: copy(spark, format_, bootstrap, directory, source) for format_ in FORMATS}
    sys.stdin.readline()
    said = {}
    for format_, query in queries.items():
        error = query.exception()
        if error is None:
            query.processAllAvailable()
            query.stop()
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        said[format_] = {"rows": rows, "error": None if error is None else str(error)}
    print(json.dumps(said), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
