"""The pipeline on rows that we choose: its numbers, its records, and flights that come too late."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from demo import check, flights, query
from demo.replay import prepare
from demo.session import open_session
from demo.table import Progress

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = open_session(tmp_path_factory.mktemp("spark") / "spark.log", partitions=1)
    yield session
    session.stop()


def event(origin: str, time_hour: str, minute: int, dep_delay: int | None) -> str:
    return json.dumps({"origin": origin, "time_hour": time_hour, "minute": minute, "dep_delay": dep_delay})


def test_the_pipeline_and_pandas_agree_on_two_weeks(spark: SparkSession) -> None:
    table = flights.load_flights()
    table = table[table["time_hour"].between("2013-02-04", "2013-02-18")]
    weather = flights.load_weather()
    values = prepare(table).values
    records = spark.createDataFrame([(bytearray(value),) for value in values], "value binary")
    hours = query.with_weather(query.surge_of(query.flights_of(records)), query.weather_frame(spark, weather))
    rows = query.records_of(hours).collect()
    found = check.as_table({row["key"].encode(): row["value"].encode() for row in rows})
    wanted = check.expected(table, weather)
    assert len(wanted) > 500
    assert check.differences(found, wanted) == []


def test_a_flight_later_than_the_watermark_is_dropped_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    lines: DataFrame = spark.readStream.text(str(source))
    running = (
        query.surge_of(query.flights_of(lines))
        .writeStream.outputMode("update")
        .format("memory")
        .queryName("late")
        .option("checkpointLocation", str(tmp_path / "state"))
        .start()
    )
    progress = Progress(running)
    sent = 0

    def send(name: str, *events: str) -> None:
        nonlocal sent
        sent += len(events)
        (tmp_path / name).write_text("\n".join(events))
        (tmp_path / name).rename(source / name)  # whole, or not there
        running.processAllAvailable()
        deadline = time.monotonic() + 60  # a batch reports itself a moment after it ends
        while progress.rows < sent and time.monotonic() < deadline:
            time.sleep(0.05)
            progress.refresh()
        assert progress.rows == sent

    try:
        send("1", event("JFK", "2013-01-20T10:00:00Z", 30, 0))
        assert progress.dropped_late == 0
        # six days late is in time: the watermark is at 13 January, 10:30
        send("2", event("JFK", "2013-01-14T10:00:00Z", 0, 5), event("JFK", "2013-01-20T11:00:00Z", 0, None))
        assert progress.dropped_late == 0
        send("3", event("JFK", "2013-01-12T10:00:00Z", 0, 5), event("LGA", "2013-01-20T12:00:00Z", 0, 5))
        assert progress.dropped_late == 1
        rows = spark.table("late").collect()
    finally:
        running.stop()
    assert {(row["origin"], f"{row['time_hour']:%d %H}", row["demand"], row["supply"]) for row in rows} == {
        ("JFK", "20 10", 1, 1),
        ("JFK", "14 10", 1, 1),
        ("JFK", "20 11", 1, 0),
        ("LGA", "20 12", 1, 1),
    }


def test_weather_that_nobody_wrote_down_is_null(spark: SparkSession) -> None:
    row = ("JFK", "2013-01-20T10:00:00Z", None, 3.5, 0.0, 10.0)
    weather = pd.DataFrame([row], columns=["origin", "time_hour", *flights.WEATHER])
    frame = query.weather_frame(spark, weather)
    lines = [(event("JFK", "2013-01-20T10:00:00Z", 0, 0),), (event("EWR", "2013-01-20T10:00:00Z", 0, 40),)]
    records = spark.createDataFrame(lines, "value string")
    hours = query.with_weather(query.surge_of(query.flights_of(records)), frame)
    values = {row["key"]: json.loads(row["value"]) for row in query.records_of(hours).collect()}
    assert values["JFK|2013-01-20T10:00:00Z"]["wind_speed"] == 3.5
    assert values["JFK|2013-01-20T10:00:00Z"].get("temp") is None
    assert values["EWR|2013-01-20T10:00:00Z"] == {
        "origin": "EWR", "hour": "2013-01-20T10:00:00Z", "demand": 1, "supply": 0, "surge": 1.0,
    }  # fmt: skip
