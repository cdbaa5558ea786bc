"""Spark's own Kafka connector, `format("kafka")`, against our broker, unmodified: it knows nothing of us.

One driver runs all six programs (`connector_driver.py`), in the PySpark that the connector is made for and in a
process of its own: a JVM takes the jars with its first session alone.
"""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2
from peers import spark
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer

import headrace
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.wire.records import Compression

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(1500)]

DRIVER_PATIENCE_S = 280
TOPICS = {
    "read": 3, "written": 5, "stream-in": 2, "stream-out": 2, "now-in": 2, "now-out": 2, "real-in": 1, "real-out": 1,
}  # fmt: skip
READ_RECORDS = 1000
SINCE = 700
"""The connector is also asked for the records from this one's time on."""
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(frozen=True)
class Outcome:
    """What the driver found, and where it left more of it."""

    bootstrap: str
    directory: Path
    said: dict[str, dict[str, Any]]

    def of(self, program: str) -> dict[str, Any]:
        """What a program found; it has not failed."""
        found = self.said[program]
        assert "error" not in found, found["error"]
        return found

    def values(self, topic: str) -> list[str]:
        """The values in a topic now, sorted."""
        rows = headrace.scan(topic, bootstrap=self.bootstrap, columns=["value"])
        return sorted(value.decode() for value in rows["value"].to_pylist())


def value_of(number: int) -> bytes | None:
    return b"v%d" % number if number % 5 else None


def fill(bootstrap: str) -> int:
    """The topics, and records in some of them; the time of record SINCE of topic `read`."""
    first_ms = time.time_ns() // 1_000_000 - READ_RECORDS
    with Client(bootstrap) as client:
        for topic, partitions in TOPICS.items():
            create_topic(client, topic, partitions=partitions)
        share = READ_RECORDS // len(Compression)
        for part, codec in enumerate(Compression):
            with Producer(client, compression=codec) as producer:
                for number in range(part * share, (part + 1) * share):
                    headers = [("n", b"%d" % number), ("null", None)] if number % 2 else []
                    key = b"k%d" % number if number % 3 else None
                    # each partition has records of every time, in order
                    producer.send("read", value_of(number), key=key, headers=headers, partition=number % 3,
                                  timestamp_ms=first_ms + number)  # fmt: skip
        with Producer(client) as producer:
            for topic in ("stream-in", "now-in"):
                for number in range(300):
                    producer.send(topic, b"v%d" % number, key=b"k%d" % number)
    return first_ms + SINCE


@pytest.fixture(scope="module")
def outcome(ours: HeadracePeer | KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The driver's one run."""
    try:
        python, jars = spark.python(), spark.connector()
    except RuntimeError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("connector")
    (directory / "since_ms.txt").write_text(str(fill(ours.bootstrap)))
    script = Path(__file__).with_name("connector_driver.py")
    command = [str(python), str(script), ours.bootstrap, str(directory), *map(str, jars)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DRIVER_PATIENCE_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return Outcome(ours.bootstrap, directory, json.loads((directory / "said.json").read_text()))


def test_a_batch_read(outcome: Outcome) -> None:
    found = outcome.of("batch_read")
    assert outcome.said["spark"]["version"] == spark.PYSPARK_VERSION
    with pa.OSFile(str(outcome.directory / "read.arrow"), "rb") as file:
        rows = pa.ipc.open_file(file).read_all()
    expected = headrace.scan("read", bootstrap=outcome.bootstrap)
    expected = expected.sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert rows.num_rows == READ_RECORDS
    for name in COLUMNS:
        assert rows[name].to_pylist() == expected[name].to_pylist(), name
    assert rows.sort_by("timestamp")["value"].to_pylist() == [value_of(number) for number in range(READ_RECORDS)]
    assert found["between"] == {"0": 15, "1": READ_RECORDS // 3}
    assert found["since"] == READ_RECORDS - SINCE


def test_a_batch_write(outcome: Outcome) -> None:
    outcome.of("batch_write")
    rows = headrace.scan("written", bootstrap=outcome.bootstrap).to_pylist()
    assert sorted((row["key"], row["value"]) for row in rows) == sorted(
        (b"k%d" % number, b"v%d" % number) for number in range(2000)
    )
    assert all(row["partition"] == (murmur2(row["key"]) & 0x7FFFFFFF) % TOPICS["written"] for row in rows)
    assert all(row["headers"] == [{"key": "h", "value": b"x"}] for row in rows)


def test_a_stream_that_is_stopped_and_goes_on(outcome: Outcome) -> None:
    found = outcome.of("stream")
    assert sum(found["first"]) == 400
    assert sum(found["second"]) == 50, "from its checkpoint"
    assert outcome.values("stream-out") == sorted(f"v{number}" for number in range(450))


def test_available_now(outcome: Outcome) -> None:
    found = outcome.of("available_now")
    assert sum(found["first"]) == 300
    assert max(found["first"]) <= 100, "maxOffsetsPerTrigger"
    assert found["second"] == [40]
    assert outcome.values("now-out") == sorted(f"v{number}" for number in range(340))


def test_a_query_is_taken_over_as_the_page_says(outcome: Outcome) -> None:
    assert outcome.of("taken_over")["rows"] == [20]


def test_real_time_mode(outcome: Outcome) -> None:
    found = outcome.of("real_time")
    assert found["seen"] == [f"seen {number}" for number in range(len(found["seen"]))]
    # in micro-batches every one of these trips would be a batch of its own, and the last may not be counted yet
    assert 1 <= found["batches"] < 0.8 * len(found["seen"])
