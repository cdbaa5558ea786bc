"""Delivery exactly once in a real Spark with checkpoints that are not the last that the query had."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from peers.transactions import visible
from pyspark.errors import StreamingQueryException

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def produce(client: Client, topic: str, *numbers: int) -> None:
    with Producer(client) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=0)


@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("exactly-once-per-task", marks=pytest.mark.soak)])
def test_a_checkpoint_that_was_restored(spark: Any, broker: Any, tmp_path: Path, delivery: str) -> None:
    """Batch 1 is planned again, with what has come since: the mark of batch 1 must not hide that."""
    source, sink = f"in-{tmp_path.name}", f"out-{tmp_path.name}"
    brokers = {"kafka.bootstrap.servers": broker.bootstrap}

    def run() -> None:
        rows = spark.readStream.format("headrace").options(subscribe=source, startingOffsets="earliest", **brokers)
        copy = rows.load().select("value").writeStream.trigger(availableNow=True)
        options = {"topic": sink, "delivery": delivery, **brokers}
        copy = copy.option("checkpointLocation", str(tmp_path / "checkpoint"))
        copy.format("headrace").options(**options).start().awaitTermination()

    with Client(broker.bootstrap) as client:
        create_topic(client, source, partitions=1)
        create_topic(client, sink, partitions=1)
        produce(client, source, 0, 1)
        run()
        shutil.copytree(tmp_path / "checkpoint", tmp_path / "saved")
        produce(client, source, 2, 3)
        run()
        assert visible(client, sink) == [b"0", b"1", b"2", b"3"]
        shutil.rmtree(tmp_path / "checkpoint")
        shutil.copytree(tmp_path / "saved", tmp_path / "checkpoint")
        produce(client, source, 4, 5)
        with pytest.raises(StreamingQueryException, match="Batch 1 of query .* with other records of its sources"):
            run()
        assert visible(client, sink) == [b"0", b"1", b"2", b"3"]
