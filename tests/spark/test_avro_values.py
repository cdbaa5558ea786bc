"""Avro values: what fastavro writes comes back with the types that Spark has for it, what is cut off does not."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace.spark.avro_values import AvroDecoder, avro_type
from headrace.spark.schemas import ddl
from headrace.spark.values import HeadedDecoder, decode_values

from .avro_types import TYPES

INNER = {
    "type": "record", "name": "Inner", "fields": [
        {"name": "a", "type": "int"},
        {"name": "colours", "type": {"type": "array", "items": "Colour"}},
    ],
}  # fmt: skip


def logical(kind: str, called: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": called, **more}


FIELDS: dict[str, Any] = {
    "flag": "boolean", "small": "int", "whole": "long", "part": "float", "wide": "double", "text": "string",
    "raw": "bytes", "day": logical("int", "date"), "clock": logical("long", "time-micros"),
    "at_ms": logical("long", "timestamp-millis"), "at_us": ["null", logical("long", "timestamp-micros")],
    "local_ms": logical("long", "local-timestamp-millis"), "local_us": logical("long", "local-timestamp-micros"),
    "money": ["null", logical("bytes", "decimal", precision=12, scale=2)],
    "fee": logical("fixed", "decimal", name="Fee", size=9, precision=20, scale=3),
    "uuid": logical("string", "uuid"), "print": {"type": "fixed", "name": "Print", "size": 4},
    "colour": [{"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}, "null"],
    "tags": {"type": "array", "items": ["null", "string"]},
    "counts": {"type": "map", "values": ["null", "long"]},
    "maybe": ["null", INNER], "surely": "Inner",
    "lists": ["null", {"type": "array", "items": {"type": "array", "items": "int"}}],
    "maps": ["null", {"type": "map", "values": "Inner"}],
    "either": ["int", "null", "long"], "number": ["float", "double"],
}  # fmt: skip
SCHEMA = json.dumps(
    {"type": "record", "name": "Row", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
)
PARSED = parse_schema(json.loads(SCHEMA))
MS = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
times = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - Hypothesis takes bounds without a zone
in_ms = times.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
colours = st.sampled_from(["RED", "GREEN"])
inners = st.fixed_dictionaries({"a": ints, "colours": st.lists(colours, max_size=3)})
rows = st.fixed_dictionaries(
    {
        "flag": st.booleans(), "small": ints, "whole": longs, "part": st.floats(allow_nan=False, width=32),
        "wide": st.floats(allow_nan=False), "text": text, "raw": st.binary(max_size=6),
        "day": st.dates(date(1700, 1, 1), date(2200, 1, 1)), "clock": st.integers(0, 86_399_999_999),
        "at_ms": in_ms.map(lambda at: at.replace(tzinfo=UTC)),
        "at_us": st.none() | times.map(lambda at: at.replace(tzinfo=UTC)),
        "local_ms": in_ms, "local_us": times,
        "money": st.none() | st.decimals(-(10**10) + 1, 10**10 - 1, places=2),
        "fee": st.decimals(-(10**17) + 1, 10**17 - 1, places=3),
        "uuid": st.uuids().map(str), "print": st.binary(min_size=4, max_size=4), "colour": st.none() | colours,
        "tags": st.lists(st.none() | text, max_size=3), "counts": st.dictionaries(text, st.none() | longs, max_size=3),
        "maybe": st.none() | inners, "surely": inners,
        "lists": st.none() | st.lists(st.lists(ints, max_size=2), max_size=3),
        "maps": st.none() | st.dictionaries(text, inners, max_size=2), "either": st.none() | longs,
        "number": st.floats(allow_nan=False, width=32),
    }
)  # fmt: skip


def written(row: dict[str, Any]) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, PARSED, row)
    return stream.getvalue()


def expected(row: dict[str, Any]) -> dict[str, Any]:
    """As Arrow has it: maps are pairs."""
    return {
        name: list(item.items()) if name in ("counts", "maps") and item is not None else item
        for name, item in row.items()
    }


def binary(values: list[bytes | None]) -> pa.Array:
    """The values as a slice, as a fetched batch may be one."""
    return pa.array([b"before", *values, b"after"], pa.binary()).slice(1, len(values))


@settings(max_examples=tried(40))
@given(st.lists(st.none() | rows, max_size=4))
def test_what_fastavro_writes_comes_back(items: list[Any]) -> None:
    decoded = decode_values(binary([None if item is None else written(item) for item in items]), AvroDecoder(SCHEMA))
    decoded.column.validate(full=True)
    assert decoded.column.type == avro_type(SCHEMA) and decoded.corrupt is None
    assert decoded.column.to_pylist() == [None if item is None else expected(item) for item in items]


@settings(max_examples=tried(40))
@given(
    st.lists(
        st.tuples(rows.map(written), st.integers(0, 2), st.binary(min_size=1, max_size=3), st.integers(0)), max_size=5
    )
)
def test_what_is_cut_off_or_too_long_is_malformed(made: list[tuple[bytes, int, bytes, int]]) -> None:
    values = [(value, value[: cut % len(value)], value + more)[what] for value, what, more, cut in made]
    decoder = AvroDecoder(SCHEMA)
    decoded = decode_values(binary(list(values)), decoder)
    assert decoded.column.is_valid().to_pylist() == [what == 0 for _, what, _, _ in made]
    corrupt = [None] * len(values) if decoded.corrupt is None else decoded.corrupt.to_pylist()
    for value, said, (_, what, _, _) in zip(values, corrupt, made, strict=True):
        assert (said is not None) == (what != 0)
        if said is not None:
            assert bytes.fromhex(said) == value and said == said.upper()
            assert ("it ends before" in decoder.why(binary([value]))) == (what == 1) or what == 2


TINY = json.dumps({
    "type": "record", "name": "Tiny", "fields": [
        {"name": "n", "type": ["null", "int"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "t", "type": logical("long", "timestamp-millis")},
        {"name": "d", "type": logical("bytes", "decimal", precision=3, scale=1)},
        {"name": "s", "type": {"type": "array", "items": "string"}},
    ],
})  # fmt: skip
GOOD = b"\x02\x0e\x02\x04\x02\x0c\x00"
MALFORMED = {
    b"": "it ends before its record does",
    b"\x06\x0e": "it does not fit the schema",
    b"\x02\xfe\xff\xff\xff\x7f\x02\x04\x02\x0c\x00": "it does not fit the schema .*too large",
    b"\x02\x0e\x04\x04\x02\x0c\x00": "it does not fit the schema .*out of bounds",
    b"\x02\x0e\x01\x04\x02\x0c\x00": "it does not fit the schema .*out of bounds",
    b"\x02\x0e\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x0c\x00": "it does not fit the schema",
    b"\x02\x0e\x02\x04\x04\x7f\xff\x00": "it does not fit the schema",
    b"\x02\x0e\x02\x04\x22" + b"\x01" * 17 + b"\x00": "it does not fit the schema",
    b"\x02\x0e\x02\x04\x02\x0c\x02\x02\xff\x00": "it does not fit the schema",
    b"\x02\x0e\x02\x04\x02\x0c\x02\x01\x00": "it ends before its record does",
    b"\x02\x0e\x02\x04\x02\x0c\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01": "it ends before its record does",
    GOOD + b"\x00": "1 bytes are left behind its record",
    # types of a union by their place from the end
    b"\x01" + GOOD[1:]: r"it does not fit the schema \(a union has no type -1\)",
    b"\x03" + GOOD[2:]: r"it does not fit the schema \(a union has no type -2\)",
}


@pytest.mark.parametrize("value", list(MALFORMED))
def test_malformed(value: bytes) -> None:
    decoder = AvroDecoder(TINY)
    for values in ([value], [value, GOOD], [GOOD, value, GOOD], [value, value, GOOD, value]):
        decoded = decode_values(binary(list(values)), decoder)
        assert [row and row["n"] for row in decoded.column.to_pylist()] == [
            7 if each is GOOD else None for each in values
        ]
    assert re.match(MALFORMED[value], decoder.why(binary([value])))


def test_unions_within_know_their_types_by_number_alone() -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": ["null", "int"]}]}
    fields = {
        "p": ["null", point],
        "l": {"type": "array", "items": ["null", "P"]},
        "m": {"type": "map", "values": ["null", "P"]},
    }
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    # p, a list of one, a map of one from "k"
    good = bytes([2, 2, 10, 2, 2, 2, 12, 0, 2, 2, 107, 2, 2, 14, 0])
    decoder = AvroDecoder(json.dumps(schema))
    (row,) = decode_values(binary([good]), decoder).column.to_pylist()
    assert row == {"p": {"x": 5}, "l": [{"x": 6}], "m": [("k", {"x": 7})]}
    indexes = (0, 1, 4, 5, 11, 12)
    assert all(good[at] == 2 for at in indexes)
    values = [good[:at] + b"\x01" + good[at + 1 :] for at in indexes]
    assert decode_values(binary(list(values)), decoder).column.null_count == len(values)


@given(st.lists(st.none() | st.just(GOOD) | st.binary(max_size=12), max_size=12))
def test_a_value_s_fate_depends_on_itself_alone(values: list[bytes | None]) -> None:
    decoder = AvroDecoder(TINY)
    together = decode_values(binary(values), decoder)
    together.column.validate(full=True)
    alone = [decode_values(binary([value]), decoder) for value in values]
    assert together.column.to_pylist() == [each.column[0].as_py() for each in alone]


def test_one_field_alone() -> None:
    decoder = AvroDecoder(TINY, only="t")
    assert decode_values(binary([GOOD, GOOD[:-1], None]), decoder).column.to_pylist() == [
        {"t": EPOCH + 2 * MS},
        None,
        None,
    ]


def test_behind_a_schema_registry_s_header() -> None:
    decoder = HeadedDecoder(AvroDecoder(TINY))
    header = b"\x00\x00\x00\x01\x02"
    values = [header + GOOD, GOOD, header, header + GOOD + b"\x00", None, b"\x00", b"\x01" + header[1:] + GOOD]
    decoded = decode_values(binary(list(values)), decoder)
    assert decoded.column.is_valid().to_pylist() == [True, *[False] * 6]
    assert decoded.corrupt is not None
    assert [said and bytes.fromhex(said) for said in decoded.corrupt.to_pylist()] == [
        None if index in (0, 4) else value for index, value in enumerate(values)
    ]
    assert decoder.why(binary([values[1]])).startswith("it does not begin with a schema registry's header")
    assert decoder.why(binary([values[3]])) == "1 bytes are left behind its record"


@pytest.mark.parametrize(("kind", "spark"), [*TYPES, (logical("long", "time-micros"), "bigint")], ids=str)
def test_types_are_those_of_spark(kind: Any, spark: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    assert (
        ddl(avro_type(json.dumps(schema))).replace("`", "").replace(": ", ":").replace(", ", ",")
        == f"struct<f:{spark}>"
    )


def test_decimals_are_read_whatever_their_length() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "f", "type": logical("bytes", "decimal", precision=38)}],
    }
    numbers = [0, -1, 127, 128, -128, -129, 10**38 - 1, 1 - 10**38, 10**38, -(10**38)]
    values = [bytes([2 * 17]) + number.to_bytes(17, "big", signed=True) for number in numbers] + [b"\x00"]
    found = decode_values(binary(list(values)), AvroDecoder(json.dumps(schema))).column.field("f").to_pylist()
    assert found == [*map(Decimal, numbers[:8]), None, None, Decimal(0)]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "it is not valid JSON"),
        ('"string"', "it is not a record"),
        ('["null", "string"]', "it is not a record"),
        ({"fields": []}, "R has no fields"),
        ({"name": 5, "fields": []}, "it is not an Avro schema"),
        ({"fields": 5}, "it is not an Avro schema"),
        ({"fields": [{"name": "f", "type": "text"}]}, "there is no type 'text'"),
        ({"fields": [{"name": "f", "type": ["null", "R"]}]}, "R contains itself"),
        ({"fields": [{"name": "f", "type": {"type": "array", "items": "R"}}]}, "R contains itself"),
        ({"fields": [{"name": "f", "type": ["int", "string"]}]}, "it has a union of int and string"),
        ({"fields": [{"name": "f", "type": ["null", "int", "long", "float"]}]}, "union of int and long and float"),
        ({"fields": [{"name": "f", "type": "null"}]}, "null occurs alone"),
        ({"fields": [{"name": "f", "type": ["null"]}]}, "null occurs alone"),
        ({"fields": [{"name": "f", "type": {"type": "fixed", "name": "F", "size": 0}}]}, "F takes no bytes"),
        ({"fields": [{"name": "f", "type": logical("bytes", "decimal", precision=40)}]}, r"no decimal\(40,0\)"),
    ],
)
def test_complaints(schema: Any, reason: str) -> None:
    if isinstance(schema, dict):
        schema = json.dumps({"type": "record", "name": "R", **schema})
    with pytest.raises(ValueError, match=reason) as caught:
        avro_type(schema)
    assert "\n" not in str(caught.value)
