"""A program of a user: the public packages with types throughout, read by `mypy --strict` in test_user_script.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import headrace
import headrace.spark
import headrace.testing
from headrace.client import BrokerError, Client, Fetcher, Producer, TransactionalProducer
from headrace.client.admin import create_topic
from headrace.client.metadata import TopicInfo
from headrace.client.reading import Fetched, latest_offsets
from headrace.wire.records import Compression
from headrace_pipelines.tables import read_table


def write(bootstrap: str) -> int:
    with Client(bootstrap) as client, Producer(client, compression=Compression.ZSTD) as producer:
        create_topic(client, "orders", partitions=2)
        assert_type(client.topics(["orders"]), list[TopicInfo])
        producer.send("orders", b"one", key=b"k", headers=[("trace", None)])
    return producer.records_delivered


def read(client: Client) -> int:
    ends = {("orders", index): end for index, end in latest_offsets(client, "orders").items()}
    seen = 0
    for piece in Fetcher(client, dict.fromkeys(ends, 0), ends=ends):
        assert_type(piece, Fetched)
        seen += piece.next_position - piece.position
    return seen


def commit(client: Client) -> int | None:
    try:
        with TransactionalProducer(client, "id", linger_ms=1) as writer:
            writer.begin()
            writer.send("orders", b"two")
            writer.commit()
    except BrokerError as error:
        return error.code
    return None


def tables() -> int:
    rows: int = headrace.scan("orders", columns=["key"], start={0: 5}).num_rows
    return rows + int(read_table("prices").num_rows)


def stream(spark: SparkSession, rows: DataFrame) -> None:
    headrace.spark.register(spark)
    assert_type(headrace.spark.write_stream(rows, {"topic": "t"}), DataStreamWriter)
    assert_type(headrace.spark.write_updates({"topic": "t"}), Callable[[DataFrame, int], None])


def with_fixtures(headrace_broker: headrace.testing.TestBroker, headrace_cluster: headrace.testing.TestCluster) -> None:
    assert_type(headrace_broker.bootstrap, str)
    headrace_cluster.kill(headrace_cluster.leader("orders", 0))
    with headrace.testing.broker({"num.partitions": 3}) as running:
        assert_type(running, headrace.testing.TestBroker)
        assert_type(running.call(lambda inside: inside.port), int)
    with headrace.testing.cluster(brokers=3) as three:
        assert_type(three.restart(1), headrace.testing.TestNode)
