"""Delivery exactly once in a real Spark with checkpoints that are not the last that the query had."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from peers.transactions import visible
from pyspark.errors import StreamingQueryException

from headrace.client.admin import create_topic, delete_records
from headrace.client.cluster import Client
from headrace.client.producer import Producer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def produce(client: Client, topic: str, *numbers: int) -> None:
    with Producer(client) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=0)


def remote(spark: Any, directory: Path) -> str:
    """A directory by a file system that Spark's JVM alone knows."""
    spark.conf.set(f"fs.viewfs.mounttable.mounts.link./{directory.name}", f"file:{directory}")
    return f"viewfs://mounts/{directory.name}"


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("exactly-once-per-task", marks=pytest.mark.soak)])
def test_a_checkpoint_that_was_restored(
    spark: Any, broker: Any, tmp_path: Path, delivery: str, is_remote: bool
) -> None:
    """Batch 1 is planned again, with as many other records: the mark of batch 1 must not hide that."""
    other = "rows" if is_remote else "records of its sources"
    location = f"{remote(spark, tmp_path) if is_remote else tmp_path}/checkpoint"
    source, sink = f"in-{tmp_path.name}", f"out-{tmp_path.name}"
    brokers = {"kafka.bootstrap.servers": broker.bootstrap}

    def run() -> None:
        rows = spark.readStream.format("headrace").options(subscribe=source, startingOffsets="earliest", **brokers)
        rows = rows.option("failOnDataLoss", "false")
        copy = rows.load().select("value").writeStream.trigger(availableNow=True)
        options = {"topic": sink, "delivery": delivery, **brokers}
        copy = copy.option("checkpointLocation", location)
        copy.format("headrace").options(**options).start().awaitTermination()

    with Client(broker.bootstrap) as client:
        create_topic(client, source, partitions=1)
        create_topic(client, sink, partitions=1)
        produce(client, source, 0, 1)
        run()
        shutil.copytree(tmp_path / "checkpoint", tmp_path / "saved")
        produce(client, source, 2, 3)
        run()
        forget(tmp_path / "checkpoint", 1, "commits")  # as if the driver had died before
        run()
        assert visible(client, sink) == [b"0", b"1", b"2", b"3"]
        shutil.rmtree(tmp_path / "checkpoint")
        shutil.copytree(tmp_path / "saved", tmp_path / "checkpoint")
        delete_records(client, {(source, 0): 4})
        produce(client, source, 4, 5)
        with pytest.raises(StreamingQueryException, match=f"Batch 1 of query .* with other {other}"):
            run()
        assert visible(client, sink) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("is_remote", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["local", "remote"])
def test_two_writes_a_batch_and_a_checkpoint_that_was_restored(
    spark: Any, broker: Any, tmp_path: Path, is_remote: bool
) -> None:
    """Where `foreachBatch` has two sinks and neither is told of the checkpoint, which is the query's alone; or both
    are told, and it is in a file system that the session alone knows."""
    from headrace.spark import write_updates

    source, good, bad = (f"{name}-{tmp_path.name}" for name in ("in", "good", "bad"))
    brokers = {"kafka.bootstrap.servers": broker.bootstrap}
    location, told = str(tmp_path / "checkpoint"), {}
    if is_remote:
        location = f"{remote(spark, tmp_path)}/checkpoint"
        told = {"checkpointLocation": location}
    sinks = [write_updates({"topic": topic, "delivery": "exactly-once", **told, **brokers}) for topic in (good, bad)]

    def both(rows: Any, batch_id: int) -> None:
        for number, sink in enumerate(sinks):
            sink(rows.filter(f"cast(cast(value as string) as int) % 2 = {number}").select("value"), batch_id)

    def run() -> None:
        rows = spark.readStream.format("headrace").options(subscribe=source, startingOffsets="earliest", **brokers)
        copy = rows.load().writeStream.trigger(availableNow=True).foreachBatch(both)
        copy.option("checkpointLocation", location).start().awaitTermination()

    with Client(broker.bootstrap) as client:
        for topic in (source, good, bad):
            create_topic(client, topic, partitions=1)
        produce(client, source, 1)  # the first write of the first batch has no rows
        run()
        produce(client, source, 2, 3)
        run()
        forget(tmp_path / "checkpoint", 1, "commits")  # as if the driver had died before
        produce(client, source, 4, 5)
        run()
        assert visible(client, good) == [b"2", b"4"] and visible(client, bad) == [b"1", b"3", b"5"]
        forget(tmp_path / "checkpoint", 2, "commits", "offsets")
        produce(client, source, 6)
        with pytest.raises(StreamingQueryException, match=r"(?s)Batch 2 of query .* with other records of its sources"):
            run()
        assert visible(client, good) == [b"2", b"4"] and visible(client, bad) == [b"1", b"3", b"5"]


def forget(checkpoint: Path, batch: int, *logs: str) -> None:
    for log in logs:
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)
