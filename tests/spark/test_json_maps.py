"""JSON objects as maps: what json.dumps writes comes back, and a map among the fields changes nothing beside it."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.json_maps import MapsDecoder, json_decoder
from headrace.spark.json_values import JsonDecoder
from headrace.spark.schemas import parse_schema
from headrace.spark.value_formats import value_format
from headrace.spark.values import decode_values

from .test_values import ODD, SCHEMA, as_written, binary, dates, filled, sound_or_not, text

MAPS = parse_schema(
    "id BIGINT, labels MAP<STRING, STRING>, counts MAP<STRING, BIGINT>, days MAP<STRING, ARRAY<DATE>>, "
    "deep ARRAY<STRUCT<inner: MAP<STRING, STRUCT<a: INT, prices: MAP<STRING, DECIMAL(12,2)>>>, b: STRING>>"
)
BESIDE = pa.struct([*SCHEMA, pa.field("labels", MAPS.field("labels").type)])

strings = text | st.sampled_from(['"', "\\", "\n", "ü\U0001f600", "{", "},", ":", "key"])
prices = st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents) / 100)
inner = st.fixed_dictionaries(
    {},
    optional={"a": st.none() | st.integers(-5, 5), "prices": st.none() | st.dictionaries(strings, prices, max_size=2)},
)
deep = st.fixed_dictionaries(
    {}, optional={"inner": st.none() | st.dictionaries(strings, st.none() | inner, max_size=2), "b": strings}
)
mapped = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "labels": st.none() | st.dictionaries(strings, st.none() | strings, max_size=3),
        "other": st.dictionaries(strings, strings | st.integers(), max_size=2),
        "counts": st.none() | st.dictionaries(strings, st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
        "days": st.dictionaries(strings, st.none() | st.lists(dates, max_size=2), max_size=2),
        "deep": st.none() | st.lists(st.none() | deep, max_size=2),
    },
)


def written(item: Any) -> str:
    return str(item) if isinstance(item, Decimal) else as_written(item)


@given(st.lists(st.none() | mapped, max_size=8), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_what_json_writes_comes_back(items: list[Any], indent: Any, ascii_only: bool) -> None:
    values = [
        None if item is None else json.dumps(item, default=written, indent=indent, ensure_ascii=ascii_only).encode()
        for item in items
    ]
    decoded = decode_values(binary(values), json_decoder(MAPS))
    decoded.column.validate(full=True)
    assert decoded.column.type == MAPS and decoded.corrupt is None
    assert decoded.column.to_pylist() == [filled(item, MAPS) for item in items]


def beside(values: list[bytes | None]) -> None:
    """The fields of `SCHEMA` are the same without a map beside them."""
    with_map, without = json_decoder(BESIDE), JsonDecoder(SCHEMA)
    found, wanted = decode_values(binary(values), with_map), decode_values(binary(values), without)
    found.column.validate(full=True)
    assert found.column.is_null().equals(wanted.column.is_null())
    for place, field in enumerate(SCHEMA):
        # as text: NaN is not itself
        assert found.column.flatten()[place].to_string() == wanted.column.flatten()[place].to_string(), field.name
    said, told = (each.corrupt and each.corrupt.to_pylist() for each in (found, wanted))
    assert said == told


@given(st.lists(sound_or_not, max_size=8))
def test_a_map_changes_nothing_beside_it(values: list[bytes | None]) -> None:
    beside(values)


@pytest.mark.parametrize("value", [each for each in ODD if b":Inf" not in each])
def test_a_map_changes_nothing_at_the_edge(value: bytes) -> None:
    beside([b"{}", value, b"{"])


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (b"{}", None),
        (b'{"labels":null}', None),
        (b'{"labels":{}}', []),
        (b' {\n"labels" : { "a" :\t"b" , "c":null } } ', [("a", "b"), ("c", None)]),
        (b'{"labels":{"\\u0061\\"":"\\n"}}', [('a"', "\n")]),
        (b'{"la\\u0062els":{"a":"b"}}', [("a", "b")]),
        (b'{"other":{"labels":{"a":1}},"labels":{"":""}}', [("", "")]),
        ('{"labels":{"ü":"ß"}}'.encode(), [("ü", "ß")]),
    ],
)
def test_maps(value: bytes, labels: Any) -> None:
    assert decode_values(binary([value]), json_decoder(MAPS)).column.to_pylist() == [
        filled({}, MAPS) | {"labels": labels}
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"labels":[]}', "what is declared as a map is no JSON object"),
        (b'{"labels":[{"key":"a","value":"b"}]}', "what is declared as a map is no JSON object"),
        (b'{"labels":"a"}', "what is declared as a map is no JSON object"),
        (b'{"labels":{"a":"1","\\u0061":"2"}}', "a map has the key 'a' twice"),
        (b'{"labels":{"a":"1","a":"2"}}', "a map has the key 'a' twice"),
        (b'{"labels":{},"labels":{}}', "twice"),
        (b'{"labels":{"a":1}}', "from string to number"),
        (b'{"labels":{"a":b}}', "Invalid value"),
        (b'{"labels":{"a"}}', "it is no JSON"),
        (b'{"labels":{"a":}}', "it is no JSON"),
        (b'{"labels":{"a":"b",}}', "it is no JSON"),
        (b'{"labels":{"a":"b"', "it is no JSON"),
        (b'{"labels":{a:"b"}}', "it is no JSON"),
        (b'{"labels":{1:"b"}}', "it is no JSON"),
        (b'{"labels":{"a":"b"]}', "it is no JSON"),
        (b'{"labels":{"a":"b"}} {}', "it is not one JSON object"),
        (b'{"labels":{"a":"\xff"}}', "it is not UTF-8"),
        (b'{"counts":{"a":1.5}}', "."),
        (b'{"counts":{"a":9223372036854775808}}', "."),
        (b'{"days":{"a":["x"]}}', "."),
        (b'{"deep":[{"inner":{"a":{"prices":{"a":"x"}}}}]}', "."),
        (b'{"deep":[{"inner":{"a":{"prices":[]}}}]}', "what is declared as a map is no JSON object"),
        (b'{"deep":[{"inner":{}},]}', "it is no JSON"),
        (b'{"deep":{}}', "."),
        (b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply"),
        (b"5", "it is no JSON object"),
        (b"", "it is no JSON"),
    ],
)
def test_malformed_maps(value: bytes, reason: str) -> None:
    good = b'{"labels":{"a":"b"}}'
    decoded = decode_values(binary([good, value, good]), json_decoder(MAPS))
    assert [row and row["labels"] for row in decoded.column.to_pylist()] == [[("a", "b")], None, [("a", "b")]]
    assert decoded.corrupt is not None
    assert decoded.corrupt.to_pylist() == [None, value.decode("utf-8", "replace"), None]
    assert re.search(reason, json_decoder(MAPS).why(binary([value])))


def test_only_schemas_with_maps_pay_for_them() -> None:
    assert isinstance(json_decoder(MAPS), MapsDecoder) and isinstance(json_decoder(SCHEMA), JsonDecoder)
    schema = "id INT, labels MAP<STRING, INT>"
    chosen = value_format({"valueFormat": "json", "valueSchema": schema})
    assert isinstance(chosen.decoder(), MapsDecoder)
    assert isinstance(chosen.decoder("labels"), MapsDecoder)
    assert isinstance(chosen.decoder("id"), JsonDecoder)


@pytest.mark.parametrize("count", [0, 3])
def test_batches_without_values(count: int) -> None:
    decoded = decode_values(binary([None] * count), json_decoder(MAPS))
    assert decoded.column.type == MAPS and decoded.column.to_pylist() == [None] * count
