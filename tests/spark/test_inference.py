"""The schema of JSON values that a batch read finds by itself."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.cluster import Client
from headrace.client.producer import Producer
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.inference import SAMPLE_ROWS, infer_schema, schema_of_values
from headrace.spark.schemas import ddl

from .stand_in import batch_options


def inferred(*rows: Any) -> str:
    return ddl(schema_of_values([json.dumps(row).encode() for row in rows], "t"))


def test_types() -> None:
    assert inferred({"a": 1, "b": 1.5, "c": True, "d": "x"}) == (
        "struct<`a`: bigint, `b`: double, `c`: boolean, `d`: string>"
    )
    assert inferred({"a": 1}, {"a": 2.5}, {"b": "2013-01-01"}) == "struct<`a`: double, `b`: string>"
    assert inferred({"a": None, "at": "2013-01-01T00:00:00Z"}) == "struct<`a`: string, `at`: string>"
    assert inferred({"a": [{"b": [1]}], "c": {}, "d": [], "e": [{}]}) == (
        "struct<`a`: array<struct<`b`: array<bigint>>>, `d`: array<string>>"
    )


def test_what_is_no_object_is_passed_over() -> None:
    values = [b"null", b"5", b"{", b"\xff", b'{"a":1}', b"[" * 100_000]
    assert ddl(schema_of_values(values, "t")) == "struct<`a`: bigint>"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([], "The first records of t hold no JSON object"),
        ([b"5"], "The first records of t hold no JSON object"),
        ([b'{"a":1}', b'{"a":"x"}'], "The first values of t do not agree on a schema"),
        ([b"{}"], "The first values of t have no fields"),
    ],
)
def test_complaints_ask_for_a_schema(values: list[bytes], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence + r".*valueSchema'\.$") as caught:
        schema_of_values(values, "t")
    assert "\n" not in str(caught.value)


def test_the_first_records_of_a_read_tell(cluster: Client, topic: str) -> None:
    with Producer(cluster) as producer:
        for number in range(2 * SAMPLE_ROWS):
            producer.send(topic, b'{"a":%d}' % number if number % 7 else None, partition=0)
        producer.send(topic, b'{"late":1}', partition=0)
    read = batch_options(cluster, topic, valueFormat="json")
    assert infer_schema(read) == pa.struct([pa.field("a", pa.int64())])
    later = json.dumps({topic: {"0": 2 * SAMPLE_ROWS, "1": 0}})
    read = batch_options(cluster, topic, valueFormat="json", startingOffsets=later)
    assert infer_schema(read) == pa.struct([pa.field("late", pa.int64())])


def test_a_source_infers_once_and_a_stream_does_not(cluster: Client, topic: str) -> None:
    with Producer(cluster) as producer:
        producer.send(topic, b'{"a":1}', partition=0)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_text, "subscribe": topic, "valueFormat": "json"}  # type: ignore[attr-defined]
    source = HeadraceDataSource(dict(given))
    assert "`value` struct<`a`: bigint>" in source.schema()
    with Producer(cluster) as producer:
        producer.send(topic, b'{"a":"now text"}', partition=1)
    assert "`value` struct<`a`: bigint>" in source.schema()
    before = {"startingOffsets": json.dumps({topic: {"0": 0, "1": 1}})}
    with pytest.raises(ValueError, match="'eventTime' names 'b'; this read has a, timestamp"):
        HeadraceDataSource({**given, **before, "eventTime": "b"}).schema()
    with pytest.raises(ValueError, match="a stream of JSON values needs the option 'valueSchema'"):
        HeadraceDataSource({**given, "startingOffsets": "latest"}).schema()
