"""Spark's own Kafka connector behind TLS: it writes a topic, reads it, and streams it to another, by each way in.

    python secured_connector_driver.py DIRECTORY JAR...

DIRECTORY/ways.json holds the connector's options, by way. What was found is left in DIRECTORY/said.json.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

ROWS = 100


def found(spark: SparkSession, directory: Path, name: str, options: dict[str, str]) -> list[int]:
    """The counts of a batch's read, and of what a stream has copied."""
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("kafka").options(**options, topic=f"{name}-in").save()
    read = spark.read.format("kafka").options(**options, subscribe=f"{name}-in").load().distinct().count()
    stream = spark.readStream.format("kafka").options(**options, subscribe=f"{name}-in", startingOffsets="earliest")
    writer = stream.load().select("value").writeStream.format("kafka").options(**options, topic=f"{name}-out")
    query = writer.option("checkpointLocation", str(directory / name)).trigger(availableNow=True).start()
    query.awaitTermination()
    return [read, spark.read.format("kafka").options(**options, subscribe=f"{name}-out").load().count()]


def main() -> None:
    directory, jars = Path(sys.argv[1]), sys.argv[2:]
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.memory", "512m").config("spark.log.level", "ERROR").getOrCreate()
    ways = json.loads((directory / "ways.json").read_text())
    said = {name: found(spark, directory, name, options) for name, options in ways.items()}
    (directory / "said.json").write_text(json.dumps(said))
    spark.stop()


main()
