"""Typed values in a real Spark: JSON of flights read in a batch and by a stream, a malformed one among them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

FLIGHTS = 300
BAD = 7
"""The place of a value that is cut off."""
SCHEMA = (
    "carrier STRING, flight INT, delay DOUBLE, left_at TIMESTAMP, day DATE, "
    "route STRUCT<origin: STRING, stops: ARRAY<STRING>>"
)
START = datetime(2013, 1, 1, 10, tzinfo=UTC)


def flight(number: int) -> dict[str, Any]:
    left_at = START + timedelta(minutes=number)
    return {
        "carrier": ("UA", "B6", "ÜX")[number % 3],
        "flight": number,
        "delay": None if number % 5 == 0 else number / 4,
        "left_at": left_at.isoformat(),
        "day": left_at.date().isoformat(),
        "route": {"origin": "JFK", "stops": ["ORD"] * (number % 3), "ignored": 1},
    }


@pytest.fixture(scope="module")
def flights(broker: Any) -> dict[str, str]:
    """Options that read a topic of flights."""
    with Client(broker.bootstrap) as client:
        create_topic(client, "flights", partitions=2)
        with Producer(client) as producer:
            for number in range(FLIGHTS):
                value = json.dumps(flight(number), indent=number % 2 or None).encode()
                value = value[:-1] if number == BAD else value
                producer.send("flights", value, key=b"%d" % number, partition=number % 2)
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "flights", "valueFormat": "json"}


def test_a_batch(spark: Any, flights: dict[str, str]) -> None:
    frame = spark.read.format("headrace").options(**flights, valueSchema=SCHEMA, eventTime="left_at").load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:struct<carrier:string,flight:int,delay:double,left_at:timestamp,day:date,"
        "route:struct<origin:string,stops:array<string>>>,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,_corrupt_record:string,event_time:timestamp>"
    )
    rows = {int(row["key"]): row for row in frame.toArrow().to_pylist()}
    assert len(rows) == FLIGHTS
    bad = rows.pop(BAD)
    assert bad["value"] is None and bad["event_time"] is None
    assert bad["_corrupt_record"] == json.dumps(flight(BAD), indent=1)[:-1]
    for number, row in rows.items():
        expected = flight(number)
        left_at = datetime.fromisoformat(expected["left_at"])
        assert row["_corrupt_record"] is None and row["event_time"] == left_at
        del expected["route"]["ignored"]
        assert row["value"] == expected | {"left_at": left_at, "day": left_at.date()}
    total = frame.selectExpr("sum(value.delay)", "count(value.delay)", "sum(size(value.route.stops))").first()
    good = [flight(number) for number in range(FLIGHTS) if number != BAD]
    delays = [each["delay"] for each in good if each["delay"] is not None]
    assert tuple(total) == (sum(delays), len(delays), sum(len(each["route"]["stops"]) for each in good))


def test_chosen_columns_and_an_inferred_schema(spark: Any, flights: dict[str, str]) -> None:
    frame = spark.read.format("headrace").options(**flights, columns="value,offset").load()
    assert frame.schema.simpleString() == (
        "struct<value:struct<carrier:string,flight:bigint,delay:double,left_at:string,day:string,"
        "route:struct<origin:string,stops:array<string>,ignored:bigint>>,offset:bigint>"
    )
    assert frame.where("value is not null").count() == FLIGHTS - 1
    texts = spark.read.format("headrace").options(**{**flights, "valueFormat": "string"}, columns="value").load()
    assert texts.where("from_json(value, 'flight INT').flight % 2 = 0").count() == FLIGHTS // 2


def test_failfast_names_the_record(spark: Any, flights: dict[str, str]) -> None:
    frame = spark.read.format("headrace").options(**flights, valueSchema=SCHEMA, mode="FAILFAST").load()
    assert "_corrupt_record" not in frame.columns
    with pytest.raises(Exception, match=f"topic flights partition {BAD % 2} offset {BAD // 2}: the value is malformed"):
        frame.count()
    with pytest.raises(Exception, match="The option 'valueSchema' looks like .* a field cannot be 'NUMBER'"):
        spark.read.format("headrace").options(**flights, valueSchema="delay NUMBER").load()


def test_a_stream_counts_by_the_time_of_events(spark: Any, flights: dict[str, str], tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    options = {**flights, "valueSchema": SCHEMA, "eventTime": "left_at", "startingOffsets": "earliest"}
    options |= {"maxOffsetsPerTrigger": "100", "columns": "value,event_time,_corrupt_record"}
    rows = spark.readStream.format("headrace").options(**options).load()
    hours = (
        rows.withWatermark("event_time", "30 minutes")
        .groupBy(F.window("event_time", "1 hour"))
        .agg(F.count("*").alias("flights"), F.sum("value.delay").alias("delay"))
    )
    query = (
        hours.writeStream.format("memory")
        .queryName("hours")
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = {row["window"]["start"].hour: (row["flights"], row["delay"]) for row in spark.table("hours").collect()}
    expected: dict[int, list[float]] = {}
    for number in range(FLIGHTS):
        if number != BAD:
            expected.setdefault(10 + number // 60, []).append(flight(number)["delay"] or 0.0)
    # the watermark has passed these at least; the last hour it never passes
    assert {10, 11} <= set(found)
    assert found == {hour: (len(expected[hour]), sum(expected[hour])) for hour in found}
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == FLIGHTS
