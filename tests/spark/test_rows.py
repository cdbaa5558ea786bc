"""Rows out of decoded records: typed values, chosen columns, times of events, the end at a malformed value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.arrow.decode import COLUMN_NAMES
from headrace.spark.options import source_options
from headrace.spark.row_types import RowOptions, row_ddl
from headrace.spark.rows import MalformedValueError, Rows, row_schema
from headrace.spark.schemas import ddl, quoted

JSON = {"valueFormat": "json", "valueSchema": "id INT, at TIMESTAMP, ms BIGINT"}
AVRO = {
    "valueFormat": "avro",
    "valueSchema": """{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"},
    {"name": "ms", "type": "long"}]}""",
}
"""Two bytes that JSON knows are a record of it as well."""


def row(**options: str) -> RowOptions:
    return source_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options}, streaming=True).row


def made(values: list[bytes | None], chosen: RowOptions) -> pa.RecordBatch:
    """The rows of records with these values, offsets from 10 on."""
    rows = Rows(chosen)
    count = len(values)
    there: dict[str, Any] = {
        "key": pa.array([b"k"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(10, 10 + count), pa.int64()),
        "timestamp": pa.array([1_000_000] * count, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
    }
    assert set(rows.fetched.names) <= set(COLUMN_NAMES)
    records = pa.RecordBatch.from_arrays([there[name] for name in rows.fetched.names], schema=rows.fetched)
    found = rows.of(records, "t", 3)
    found.validate(full=True)
    assert found.schema == rows.schema == row_schema(chosen)
    return found


def test_raw_rows_are_the_records() -> None:
    plain = row()
    assert Rows(plain).fetched == Rows(plain).schema
    assert row_ddl(plain) == (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp, "
        "`timestampType` int"
    )
    assert row_ddl(row(includeHeaders="true")).endswith(", `headers` array<struct<`key`: string, `value`: binary>>")


def test_typed_values_stand_in_the_place_of_the_bytes() -> None:
    chosen = row(**JSON)
    assert row_ddl(chosen) == (
        "`key` binary, `value` struct<`id`: int, `at`: timestamp, `ms`: bigint>, `topic` string, `partition` int, "
        "`offset` bigint, `timestamp` timestamp, `timestampType` int, `_corrupt_record` string"
    )
    found = made([b'{"id":1}', None, b"no"], chosen)
    assert found.column("value").to_pylist() == [{"id": 1, "at": None, "ms": None}, None, None]
    assert found.column("_corrupt_record").to_pylist() == [None, None, "no"]
    assert found.column("offset").to_pylist() == [10, 11, 12]
    text = made(["über".encode(), None, b"\xff"], row(valueFormat="string"))
    assert text.column("value").to_pylist() == ["über", None, None]
    assert text.column("_corrupt_record").to_pylist() == [None, None, "\ufffd"]


def test_columns_come_in_the_order_in_which_they_are_chosen() -> None:
    found = made([b'{"id":1}', b"no"], row(**JSON, columns="_corrupt_record, offset,key"))
    assert found.schema.names == ["_corrupt_record", "offset", "key"]
    assert found.column(0).to_pylist() == [None, "no"]
    assert made([b"v"], row(columns="offset,value")).to_pylist() == [{"offset": 10, "value": b"v"}]
    assert Rows(row(columns="value")).fetched.names == ["value"]


def test_only_what_is_chosen_is_decoded() -> None:
    found = made([b"no", b"{}"], row(**JSON, mode="FAILFAST", columns="offset"))
    assert found.column("offset").to_pylist() == [10, 11]
    timed = row(**JSON, eventTime="at", columns="event_time")
    found = made([b'{"id":"not an int","at":"2013-01-01T00:00:00Z"}', b"no"], timed)
    assert found.column("event_time").to_pylist() == [datetime(2013, 1, 1, tzinfo=UTC), None]


def test_the_time_of_an_event() -> None:
    values = [b'{"at":"2013-01-01T00:00:00+01:00","ms":-1}', b"{}", None, b"no", b'{"ms":9223372036854775807}']
    values += [b'{"ms":-9223372036854775808}']
    found = made(values, row(**JSON, eventTime="at")).column("event_time")
    assert found.to_pylist() == [datetime(2012, 12, 31, 23, tzinfo=UTC), *[None] * 5]
    found = made(values, row(**JSON, eventTime="ms")).column("event_time")
    assert found.to_pylist() == [datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), *[None] * 5]
    record = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    for chosen in (row(**JSON, eventTime="timestamp"), row(eventTime="timestamp", columns="event_time")):
        assert made(values, chosen).column("event_time").to_pylist() == [record] * 6


def test_a_value_s_own_field_called_timestamp_goes_before_the_record_s() -> None:
    chosen = row(valueFormat="json", valueSchema="timestamp BIGINT", eventTime="timestamp")
    found = made([b'{"timestamp":5000}', b"{}"], chosen)
    assert found.column("event_time").to_pylist() == [datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), None]


def test_bytes_that_are_no_text_are_shown_in_hexadecimal() -> None:
    chosen = row(**AVRO, eventTime="ms")
    assert "`value` struct<`id`: int, `ms`: bigint>" in row_ddl(chosen)
    found = made([b"\x02\x04", None, b"\xff\x01\x0a\x0b"], chosen)
    assert found.column("value").to_pylist() == [{"id": 1, "ms": 2}, None, None]
    assert found.column("_corrupt_record").to_pylist() == [None, None, "FF010A0B"]
    assert found.column("event_time").to_pylist() == [datetime(1970, 1, 1, 0, 0, 0, 2000, tzinfo=UTC), None, None]
    timed = row(**AVRO, eventTime="ms", columns="event_time")
    assert made([b"\x02\x04"], timed).column("event_time").to_pylist() == [
        datetime(1970, 1, 1, 0, 0, 0, 2000, tzinfo=UTC)
    ]


@pytest.mark.parametrize(
    ("options", "bad", "reason"),
    [
        (JSON, b"no", "it is not a JSON object"),
        (JSON, b'{"id":"x"}', r"changed from number to string"),
        (JSON, b"{}{}", "it is not one JSON object"),
        ({"valueFormat": "string"}, b"\xff", "it is not UTF-8"),
        (AVRO, b"{", "it ends before its record does"),
        (AVRO, b"{}{", "1 bytes are left behind its record"),
    ],
)
def test_failfast_names_the_place(options: dict[str, str], bad: bytes, reason: str) -> None:
    chosen = row(**options, mode="failfast")
    assert "_corrupt_record" not in chosen.columns
    place = "^topic t partition 3 offset 12: the value is malformed, .*"
    with pytest.raises(MalformedValueError, match=place + reason):
        made([b"{}", None, bad, b"{}", bad], chosen)
    assert made([b"{}", None], chosen).num_rows == 2


@pytest.mark.parametrize(
    "options", [{}, {"valueFormat": "string"}, {**JSON, "eventTime": "at"}, {"eventTime": "timestamp"}]
)
def test_what_spark_is_told_is_what_arrow_has(options: dict[str, str]) -> None:
    chosen = row(includeHeaders="true", **options)
    assert row_ddl(chosen) == ", ".join(f"{quoted(field.name)} {ddl(field.type)}" for field in row_schema(chosen))
