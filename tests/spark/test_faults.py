"""Brokers that die and come back, records that are large, logs that are damaged, and queries that are changed.

The broker is a process of its own, which is killed, stopped and started again at its place; the session is one.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.headrace import HeadracePeer
from peers.proxy import ProxiedBroker

import headrace
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer

from .gates import register_gated

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PATIENCE_S = 180.0
LARGE = 5 << 20
"""More than a fetch asks of a partition (4 MiB, and 1 MiB in other clients): a broker sends such a record in full."""
STANDSTILL_S = 1.5


@pytest.fixture(scope="module")
def peer() -> Iterator[HeadracePeer]:
    with HeadracePeer() as running:
        yield running


def make(
    peer: HeadracePeer | ProxiedBroker,
    topic: str,
    values: list[bytes],
    partitions: int = 1,
    max_message_bytes: int = 1_048_588,
) -> None:
    """A topic with these values, each a batch of its own, in the partitions by turns."""
    with Client(peer.bootstrap) as client:
        configs = {"max.message.bytes": str(max_message_bytes)}
        create_topic(client, topic, partitions=partitions, configs=configs, exist_ok=True)
        with Producer(client) as producer:
            for number, value in enumerate(values):
                producer.send(topic, value, partition=number % partitions)
                producer.flush()


def numbers(first: int, count: int) -> list[bytes]:
    return [b'{"id": %d, "name": "n%d"}' % (number, number) for number in range(first, first + count)]


def options_of(peer: HeadracePeer | ProxiedBroker, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": peer.bootstrap, "subscribe": topic, "startingOffsets": "earliest", **more}


def found_in(peer: HeadracePeer, topic: str) -> list[bytes]:
    return sorted(headrace.scan(topic, bootstrap=peer.bootstrap, columns=["value"])["value"].to_pylist())


def test_a_query_outlives_its_broker(spark: Any, peer: HeadracePeer, tmp_path: Path) -> None:
    """Killed in the middle of a batch, killed while nothing is to be read, and at a standstill for a while."""
    large = [bytes([65 + number]) * LARGE for number in range(4)]
    for topic in ("large", "large-copy"):
        make(peer, topic, large if topic == "large" else [], max_message_bytes=2 * LARGE)
    read = spark.read.format("headrace").options(**options_of(peer, "large")).load()
    assert sorted(map(tuple, read.selectExpr("length(value)", "left(value, 1)").collect())) == [
        (LARGE, value[:1]) for value in large
    ]
    gates = register_gated(spark, tmp_path / "gates")
    gates.shut("read")
    rows = spark.readStream.format("gated").options(**options_of(peer, "large")).load().select("value")
    query = (
        rows.writeStream.format("gated")
        .options(**{"kafka.bootstrap.servers": peer.bootstrap, "topic": "large-copy"})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        gates.wait_for("read", lambda: query.isActive, PATIENCE_S)
        peer.kill()
        gates.open("read")
        peer.start()
        query.processAllAvailable()
        assert found_in(peer, "large-copy") == large, "none is missing, and the sink's retries double none"
        peer.kill()
        peer.start()
        make(peer, "large", [b"idle"])
        query.processAllAvailable()
        assert found_in(peer, "large-copy") == [*large, b"idle"]
        os.kill(peer.pid, signal.SIGSTOP)
        threading.Timer(STANDSTILL_S, os.kill, (peer.pid, signal.SIGCONT)).start()
        make(peer, "large", [b"standstill"])
        query.processAllAvailable()
        assert found_in(peer, "large-copy") == [*large, b"idle", b"standstill"]
        assert query.exception() is None
    finally:
        query.stop()


def collected(rows: Any, into: dict[int, list[bytes]], checkpoint: Path) -> Any:
    """A query that keeps the values of each batch; one that is done again takes the place of what it was."""
    return (
        rows.writeStream.foreachBatch(
            lambda batch, number: into.__setitem__(number, batch.toArrow()["value"].to_pylist())
        )
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def test_a_query_whose_broker_stays_away_says_so_and_goes_on_later(
    spark: Any, peer: HeadracePeer, tmp_path: Path
) -> None:
    """Away in the middle of a task of the second batch."""
    make(peer, "away", numbers(0, 10), partitions=2)
    gates = register_gated(spark, tmp_path / "gates")
    # a batch a fetch: there is more to come when a task has read its first rows
    more = {"kafka.max.partition.fetch.bytes": "100", "kafka.default.api.timeout.ms": "1000"}
    seen: dict[int, list[bytes]] = {}

    def start() -> Any:
        rows = spark.readStream.format("gated").options(**options_of(peer, "away", **more)).load()
        return collected(rows, seen, tmp_path / "checkpoint")

    query = start()
    query.processAllAvailable()
    gates.shut("read")
    make(peer, "away", numbers(10, 10), partitions=2)
    gates.wait_for("read", lambda: query.isActive, PATIENCE_S)
    peer.kill()
    gates.open("read")
    named = f"(no broker answers: |cannot connect to ){peer.bootstrap}: Connection refused"
    with pytest.raises(Exception, match=named):
        query.awaitTermination(PATIENCE_S)
    peer.start()
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(value for batch in seen.values() for value in batch) == sorted(numbers(0, 20))


def test_a_query_waits_for_a_leader(spark: Any, tmp_path: Path) -> None:
    with ProxiedBroker() as broker:
        make(broker, "led", numbers(0, 10), partitions=2)
        options = options_of(broker, "led")
        broker.deny_leaders(("led", 1), times=3)
        rows = spark.read.format("headrace").options(**options).load()
        assert sorted(bytes(row.value) for row in rows.collect()) == numbers(0, 10)
        assert broker.denied["headrace-spark"] == 3
        seen: dict[int, list[bytes]] = {}
        query = collected(spark.readStream.format("headrace").options(**options).load(), seen, tmp_path)
        try:
            query.processAllAvailable()
            broker.deny_leaders(("led", 1), times=3)
            make(broker, "led", numbers(10, 10), partitions=2)
            query.processAllAvailable()
            assert sorted(value for batch in seen.values() for value in batch) == sorted(numbers(0, 20))
            assert broker.denied["headrace-spark"] == 3
        finally:
            query.stop()
        broker.deny_leaders(("led", 1), times=1 << 30)
        options["kafka.default.api.timeout.ms"] = "1000"
        with pytest.raises(Exception, match=r"topic led partition 1: .* \(LEADER_NOT_AVAILABLE\)"):
            spark.read.format("headrace").options(**options).load().collect()


def test_a_damaged_batch_is_named(spark: Any, peer: HeadracePeer, tmp_path: Path) -> None:
    for topic in ("spoilt", "shortened"):
        make(peer, topic, [b"a" * 100, b"b" * 100, *[b"c" * 5000] * 3])
    peer.stop()
    for topic, place in (("spoilt", lambda data: data.index(b"bbbb")), ("shortened", second_length)):
        damage(peer.data / f"{topic}-0" / "00000000000000000000.log", place)
    peer.start()
    sentences = {
        "spoilt": "topic spoilt partition 0 offset 1: the checksum of the batch is wrong",
        "shortened": "topic shortened partition 0 offset 1: ",
    }
    for topic, sentence in sentences.items():
        with pytest.raises(Exception, match=sentence):
            spark.read.format("headrace").options(**options_of(peer, topic)).load().collect()
        ends = json.dumps({topic: {"0": 1}})
        before = spark.read.format("headrace").options(**options_of(peer, topic, endingOffsets=ends)).load()
        assert [bytes(row.value) for row in before.collect()] == [b"a" * 100]
    # nor is it data that retention took: it is there, and cannot be read
    options = options_of(peer, "spoilt", failOnDataLoss="false")
    rows = spark.readStream.format("headrace").options(**options).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match=sentences["spoilt"]):
        query.awaitTermination(PATIENCE_S)


def damage(segment: Path, place: Callable[[bytes], int]) -> None:
    """Turn one byte of a file over."""
    data = bytearray(segment.read_bytes())
    data[place(bytes(data))] ^= 0xFF
    segment.write_bytes(data)


def second_length(data: bytes) -> int:
    """Where the lowest byte of the length of the second batch lies."""
    first = 12 + int.from_bytes(data[8:12], "big")
    return first + 11


def test_a_query_that_is_changed_goes_on_or_says_why_not(spark: Any, peer: HeadracePeer, tmp_path: Path) -> None:
    """Started again at its checkpoint with another schema, other columns, another topic."""
    seen: list[dict[str, Any]] = []

    def run(topic: str, **more: str) -> list[dict[str, Any]]:
        seen.clear()
        rows = spark.readStream.format("headrace").options(**options_of(peer, topic, **more)).load()
        query = (
            rows.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.toArrow().to_pylist()))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return seen

    typed = {"valueFormat": "json", "columns": "value", "mode": "FAILFAST"}
    make(peer, "changed", numbers(0, 2))
    assert run("changed", **typed, valueSchema="id BIGINT") == [{"value": {"id": 0}}, {"value": {"id": 1}}]
    make(peer, "changed", numbers(2, 1))
    assert run("changed", **typed, valueSchema="name STRING, id INT") == [{"value": {"name": "n2", "id": 2}}]
    make(peer, "changed", numbers(3, 1))
    assert run("changed", columns="offset,key") == [{"offset": 3, "key": None}]
    make(peer, "changed", numbers(4, 1))
    with pytest.raises(Exception, match="topic changed partition 0 offset 4: the value is malformed"):
        run("changed", **typed, valueSchema="name INT")
    assert run("changed", **typed, valueSchema="name STRING") == [{"value": {"name": "n4"}}], "the batch is replayed"
    make(peer, "changed", numbers(5, 1))
    make(peer, "another", numbers(6, 1))
    with pytest.raises(Exception, match="topic changed partition 0 is not in the subscription any more"):
        run("another", columns="topic,offset")
    with pytest.raises(Exception, match="topic changed partition 0 is not in the subscription any more"):
        run("another", columns="topic,offset")
    both = run("another,changed", columns="topic,offset")
    assert sorted(map(str, both)) == sorted(
        map(str, [{"topic": "another", "offset": 0}, {"topic": "changed", "offset": 5}])
    )
    make(peer, "changed", numbers(7, 1))
    make(peer, "another", numbers(8, 1))
    found = run("another", columns="topic,offset", failOnDataLoss="false")
    assert found == [{"topic": "another", "offset": 1}]


def test_a_sink_that_cannot_take_the_columns(spark: Any, peer: HeadracePeer, tmp_path: Path) -> None:
    make(peer, "narrow", numbers(0, 1))
    make(peer, "narrow-copy", [])
    rows = spark.readStream.format("headrace").options(**options_of(peer, "narrow")).load()
    wrong = rows.selectExpr("offset as value")
    writer = wrong.writeStream.format("headrace").option("kafka.bootstrap.servers", peer.bootstrap)
    query = writer.option("topic", "narrow-copy").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="The column 'value' is int64"):
        query.awaitTermination(PATIENCE_S)
    assert found_in(peer, "narrow-copy") == []
