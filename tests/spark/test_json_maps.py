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

from headrace.spark.json_flat_maps import _cut
from headrace.spark.json_maps import FLAT_ROWS, MapsDecoder, json_decoder
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

FLAT = parse_schema(
    "id BIGINT, labels MAP<STRING, STRING>, counts MAP<STRING, BIGINT>, prices MAP<STRING, DECIMAL(12,2)>, "
    'days MAP<STRING, DATE>, parts STRUCT<a: INT, b: ARRAY<STRING>>, `a"b\\\\.c` MAP<STRING, BOOLEAN>'
)

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


scalars = strings | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False) | dates | st.none()
flat = st.fixed_dictionaries(
    {},
    optional={
        "other": st.recursive(
            scalars,
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.sampled_from(["labels", "counts", "x", '"labels']) | strings, inner, max_size=2)
            ),
            max_leaves=4,
        ),
        "id": st.integers(-5, 5),
        "labels": st.none() | st.dictionaries(strings, st.none() | strings, max_size=3),
        "counts": st.none() | st.dictionaries(strings, st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
        "prices": st.dictionaries(strings, prices, max_size=2),
        "days": st.dictionaries(strings, st.none() | dates, max_size=2),
        "parts": st.none() | st.fixed_dictionaries({"a": st.integers(0, 5), "b": st.lists(strings, max_size=2)}),
        'a"b\\.c': st.dictionaries(strings, st.booleans(), max_size=2),
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


PIECES = ["{", "}", "[", "]", ":", ",", '"', "\\", " ", "\n", "null", "1", '"labels"', '"counts"', "true", '"a"', "{}"]
PIECES += ['"b":', '"labels":{"a":"b"}', '"labels":{}', '"other":{"labels":{"a":"b"}}', '"labels":[]']
PIECES += ['"labels":[{"key":"a"}]', '"la\\u0062els":{"a":"b"}', '"counts":{"a":1}', '"labels":null']
PIECES += ["\f", '"x\\"labels":{"a":"b"}', '{"a":1,"a":2}']
odd = st.lists(st.sampled_from(PIECES), max_size=8).map(lambda pieces: "{" + "".join(pieces) + "}")
ordinary = flat.map(lambda item: json.dumps(item, default=written))
spaced = flat.map(lambda item: json.dumps(item, default=written, indent=1, ensure_ascii=False))
compact = flat.map(lambda item: json.dumps(item, default=written, separators=(",", ":")))


def same_as_one_by_one(values: list[bytes]) -> None:
    decoder = json_decoder(FLAT)
    assert isinstance(decoder, MapsDecoder)
    found, wanted = decoder.decode(binary(values)), MapsDecoder(decoder._pairs, decoder._rewrite).decode(binary(values))
    found.validate(full=True)
    assert found.type == wanted.type == FLAT and found.to_string(window=1000) == wanted.to_string(window=1000)


@given(st.lists((ordinary | spaced | compact).map(str.encode), max_size=8))
def test_many_at_once_are_what_each_alone_is(values: list[bytes]) -> None:
    same_as_one_by_one(values)


@given(st.lists((ordinary | odd | compact.map(lambda value: value[:-1])).map(str.encode), max_size=5))
def test_what_is_malformed_among_many_is_what_it_is_alone(values: list[bytes]) -> None:
    same_as_one_by_one(values)


@pytest.mark.parametrize(
    "value",
    [
        b'{"other":{"labels":{}},"labels":[]}',
        b'{"other":{"labels":{}},"labels":[{}]}',
        b'{"other":{"labels":{"a":"b"}},"labels":[{"key":"a","value":"b"}]}',
        b'{"other":{"labels":{"a":"b"}},"labels":null}',
        b'{"other":{"labels":{"a":"b"}},"labels":{"c":"d"}}',
        b'{"labels":{"a":"b"},"other":{"labels":{"c":"d"}}}',
        b'{"other":[{"labels":{"a":"b"}},{"labels":5}]}',
        b'{"x\\"labels":{"a":"b"},"labels":{"c":"d"}}',
        b'{"x":"\\"labels\\":{}","labels":{"c":"d"}}',
        b'{"labels":{"a":"b"},"labels":{"a":"b"}}',
        b'{"labels":{"a":"b"},"labels":null}',
        b'{"labels":{"a":{"b":"c"}}}',
        b'{"labels":{"a":["b"]}}',
        b'{"labels":[null]}',
        b'{"labels":{"a":"}","b":"{"}}',
        b'{"labels":{"":""}}',
        b'{"labels":{"k":"\\u00e9\\n"}, "counts":{}}',
        b'{"labels":{"a":"b",}}',
        b'{"labels":{,"a":"b"}}',
        b'{"labels":{"a":"b" "c":"d"}}',
        b'{"labels":{ }}',
        b'{"labels":{"a":\f"b"}}',
        b'{"labels":{"a"\f:"b"}}',
        b'{"labels":{\f"a":"b"}}',
        b'{"labels":{"a":"b"\f}}',
        b'{"labels":{"a":"b",\f"c":"d"}}',
        b'{"labels"\f:{"a":"b"}}',
        b'{"labels":\f{"a":"b"}}',
        b'{"labels":{"a":\v"b"}}',
        b'{"labels":{"a":\xa0"b"}}',
    ],
)
def test_edges_of_many_at_once(value: bytes) -> None:
    same_as_one_by_one([b'{"labels":{"a":"b"}}', value, b'{"labels":{}}'])
    same_as_one_by_one([value])


def test_flat_maps_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [{"id": n, "labels": {"a": str(n), "b": "}"} if n % 3 else {}, "counts": {"n": n}} for n in range(5000)]
    items[7]["labels"] = None
    values = binary([json.dumps(item).encode() for item in items])
    decoder = json_decoder(FLAT)
    monkeypatch.setattr(decoder, "_one_by_one", None)
    assert decoder.decode(values).to_pylist() == [filled(item, FLAT) for item in items]
    sliced = decoder.decode(values.slice(4990))
    assert sliced.to_pylist() == [filled(item, FLAT) for item in items[4990:]]


def test_one_malformed_value_costs_its_neighbours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"labels":{"a":"b"}}'] * 10_000
    values[5000] = b'{"labels":5}'
    decoder = json_decoder(FLAT)
    assert isinstance(decoder, MapsDecoder)
    seen: list[int] = []
    one_by_one = decoder._one_by_one

    def noted(piece: pa.Array) -> pa.Array:
        seen.append(len(piece))
        return one_by_one(piece)

    monkeypatch.setattr(decoder, "_one_by_one", noted)
    assert decoder.decode(binary(values)).is_null().to_pylist() == [place == 5000 for place in range(10_000)]
    assert sum(seen) <= FLAT_ROWS


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
        (b'{"labels":[]}', "a field declared as a map is not a JSON object"),
        (b'{"labels":[{"key":"a","value":"b"}]}', "a field declared as a map is not a JSON object"),
        (b'{"labels":"a"}', "a field declared as a map is not a JSON object"),
        (b'{"labels":{"a":"1","\\u0061":"2"}}', "a map has the key 'a' twice"),
        (b'{"labels":{"a":"1","a":"2"}}', "a map has the key 'a' twice"),
        (b'{"labels":{},"labels":{}}', "twice"),
        (b'{"labels":{"a":1}}', "from string to number"),
        (b'{"labels":{"a":b}}', "Invalid value"),
        (b'{"labels":{"a"}}', "it is not JSON"),
        (b'{"labels":{"a":}}', "it is not JSON"),
        (b'{"labels":{"a":"b",}}', "it is not JSON"),
        (b'{"labels":{"a":"b"', "it is not JSON"),
        (b'{"labels":{a:"b"}}', "it is not JSON"),
        (b'{"labels":{1:"b"}}', "it is not JSON"),
        (b'{"labels":{"a":"b"]}', "it is not JSON"),
        (b'{"labels":{"a":"b"}} {}', "it is not one JSON object"),
        (b'{"labels":{"a":"\xff"}}', "it is not UTF-8"),
        (b'{"counts":{"a":1.5}}', "."),
        (b'{"counts":{"a":9223372036854775808}}', "."),
        (b'{"days":{"a":["x"]}}', "."),
        (b'{"deep":[{"inner":{"a":{"prices":{"a":"x"}}}}]}', "."),
        (b'{"deep":[{"inner":{"a":{"prices":[]}}}]}', "a field declared as a map is not a JSON object"),
        (b'{"deep":[{"inner":{}},]}', "it is not JSON"),
        (b'{"deep":{}}', "."),
        (b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply"),
        (b"5", "it is not a JSON object"),
        (b"", "it is not JSON"),
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


@pytest.mark.parametrize(
    "values",
    [
        [b'{"labels":{"a":":b","c":"d"}}', b'{"labels":{":":"b"}}', b'{"labels":{"a":":"}}'],
        [b'{"labels":{"a":"b"}}', b'{"id":1}', b'{"labels":null}', b'{"labels":{}}', b'{"labels":{ }}'],
        [b'{"labels":{"a":"b"}}', b'{"labels" : {"a":"b"}}'],
        [b'{"labels":{"a":"b"}}', b'{"labels":{"a" :"b"}}', b'{"labels":{"a": "b" , "c":null}}'],
        [b'{"labels":{"a":"b"}}', b'{"labels":{"}":"b"}}', b'{"labels":{"a":"\\"x\\":\\\\"}}'],
        [b'{"labels":{"a":"b"}}', b'{"labels":{"a":5}}', b'{"labels":{"a":true}}', b'{"labels":{"a"}}'],
        [b'{"labels":{"a":"b"}}', b'{"labels":{"a":"b","a":"c"}}', b'{"labels":{"a":"b"},"labels":{"c":"d"}}'],
        [b'{"labels":{"a":"b"}}', b'{"labels":["a","b"]}', b'{"labels":[]}', b'{"labels":{"a":"b"}', b"{}"],
        [b'{"labels":{"a":"b"},"counts":{"x":1}}', b'{"counts":{"y":2}}', b'{"counts":{},"labels":{}}'],
        [b'{"id":1}', b'{"labels":{"a":"b"}}'],
    ],
)
def test_what_is_cut_out_is_what_it_is_alone(values: list[bytes]) -> None:
    same_as_one_by_one(values)
    same_as_one_by_one([*values, *[b'{"labels":{"k":"v"}}'] * 20])


def test_most_maps_are_cut_out_by_what_is_around_them() -> None:
    values = binary([b'{"id":1,"labels": {"a": "b", "c": null}, "counts": {"x": 1}}', b'{"id":2}'])
    cut = _cut(values, "labels")
    assert cut is not None and cut[3]
    assert [part.to_pylist() for part in cut[:3]] == [
        [b'{"id":1,"labels": ', None],
        [b'"a": "b", "c": null', None],
        [b', "counts": {"x": 1}}', None],
    ]
