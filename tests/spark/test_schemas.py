"""Schemas as Spark writes them: read, written, and complained about."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.spark.schemas import TYPES, ddl, list_of, map_of, parse_schema

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
kinds = st.recursive(
    st.sampled_from(list(TYPES.values())) | st.integers(1, 38).map(lambda digits: pa.decimal128(digits, digits // 2)),
    lambda inner: (
        inner.map(list_of)
        | inner.map(lambda kind: map_of(pa.string(), kind))
        | st.dictionaries(names, inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct([pa.field(name, kind) for name, kind in fields.items()])
        )
    ),
    max_leaves=5,
)
schemas = st.dictionaries(names, kinds, min_size=1, max_size=4).map(
    lambda fields: pa.struct([pa.field(name, kind) for name, kind in fields.items()])
)


@given(schemas)
def test_what_is_written_is_read(schema: pa.StructType) -> None:
    assert parse_schema(ddl(schema)) == schema


@pytest.mark.parametrize(
    "text",
    [
        "id BIGINT, `a b` array<struct<x: int>>, price decimal(10,2)",
        "struct<id: long, `a b`: ARRAY<STRUCT<x INT NOT NULL>> COMMENT 'it\\'s', price DEC(10, 2)>",
        ' id bigint NOT NULL COMMENT "a, b" , `a b`:array < struct < x : integer > >,price:numeric(10,2)\n',
    ],
)
def test_ways_to_write_the_same(text: str) -> None:
    inner = pa.struct([pa.field("x", pa.int32())])
    expected = [("id", pa.int64()), ("a b", list_of(inner)), ("price", pa.decimal128(10, 2))]
    assert parse_schema(text) == pa.struct([pa.field(name, kind) for name, kind in expected])


def test_the_json_of_a_schema_is_what_spark_makes_of_it() -> None:
    inner = StructType([StructField("at", TimestampType()), StructField("local", TimestampNTZType())])
    schema = StructType(
        [
            StructField("id", LongType()),
            StructField("names", ArrayType(StringType())),
            StructField("price", DecimalType(12, 3)),
            StructField("inner", inner),
            StructField("labels", MapType(StringType(), inner)),
        ]
    )
    assert parse_schema(schema.json()) == pa.struct(list(to_arrow_schema(schema, timezone="UTC")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it names no field"),
        ("id", "the type of the last field is missing"),
        ("id bigint,", "the last field is missing"),
        ("id bigint name string", "'name' is too much"),
        ("id bigint, id string", "it names 'id' twice"),
        ("id number", "a field cannot be 'number'"),
        ("id map<int, string>", "the keys of a map must be string, as in a JSON object, not int"),
        ("id map<string>", "',' is missing before '>'"),
        ("id map", "'<' is missing at the end"),
        ("id array<int", "'>' is missing at the end"),
        ("id array int", "'<' is missing before 'int'"),
        ("id decimal(40,2)", r"there is no decimal\(40,2\)"),
        ("id decimal(4,x)", "'x' is not a number of digits"),
        ("id bigint; drop", "'; drop' cannot be read"),
        ("id struct<>", "it names no field"),
        ("a.b int", "'.b int' cannot be read"),
        ("id int comment 5", "a comment needs quotation marks"),
        ("{", "it is not valid JSON"),
        ("{}", "its JSON is not a schema"),
        ('{"type":"long"}', "its JSON is not a struct"),
        ('{"type":"struct","fields":[{"name":"a","type":"map"}]}', "a field cannot be 'map'"),
        (
            '{"type":"struct","fields":[{"name":"a","type":{"type":"map","keyType":"long","valueType":"long"}}]}',
            "the keys of a map must be string, as in a JSON object, not bigint",
        ),
        ('{"type":"struct","fields":[{"name":1,"type":"long"}]}', "its JSON is not a schema"),
    ],
)
def test_complaints(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_schema(text)
