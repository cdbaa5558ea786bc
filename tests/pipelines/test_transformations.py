"""What the pipelines make of rows, beside values worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace_pipelines.fields import fields_of, moment_of, truth_of
from headrace_pipelines.log_monitor import LogMonitor
from headrace_pipelines.sessions import Sessions
from headrace_pipelines.surge import Surge

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NOON = 1_700_006_400_000
"""2023-11-15T00:00:00Z in milliseconds; a good round time."""


def records(spark: SparkSession, *values: Any) -> DataFrame:
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return spark.createDataFrame([(bytearray(text),) for text in texts] + [(None,)], "value binary")


def results(found: DataFrame) -> dict[str, Any]:
    rows = found.collect()
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: json.loads(row["value"]) for row in rows}


def test_fields_are_texts_whatever_json_says(spark: SparkSession) -> None:
    rows = records(spark, {"a.b": 1.5, "c": True}, {"a.b": "x", "c": None}, [1], b"no json", {"c": {"d": 1}})
    found = [tuple(row) for row in fields_of(rows, {"one": "a.b", "two": "c", "again": "c"}).collect()]
    none = (None, None, None)
    assert found == [("1.5", "true", "true"), ("x", None, None), none, none, (None, '{"d":1}', '{"d":1}'), none]


@pytest.mark.parametrize(
    ("text", "unit", "micros"),
    [
        ("1700006400123", "ms", 1_700_006_400_123_000),
        ("1700006400.123456", "s", 1_700_006_400_123_456),
        ("-1", "us", -1),
        ("1700006400123.7", "ms", 1_700_006_400_123_700),
        ("2023-11-15T00:00:00Z", "ms", 1_700_006_400_000_000),
        ("2023-11-15T01:00:00.5+01:00", "s", 1_700_006_400_500_000),
        ("2023-11-15 00:00:00", "ms", 1_700_006_400_000_000),
        ("noon", "ms", None),
        ("99999999999999999999999999", "s", None),
        ("99999999999999", "s", None),
        (None, "ms", None),
    ],
)
def test_moments(spark: SparkSession, text: str | None, unit: str, micros: int | None) -> None:
    rows = spark.createDataFrame([(text,)], "text string")
    assert rows.select(F.unix_micros(moment_of(F.col("text"), unit))).collect()[0][0] == micros


def test_truths(spark: SparkSession) -> None:
    texts = {"true": True, "TRUE": True, "1": True, "0.5": True, "-2": True, "false": False, "0": False, "0.0": False}
    rows = spark.createDataFrame([(text,) for text in [*texts, "yes", "", None]], "text string")
    found = [row[0] for row in rows.select(truth_of(F.col("text"))).collect()]
    assert found == [*texts.values(), False, False, False]


def test_surge_by_hand(spark: SparkSession) -> None:
    rows = records(
        spark,
        {"zone": "north", "time": NOON, "supply": True},
        {"zone": "north", "time": NOON + 299_999, "supply": False},
        {"zone": "north", "time": "2023-11-15T00:04:00Z"},
        {"zone": "north", "time": NOON + 300_000, "supply": 0},
        {"zone": "south", "time": NOON, "supply": 1},
        {"zone": "south", "time": NOON, "supply": 2.5},
        {"zone": None, "time": NOON, "supply": True},
        {"zone": "south", "time": "whenever", "supply": True},
        b"no json",
    )
    at, later = "2023-11-15T00:00:00Z", "2023-11-15T00:05:00Z"
    assert results(Surge().results(rows)) == {
        f"north|{at}": {"zone": "north", "start": at, "demand": 3, "supply": 1, "surge": 3.0},
        f"north|{later}": {"zone": "north", "start": later, "demand": 1, "supply": 0, "surge": 1.0},
        f"south|{at}": {"zone": "south", "start": at, "demand": 2, "supply": 2, "surge": 1.0},
    }


def test_surge_is_the_job_of_the_demo(spark: SparkSession) -> None:
    """Flights of an hour, supplied if they left at most 15 minutes late; cancelled ones have no delay."""
    flights = [("JFK", 15), ("JFK", 16), ("JFK", -3), ("JFK", None), ("LGA", None)]
    rows = records(spark, *({"origin": o, "time_hour": "2013-02-04T10:00:00Z", "dep_delay": d} for o, d in flights))
    surge = Surge("origin", "time_hour", "dep_delay", supply_at_most=15, window="1 hour", watermark="7 days")
    found = results(surge.results(rows))
    assert {key: (row["demand"], row["supply"], row["surge"]) for key, row in found.items()} == {
        "JFK|2013-02-04T10:00:00Z": (4, 2, 2.0),
        "LGA|2013-02-04T10:00:00Z": (1, 0, 1.0),
    }


def test_sessions_by_hand(spark: SparkSession) -> None:
    minute = 60_000
    events = [
        ("ann", 0, "/b"), ("ann", 29, "/a"), ("ann", 58, "/b"), ("ann", 58, None),
        ("ann", 89, "/late"),
        ("bob", 10, "/d"), ("bob", 10, "/c"), ("bob", 5, "/e"), ("bob", 12, "/f"), ("bob", 12, "/f"),
        ("eve", 7, None),
        (None, 7, "/a"),
    ]  # fmt: skip
    rows = records(spark, *({"user": user, "time": NOON + at * minute, "page": page} for user, at, page in events))

    def session(user: str, start: str, end: str, count: int, *pages: tuple[str, int]) -> dict[str, Any]:
        top = [{"page": page, "views": views} for page, views in pages]
        begin, last = (f"2023-11-15T{time}:00.000Z" for time in (start, end))
        return {"user": user, "start": begin, "end": last, "events": count, "top_pages": top}

    wanted = [
        session("ann", "00:00", "00:58", 4, ("/b", 2), ("/a", 1)),
        session("ann", "01:29", "01:29", 1, ("/late", 1)),
        session("bob", "00:05", "00:12", 5, ("/f", 2), ("/c", 1), ("/d", 1)),
        session("eve", "00:07", "00:07", 1),
    ]
    assert results(Sessions().results(rows)) == {f"{each['user']}|{each['start']}": each for each in wanted}


def test_log_monitor_by_hand(spark: SparkSession) -> None:
    levels = ["INFO"] * 17 + ["ERROR", "error", "Fatal"]
    lines = [{"service": "shop", "time": NOON, "level": level} for level in levels]
    lines += [{"service": "shop", "time": NOON + 60_000, "level": "ERROR"}] * 19
    lines += [{"service": "mail", "time": NOON + 59_999, "level": level} for level in ["INFO"] * 19 + [None]]
    lines += [{"time": NOON, "level": "ERROR"}]
    monitor = LogMonitor(alert_rate=0.15)
    found = results(monitor.results(records(spark, *lines)))
    at, later = "2023-11-15T00:00:00Z", "2023-11-15T00:01:00Z"
    assert found == {
        f"shop|{at}": {"service": "shop", "start": at, "lines": 20, "errors": 3, "rate": 0.15, "alert": True},
        f"shop|{later}": {"service": "shop", "start": later, "lines": 19, "errors": 19, "rate": 1.0, "alert": False},
        f"mail|{at}": {"service": "mail", "start": at, "lines": 20, "errors": 0, "rate": 0.0, "alert": False},
    }


def test_log_monitor_of_records_that_are_counts(spark: SparkSession) -> None:
    counts = [("fetch", "90", "1"), ("fetch", 10, 9), ("produce", 30, None), ("join_group", 0, 2), ("fetch", None, 5)]
    said = [
        {"api": api, "time": NOON, "requests": requests, "errors": errors, "level": "ERROR"}
        for api, requests, errors in counts
    ]
    said += [{"api": "fetch", "time": NOON, "value": 7}, {"requests": 8, "errors": 8, "time": NOON}]
    monitor = LogMonitor(service_field="api", lines_field="requests", errors_field="errors", alert_rate=0.1)
    at = "2023-11-15T00:00:00Z"
    wanted = [("fetch", 100, 10, 0.1, True), ("produce", 30, 0, 0.0, False), ("join_group", 0, 2, 0.0, False)]
    assert results(monitor.results(records(spark, *said))) == {
        f"{service}|{at}": {
            "service": service, "start": at, "lines": lines, "errors": errors, "rate": rate, "alert": alert,
        }
        for service, lines, errors, rate, alert in wanted
    }  # fmt: skip
