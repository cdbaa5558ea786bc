"""Typed values in a real Spark: flights as JSON, Avro and Protobuf, in a batch and a stream, one of them malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.producer import Producer

from .avro_types import TYPES
from .protobuf_files import files, message_class

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


def topic_of(broker: Any, name: str, value_of: Callable[[int], bytes]) -> dict[str, str]:
    """Options that read a topic of flights, the one at `BAD` cut off."""
    with Client(broker.bootstrap) as client:
        create_topic(client, name, partitions=2)
        with Producer(client) as producer:
            for number in range(FLIGHTS):
                value = value_of(number)
                value = value[:-1] if number == BAD else value
                producer.send(name, value, key=b"%d" % number, partition=number % 2)
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": name}


@pytest.fixture(scope="module")
def flights(broker: Any) -> dict[str, str]:
    """Options that read a topic of flights."""
    options = topic_of(broker, "flights", lambda number: json.dumps(flight(number), indent=number % 2 or None).encode())
    return {**options, "valueFormat": "json"}


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


def test_maps(spark: Any, broker: Any) -> None:
    def value(number: int) -> dict[str, Any]:
        return {"id": number, "bags": {f"hold {hold}": number + hold for hold in range(number % 3)}}

    options = topic_of(broker, "loads", lambda number: json.dumps(value(number)).encode())
    frame = spark.read.format("headrace").options(
        **options, valueFormat="json", valueSchema="id INT, bags MAP<STRING, INT>", columns="value,_corrupt_record"
    ).load()  # fmt: skip
    assert frame.schema["value"].dataType.simpleString() == "struct<id:int,bags:map<string,int>>"
    good = [value(number) for number in range(FLIGHTS) if number != BAD]
    found = {row.value.id: row.value.bags for row in frame.where("value is not null").collect()}
    assert found == {each["id"]: each["bags"] for each in good}
    total = frame.selectExpr("sum(value.bags['hold 1'])", "sum(size(value.bags))", "count(_corrupt_record)").first()
    second = [each["bags"]["hold 1"] for each in good if "hold 1" in each["bags"]]
    assert tuple(total) == (sum(second), sum(len(each["bags"]) for each in good), 1)


def test_failfast_names_the_record(spark: Any, flights: dict[str, str]) -> None:
    frame = spark.read.format("headrace").options(**flights, valueSchema=SCHEMA, mode="FAILFAST").load()
    assert "_corrupt_record" not in frame.columns
    with pytest.raises(Exception, match=f"topic flights partition {BAD % 2} offset {BAD // 2}: the value is malformed"):
        frame.count()
    with pytest.raises(Exception, match="The option 'valueSchema' must look like .* a field cannot be 'NUMBER'"):
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


AVRO = json.dumps({
    "type": "record", "name": "Flight", "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "double"]},
        {"name": "left_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "seats", "type": {"type": "map", "values": "int"}},
        {"name": "stops", "type": {"type": "array", "items": {"type": "enum", "name": "Stop", "symbols": ["ORD"]}}},
    ],
})  # fmt: skip


def avro_flight(number: int) -> dict[str, Any]:
    left_at = START + timedelta(minutes=number)
    return {
        "carrier": "ÜX",
        "delay": None if number % 5 == 0 else number / 4,
        "left_at": left_at,
        "clock": number * 1_000_000,
        "fare": Decimal(number) / 4,
        "seats": {"economy": number, "first": 4},
        "stops": ["ORD"] * (number % 3),
    }


def test_avro(spark: Any, broker: Any, tmp_path: Path) -> None:
    from fastavro import parse_schema, schemaless_writer

    schema = parse_schema(json.loads(AVRO))

    def written(number: int) -> bytes:
        stream = BytesIO()
        schemaless_writer(stream, schema, avro_flight(number))
        return b"\x00\x00\x00\x00\x09" + stream.getvalue()

    options = topic_of(broker, "flights-avro", written)
    options |= {"valueFormat": "avro", "valueSchema": AVRO, "valueHeader": "registry", "eventTime": "left_at"}
    frame = spark.read.format("headrace").options(**options).load()
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<carrier:string,delay:double,left_at:timestamp,clock:bigint,fare:decimal(9,2),seats:map<string,int>,"
        "stops:array<string>>"
    )
    rows = {int(row["key"]): row for row in frame.toArrow().to_pylist()}
    assert rows[BAD]["value"] is None and bytes.fromhex(rows[BAD]["_corrupt_record"]) == written(BAD)[:-1]
    for number in set(range(FLIGHTS)) - {BAD}:
        expected = avro_flight(number)
        assert rows[number]["_corrupt_record"] is None and rows[number]["event_time"] == expected["left_at"]
        assert rows[number]["value"] == expected | {"seats": list(expected["seats"].items())}
    assert frame.where(f"unhex(_corrupt_record) = X'{written(BAD)[:-1].hex()}'").count() == 1
    total = frame.selectExpr("sum(value.seats['economy'])", "sum(value.fare)", "sum(size(value.stops))").first()
    good = [avro_flight(number) for number in range(FLIGHTS) if number != BAD]
    seats, fares = (
        sum(each) for each in zip(*((each["seats"]["economy"], each["fare"]) for each in good), strict=True)
    )
    assert tuple(total) == (seats, fares, sum(len(each["stops"]) for each in good))
    with pytest.raises(Exception, match=f"topic flights-avro partition {BAD % 2} offset {BAD // 2}: the value is malf"):
        spark.read.format("headrace").options(**options, mode="FAILFAST").load().count()
    with pytest.raises(Exception, match="Avro values need the option 'valueSchema'"):
        some = {name: value for name, value in options.items() if name != "valueSchema"}
        spark.readStream.format("headrace").options(**some).load()
    assert streamed(spark, options, "avro", tmp_path).agg({"value.delay": "sum"}).first()[0] == sum(
        each["delay"] or 0 for each in good
    )


def test_protobuf(spark: Any, broker: Any, tmp_path: Path) -> None:
    row_class = message_class("p.Row")
    file = tmp_path / "flights.desc"
    file.write_bytes(files().SerializeToString())

    def written(number: int) -> bytes:
        row = row_class(f_int32=number, f_string="ÜX", colour=number % 3, counts={"first": 4}, by={1: {"a": number}})
        row.at.FromDatetime(START + timedelta(minutes=number))
        row.took.FromTimedelta(timedelta(seconds=number))
        row.f_bytes = b"end"
        return bytes(row.SerializeToString())

    options = topic_of(broker, "flights-protobuf", written)
    options |= {"valueFormat": "protobuf", "valueSchema": "p.Row", "valueDescriptor": str(file), "eventTime": "at"}
    frame = spark.read.format("headrace").options(**options).load()
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema["value"].dataType}
    assert (kinds["at"], kinds["took"], kinds["by"], kinds["r_uint64"]) == (
        "timestamp", "interval day to second", "map<int,struct<a:int,colours:array<string>>>", "array<bigint>",
    )  # fmt: skip
    rows = {int(row["key"]): row for row in frame.toArrow().to_pylist()}
    assert rows[BAD]["value"] is None and bytes.fromhex(rows[BAD]["_corrupt_record"]) == written(BAD)[:-1]
    for number in set(range(FLIGHTS)) - {BAD}:
        value = rows[number]["value"]
        assert rows[number]["_corrupt_record"] is None
        assert (value["f_int32"], value["f_string"], value["f_bytes"]) == (number or None, "ÜX", b"end")
        assert (value["colour"], value["inner"], value["r_int32"]) == ((None, "RED", "GREEN")[number % 3], None, [])
        assert (value["counts"], value["by"]) == ([("first", 4)], [(1, {"a": number or None, "colours": []})])
        assert value["at"] == rows[number]["event_time"] == START + timedelta(minutes=number)
        assert value["took"] == timedelta(seconds=number)
    file.unlink()
    with pytest.raises(Exception, match="'valueDescriptor' names .*flights.desc', and headrace cannot read it"):
        spark.read.format("headrace").options(**options).load()
    file.write_bytes(files().SerializeToString())
    found = streamed(spark, options, "protobuf", tmp_path)
    assert found.agg({"value.f_int32": "sum"}).first()[0] == sum(range(FLIGHTS)) - BAD


def streamed(spark: Any, options: dict[str, str], name: str, path: Path) -> Any:
    """The values of a stream over all that is there."""
    options = {**options, "startingOffsets": "earliest", "columns": "value"}
    rows = spark.readStream.format("headrace").options(**options).load()
    query = rows.writeStream.format("memory").queryName(name).option("checkpointLocation", str(path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    return spark.table(name)


def test_avro_s_types_are_what_spark_says(spark: Any) -> None:
    """The table by which ours are tested is Spark's own."""
    avro = spark._jvm.org.apache
    for kind, expected in TYPES:
        record = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})
        schema = getattr(avro.avro, "Schema$Parser")().parse(record)
        found = avro.spark.sql.avro.SchemaConverters.toSqlType(schema).dataType().simpleString()
        assert found == f"struct<f:{expected}>"
