"""A log that is cut back under a query, in a real Spark: each trigger ends with our sentence, none loses a record."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import headrace.testing
from headrace.client.admin import create_topic
from headrace.client.producer import Producer
from headrace.client.reading import latest_offsets

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TRIGGERS: dict[str, dict[str, Any]] = {
    "processing time": {"processingTime": "0 seconds"},
    "availableNow": {"availableNow": True},
    "once": {"once": True},
}


def send(broker: Any, first: int, end: int) -> None:
    with broker.client() as client, Producer(client) as producer:
        for number in range(first, end):
            producer.send("cut", b"%d" % number, partition=0)


def run(spark: Any, bootstrap: str, directory: Path, trigger: str, **more: str) -> None:
    """The query from its checkpoint on, until it has read all there is. Raises what ends it."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "cut", "startingOffsets": "earliest", **more}
    rows = spark.readStream.format("headrace").options(**options).load().selectExpr("cast(value as string) as v")
    writer = rows.writeStream.format("parquet").option("path", str(directory / "rows"))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(**TRIGGERS[trigger]).start()
    try:
        if trigger == "processing time":
            query.processAllAvailable()
        else:
            query.awaitTermination()
    finally:
        query.stop()


@pytest.fixture(scope="module")
def restored(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A broker back on a backup of 50 records, and what a query left that had read 100."""
    directory = tmp_path_factory.mktemp("cut")
    data, backup, left = directory / "data", directory / "backup", directory / "left"
    with headrace.testing.broker(data=data) as broker:
        with broker.client() as client:
            create_topic(client, "cut", partitions=1)
        send(broker, 0, 50)
    shutil.copytree(data, backup)
    with headrace.testing.broker(data=data) as broker:
        send(broker, 50, 100)
        run(spark, broker.bootstrap, left, "availableNow")
    with headrace.testing.broker(data=backup) as broker:
        yield broker, left


@pytest.mark.parametrize("trigger", ["processing time", "availableNow", pytest.param("once", marks=pytest.mark.soak)])
def test_a_broker_that_was_restored_from_a_backup(
    spark: Any, restored: tuple[Any, Path], trigger: str, tmp_path: Path
) -> None:
    broker, left = restored
    shutil.copytree(left / "checkpoint", tmp_path / "checkpoint")
    with broker.client() as client:
        end = latest_offsets(client, "cut")[0]
    ends = f"DataLossError: topic cut partition 0 ends at offset {end}"
    said = f"{ends}, but the query has read up to 100.*failOnDataLoss"
    for _ in range(2):
        with pytest.raises(PySparkException, match=said):
            run(spark, broker.bootstrap, tmp_path, trigger)
    run(spark, broker.bootstrap, tmp_path, trigger, failOnDataLoss="false")
    send(broker, 1000 + end, 1010 + end)
    run(spark, broker.bootstrap, tmp_path, trigger)
    files = (tmp_path / "rows").glob("*.parquet")
    found = sorted(int(value) for file in files for value in pq.read_table(file)["v"].to_pylist())
    assert found == list(range(1000 + end, 1010 + end))


@pytest.mark.parametrize("trigger", [*TRIGGERS, "batch"])
def test_a_beginning_beyond_the_end(spark: Any, restored: tuple[Any, Path], trigger: str, tmp_path: Path) -> None:
    bootstrap = restored[0].bootstrap
    begin = json.dumps({"cut": {"0": 500}})
    said = "DataLossError: topic cut partition 0 ends at offset .*, before offset 500, the first to read"
    with pytest.raises(PySparkException, match=said):
        if trigger == "batch":
            options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "cut", "startingOffsets": begin}
            spark.read.format("headrace").options(**options).load().count()
        else:
            run(spark, bootstrap, tmp_path, trigger, startingOffsets=begin)
