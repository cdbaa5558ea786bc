"""format("headrace") in a real Spark, against a real broker: found, read, written, restarted, killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from aiokafka.partitioner import murmur2
from peers.transactions import visible

import headrace
import headrace.testing
from headrace.client.admin import create_topic, delete_topic
from headrace.client.cluster import Client
from headrace.client.groups import fetch_offsets
from headrace.client.producer import Producer
from headrace.wire.records import Compression

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

KILLS = 4
LAST_RUN_S = 180
MAX_RECORDS = 60_000
"""The last run reads what slow machines had time to write meanwhile."""


def fill(bootstrap: str, topic: str, count: int, codec: Compression = Compression.NONE, partitions: int = 3) -> None:
    with Client(bootstrap) as client:
        create_topic(client, topic, partitions=partitions, exist_ok=True)
        with Producer(client, compression=codec) as producer:
            for number in range(count):
                headers = [("n", b"%d" % number), ("null", None)] if number % 2 else []
                key = b"k%d" % number if number % 3 else None
                producer.send(topic, b"v%d" % number if number % 5 else None, key=key, headers=headers)


def test_found_by_itself_and_by_register(spark: Any, broker: Any) -> None:
    fill(broker.bootstrap, "found", 100)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "found"}
    assert spark.read.format("headrace").options(**options).load().count() == 100
    import headrace.spark

    fresh = spark.newSession()
    headrace.spark.register(fresh)
    assert fresh.read.format("headrace").options(**options).load().count() == 100


@pytest.mark.parametrize("codec", Compression)
def test_rows_are_the_connectors(spark: Any, broker: Any, codec: Compression) -> None:
    topic = f"rows-{codec.name.lower()}"
    fill(broker.bootstrap, topic, 500, codec)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    frame = spark.read.format("headrace").options(**options).load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    expected = headrace.scan(topic, bootstrap=broker.bootstrap)
    expected = expected.sort_by([("partition", "ascending"), ("offset", "ascending")])
    found = frame.orderBy("partition", "offset").toArrow()
    assert found.num_rows == 500
    for name in ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"):
        assert found[name].to_pylist() == expected[name].to_pylist(), name


@pytest.mark.parametrize("how", ["batch", "stream"])
def test_a_whole_row_goes_from_topic_to_topic(spark: Any, broker: Any, tmp_path: Path, how: str) -> None:
    fill(broker.bootstrap, f"whole-{how}", 300)
    fill(broker.bootstrap, f"whole-{how}-copy", 0)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": f"whole-{how}", "includeHeaders": "true"}
    sink = {"kafka.bootstrap.servers": broker.bootstrap, "topic": f"whole-{how}-copy"}
    if how == "batch":
        rows = spark.read.format("headrace").options(**options).load()
        rows.write.format("headrace").options(**sink).mode("append").save()
    else:
        rows = spark.readStream.format("headrace").options(**options, startingOffsets="earliest").load()
        writer = rows.writeStream.format("headrace").options(**sink).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    columns = ["key", "value", "partition", "offset", "timestamp", "headers"]
    order = [("partition", "ascending"), ("offset", "ascending")]
    tables = [headrace.scan(name, bootstrap=broker.bootstrap) for name in (f"whole-{how}", f"whole-{how}-copy")]
    first, second = (table.select(columns).sort_by(order).to_pylist() for table in tables)
    assert first == second and len(first) == 300


def test_wrong_options_end_before_the_query_starts(spark: Any, broker: Any) -> None:
    with pytest.raises(Exception, match="The headrace source has no option 'subscrib'"):
        spark.read.format("headrace").option("subscrib", "x").load()
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(Exception, match="Give exactly one of the options"):
        reader.load()
    with pytest.raises(Exception, match="Records need a column 'value'"):
        spark.range(3).write.format("headrace").options(
            **{"kafka.bootstrap.servers": broker.bootstrap, "topic": "x"}
        ).mode("append").save()
    from headrace.spark import write_stream

    good = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "x"}
    ticks = spark.readStream.format("rate").load()
    for options, sentence in (
        ({**good, "topik": "x"}, "The headrace sink has no option 'topik'"),
        (good, "The column 'value' is int64"),
    ):
        with pytest.raises(ValueError, match=sentence):
            write_stream(ticks, options)


def test_a_stream_goes_on_without_a_topic_that_was_deleted(spark: Any, broker: Any, tmp_path: Path) -> None:
    from headrace.spark import write_stream

    for name, count in (("stays", 20), ("leaves", 30), ("copied", 0)):
        fill(broker.bootstrap, name, count, partitions=2)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "stays,leaves", "failOnDataLoss": "false"}
    rows = spark.readStream.format("headrace").options(**options, startingOffsets="earliest").load()
    query = (
        write_stream(rows.select("key", "value"), {"kafka.bootstrap.servers": broker.bootstrap, "topic": "copied"})
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        assert headrace.scan("copied", bootstrap=broker.bootstrap).num_rows == 50
        with Client(broker.bootstrap) as client:
            delete_topic(client, "leaves")
        fill(broker.bootstrap, "stays", 10)
        query.processAllAvailable()
        assert query.exception() is None
        assert headrace.scan("copied", bootstrap=broker.bootstrap).num_rows == 60
    finally:
        query.stop()


def test_a_batch_write_lands_where_java_would_put_it(spark: Any, broker: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    with Client(broker.bootstrap) as client:
        create_topic(client, "written", partitions=5)
    key, value = F.concat(F.lit("k"), "id").alias("key"), F.col("id").cast("string").alias("value")
    headers = F.array(F.struct(F.lit("h").alias("key"), F.lit(b"x").alias("value"))).alias("headers")
    frame = spark.range(2000).select(key, value, headers, F.lit("written").alias("topic"))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.compression.type": "lz4"}
    frame.write.format("headrace").options(**options).mode("append").save()
    rows = headrace.scan("written", bootstrap=broker.bootstrap).to_pylist()
    assert sorted(int(row["value"]) for row in rows) == list(range(2000))
    assert all(row["partition"] == (murmur2(row["key"]) & 0x7FFFFFFF) % 5 for row in rows)
    assert all(row["headers"] == [{"key": "h", "value": b"x"}] for row in rows)


def test_a_batch_write_exactly_once_is_seen_whole_or_not_at_all(spark: Any, broker: Any) -> None:
    """Its tasks write, so that the driver's bound does not hold; one that fails takes all of them with it."""
    from pyspark.sql import functions as F  # noqa: N812

    with Client(broker.bootstrap) as client:
        create_topic(client, "whole", partitions=2)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "whole", "delivery": "exactly-once"}
    options["exactlyOnceMaxBytes"] = "100000"
    count = 40_000
    frame = spark.range(0, count, 1, 4).select(F.col("id").cast("string").alias("value"))
    last = F.col("value") == str(count - 1)
    broken = frame.select(
        F.when(last, F.raise_error(F.lit("the last row fails"))).otherwise(F.col("value")).alias("value")
    )
    with pytest.raises(Exception, match="the last row fails"):
        broken.write.format("headrace").options(**options).mode("append").save()
    with Client(broker.bootstrap) as client:
        assert visible(client, "whole") == []
        frame.write.format("headrace").options(**options).mode("append").save()
        assert sorted(map(int, visible(client, "whole"))) == list(range(count))


def test_a_stream_in_update_mode_writes_through_the_batch_sink(spark: Any, broker: Any, tmp_path: Path) -> None:
    from headrace.spark import write_updates

    fill(broker.bootstrap, "counted", 300, partitions=1)
    fill(broker.bootstrap, "counts", 0, partitions=1)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "counted", "maxOffsetsPerTrigger": "100"}
    options |= {"kafka.group.id": "counting", "startingOffsets": "earliest"}
    sink = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "counts", "batchHeaders": "true"}
    counts = (
        spark.readStream.format("headrace").options(**options).load()
        .groupBy("topic").count().selectExpr("topic as key", "cast(count as string) as value")
    )  # fmt: skip
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(write_updates(sink))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    table = headrace.scan("counts", bootstrap=broker.bootstrap)
    assert table["value"].to_pylist() == [b"100", b"200", b"300"]
    headers = [{each["key"]: each["value"] for each in row} for row in table["headers"].to_pylist()]
    assert [row["headrace.batch_id"] for row in headers] == [b"0", b"1", b"2"]
    assert all(row["headrace.partition"].isdigit() for row in headers)
    with Client(broker.bootstrap) as client:
        assert fetch_offsets(client, "counting")["counted", 0].offset == 300, "the last batch too"
    with pytest.raises(ValueError, match="no option 'topik'"):
        write_updates({"kafka.bootstrap.servers": broker.bootstrap, "topik": "counts"})


def drive(bootstrap: str, directory: Path, how_long: str, what: str) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("copying.py")
    command = [sys.executable, str(script), bootstrap, "killed-in", "killed-out", str(directory), how_long, what]
    with (directory / "said.txt").open("w") as said:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True)


def last_said(directory: Path) -> str:
    """The end of what the last driver said: why it ended by itself."""
    return (directory / "said.txt").read_text()[-3000:]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_killed_drivers_lose_nothing_and_the_source_doubles_nothing(broker: Any, tmp_path: Path) -> None:
    """SIGKILL at random moments, then a last run; Parquet files show what the source gave, the topic what arrived."""
    fill(broker.bootstrap, "killed-in", 0, partitions=2)
    fill(broker.bootstrap, "killed-out", 0, partitions=2)
    over = threading.Event()
    written = [0]

    def write() -> None:
        with Client(broker.bootstrap) as client, Producer(client, linger_ms=1) as producer:
            while not over.is_set() and written[0] < MAX_RECORDS:
                for _ in range(10):
                    producer.send("killed-in", b"%d" % written[0], key=b"%d" % written[0])
                    written[0] += 1
                producer.poll(0.0)
                time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(KILLS):
            driver = drive(broker.bootstrap, tmp_path, "forever", ("files", "topic")[number % 2])
            assert driver.stdout is not None
            assert driver.stdout.readline().startswith("batch "), last_said(tmp_path)
            time.sleep(random.uniform(0.0, 2.5))
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    finally:
        over.set()
        writer.join()
    last = drive(broker.bootstrap, tmp_path, "now", "both")
    try:
        assert last.wait(LAST_RUN_S) == 0, last_said(tmp_path)
    finally:
        if last.poll() is None:
            os.killpg(last.pid, signal.SIGKILL)
    expected = {(row["partition"], row["offset"]): row["value"] for row in headrace.scan(
        "killed-in", bootstrap=broker.bootstrap, columns=["partition", "offset", "value"]).to_pylist()}  # fmt: skip
    assert len(expected) == written[0] > 0
    # what the sink's own log lists is what the query wrote; a killed task leaves files beside it
    files = [path for path in listed_files(tmp_path / "rows") if path.exists()]
    got = [row for path in files for row in pq.read_table(path).to_pylist()]
    counted = Counter((row["partition"], row["offset"]) for row in got)
    assert set(counted) == set(expected) and max(counted.values()) == 1
    assert all(expected[row["partition"], row["offset"]] == row["value"] for row in got)
    arrived = Counter(headrace.scan("killed-out", bootstrap=broker.bootstrap, columns=["value"])["value"].to_pylist())
    assert set(arrived) == set(expected.values()), "at least once"


def listed_files(directory: Path) -> list[Path]:
    """The files of Spark's file sink that its log counts as written."""
    import json
    from urllib.parse import unquote, urlparse

    logs = [path for path in (directory / "_spark_metadata").iterdir() if path.name.split(".")[0].isdigit()]
    compacted = [int(path.name.split(".")[0]) for path in logs if path.name.endswith(".compact")]
    begin = max(compacted, default=-1)
    found: dict[str, Path] = {}
    for path in logs:
        number = int(path.name.split(".")[0])
        if number < begin or (number == begin and not path.name.endswith(".compact")):
            continue
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry["action"] == "add":
                found[entry["path"]] = Path(unquote(urlparse(entry["path"]).path))
    return list(found.values())
