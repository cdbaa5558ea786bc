"""Decoded values: what json.dumps writes comes back, and what is malformed is told apart, whatever stands beside it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.json_values import JsonDecoder
from headrace.spark.schemas import parse_schema
from headrace.spark.values import HeadedDecoder, TextDecoder, decode_values

SCHEMA = parse_schema(
    "flag BOOLEAN, small TINYINT, whole BIGINT, part DOUBLE, text STRING, day DATE, at TIMESTAMP, money DECIMAL(12,2), "
    "days ARRAY<DATE>, inner STRUCT<a: INT, deep: ARRAY<STRUCT<b: STRING>>>"
)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
times = st.datetimes(
    datetime(1700, 1, 1),  # noqa: DTZ001 - Hypothesis takes bounds without a zone
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
dates = st.dates(date(1700, 1, 1), date(2200, 1, 1))
rows = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.none() | st.booleans(),
        "small": st.none() | st.integers(-128, 127),
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "part": st.none() | st.floats(allow_nan=False),
        "text": st.none() | text,
        "day": st.none() | dates,
        "at": st.none() | times,
        "days": st.none() | st.lists(st.none() | dates, max_size=3),
        "inner": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "a": st.none() | st.integers(-(2**31), 2**31 - 1),
                "deep": st.none()
                | st.lists(st.none() | st.fixed_dictionaries({}, optional={"b": st.none() | text}), max_size=3),
            },
        ),
        "other": st.recursive(
            st.none() | st.booleans() | st.integers() | text,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
            max_leaves=6,
        ),
    },
)

MALFORMED = [
    b"",
    b" ",
    b"null",
    b"5",
    b'"text"',
    b"[]",
    b"[{}]",
    b"}",
    b"{",
    b"{}{}",
    b"{},{}",
    b"{} null",
    b'{},"whole":{}',
    b"{}\x00",
    b"{}\x00{}",
    b"\x00{}",
    b"\xef\xbb\xbf{}",
    b'{"whole":1',
    b'"whole":1}',
    b'{"whole":1,}',
    b'{"whole":1,"whole":2}',
    b'{"whole":"1"}',
    b'{"whole":1.5}',
    b'{"whole":9223372036854775808}',
    b'{"small":128}',
    b'{"part":1e400}',
    b'{"flag":1}',
    b'{"text":1}',
    b'{"text":"\xff"}',
    b'{"other":"\xff"}',
    b'{"text":"\\ud800"}',
    b'{"text":"a\nb"}',
    b'{"day":"2013-02-30"}',
    b'{"day":17}',
    b'{"at":"noon"}',
    b'{"at":1}',
    b'{"inner":[]}',
    b'{"inner":{"deep":{}}}',
    b'{"inner":{"a":2147483648}}',
    b'{"inner":{"a":1,"a":null}}',
    b'{"inner":{"deep":[{},{"b":"x","b":"x"}]}}',
    b'{"money":"x"}',
    b'{"money":12345678901}',
    b'{"money":"12345678901"}',
    b"\x00\x01\xfe",
]


ODD = [
    b"{}",
    b'{"other":1,"other":2,"whole":7}',
    b'{"other":{"whole":1,"whole":2},"whole":7}',
    b'{"inner":{"whole":1,"whole":2},"whole":7}',
    b'{"part":NaN}',
    b'{"part":-Infinity}',
    b'{"part":Inf}',
    b'{"other":Inf}',
    b'{"part":1E5,"whole":-0}',
    b'{"part":1e-999}',
    b'{"part":12345678901234567890123}',
    b'{"text":"\t\x7f"}',
    b'{"at":"0000-01-01"}',
    b'{"at":"9999-12-31 23:59:59"}',
    b'{"at":"2013-01-01T24:00:00"}',
    b'{"day":"0000-02-29"}',
    b'{"day":"2013-01-01T00:00:00"}',
    b'{"money":1e3}',
    b'{"money":1234567890}',
    b'{"money":"-.5"}',
    b'{"money":true}',
    b'{"other":' + b"9" * 5000 + b"}",
    b'{"other":' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"other":{"a":1,"a":"x"},"other":[]}',
    b'{"\\u0077hole":1}',
    b'{"whole":1.0}',
    b'{"whole":1e2}',
    b'{"whole":01}',
    b'{"days":[null,"2013-01-01"]}',
    b'{"days":["x"]}',
    b'{"inner":{"deep":[{"b":1}]}}',
    b"{} ",
    b"{},",
]
"""What is at the edge of being malformed: Arrow's reader decides."""


def as_written(item: Any) -> str:
    return str(item.isoformat())


sound_or_not = (
    st.none()
    | st.sampled_from(MALFORMED)
    | rows.map(lambda row: json.dumps(row, default=as_written).encode())
    | rows.map(lambda row: json.dumps(row, default=as_written).encode()[:-1])
    | st.binary(max_size=6)
)
"""Values of which some are malformed."""


def filled(item: Any, kind: pa.DataType = SCHEMA) -> Any:
    """An item as Arrow gives it back: no other fields, those that are missing null, a map as its pairs."""
    if item is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: filled(item.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, filled(each, kind.item_type)) for key, each in item.items()]
    return [filled(each, kind.value_type) for each in item] if pa.types.is_list(kind) else item


def decoder(rows_at_once: int = 1000) -> JsonDecoder:
    made = JsonDecoder(SCHEMA)
    made.rows_at_once = rows_at_once
    return made


def binary(values: Sequence[bytes | None]) -> pa.Array:
    """The values as a slice, as a fetched batch may be one."""
    return pa.array([b"before", *values, b"after"], pa.binary()).slice(1, len(values))


@given(
    st.lists(st.none() | rows, max_size=12),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
    st.integers(1, 5),
)
def test_what_json_writes_comes_back(items: list[Any], indent: Any, ascii_only: bool, rows_at_once: int) -> None:
    written = [
        None if item is None else json.dumps(item, default=as_written, indent=indent, ensure_ascii=ascii_only).encode()
        for item in items
    ]
    decoded = decode_values(binary(written), decoder(rows_at_once))
    decoded.column.validate(full=True)
    assert decoded.column.type == SCHEMA and decoded.corrupt is None
    assert decoded.column.to_pylist() == [None if item is None else filled(item) for item in items]


@given(st.lists(sound_or_not, max_size=12), st.integers(1, 12))
def test_a_value_s_fate_depends_on_itself_alone(values: list[bytes | None], rows_at_once: int) -> None:
    together = decode_values(binary(values), decoder(rows_at_once))
    together.column.validate(full=True)
    alone = [decode_values(binary([value]), decoder()) for value in values]
    assert together.column.to_pylist() == [each.column[0].as_py() for each in alone]
    corrupt = [None] * len(values) if together.corrupt is None else together.corrupt.to_pylist()
    assert corrupt == [None if each.corrupt is None else each.corrupt[0].as_py() for each in alone]
    for value, column, said in zip(values, together.column.to_pylist(), corrupt, strict=True):
        assert (value is None) == (column is None and said is None)
        assert said is None or (column is None and value is not None and said == value.decode("utf-8", "replace"))


@pytest.mark.parametrize("value", MALFORMED)
def test_malformed(value: bytes) -> None:
    good = b'{"whole":7}'
    for values in ([value], [value, good], [good, value], [good, value, good], [value, value, good, value]):
        decoded = decode_values(binary(values), decoder())
        assert [row and row["whole"] for row in decoded.column.to_pylist()] == [
            7 if each is good else None for each in values
        ]
        assert decoded.corrupt is not None
        assert [said is not None for said in decoded.corrupt.to_pylist()] == [each is not good for each in values]
    assert decoder().why(binary([value]))


@pytest.mark.parametrize("value", MALFORMED + ODD)
def test_a_swarm_around_a_value_changes_nothing(value: bytes) -> None:
    alone = decode_values(binary([value]), decoder()).column
    for bad in (b'{"whole":"1"}', b'{"whole":}', b'{"whole":9223372036854775808}'):
        found = decode_values(binary([*[bad] * 8, value, *[bad] * 8, value]), decoder()).column
        assert found.is_valid().index(True).as_py() == (8 if alone.null_count == 0 else -1)
        # as text: Python has no year 0, and NaN is not itself
        assert found.slice(8, 1).to_string() == found.slice(17, 1).to_string() == alone.to_string()


@pytest.mark.parametrize(
    "values",
    [
        [b'{"inner":', b"}"],
        [b'{"whole":1', b'}{"whole":2}'],
        [b'{"whole":1}{"whole":2}', b""],
        [b'{"inner":', b"}{}{}"],
        [b'{"other":[', b"]}"],
        [b'{"other":"', b'"}'],
    ],
)
def test_two_halves_are_no_whole(values: list[bytes]) -> None:
    decoded = decode_values(binary([b'{"whole":7}', *values, b'{"whole":7}']), decoder())
    assert [row and row["whole"] for row in decoded.column.to_pylist()] == [7, None, None, 7]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"at":"2013-01-01T10:00:00+02:00"}', {"at": datetime(2013, 1, 1, 8, tzinfo=UTC)}),
        (b'{"at":"2013-01-01T10:00:00Z"}', {"at": datetime(2013, 1, 1, 10, tzinfo=UTC)}),
        (b'{"at":"2013-01-01 10:00:00.25"}', {"at": datetime(2013, 1, 1, 10, 0, 0, 250000, tzinfo=UTC)}),
        (b'{"at":"2013-01-01"}', {"at": datetime(2013, 1, 1, tzinfo=UTC)}),
        (b'{"money":12.5}', {"money": Decimal("12.50")}),
        (b'{"money":"12.34"}', {"money": Decimal("12.34")}),
        (b'{"part":7}', {"part": 7.0}),
        (b'{"part":-Infinity}', {"part": float("-inf")}),
        (b'\r\n {"whole"\n:\t7}\n ', {"whole": 7}),
        (b'{"text":"a\\u0000\\n\\ud83d\\ude00"}', {"text": "a\x00\n\U0001f600"}),
        (b'{"Whole":7}', {}),
    ],
)
def test_what_is_taken(value: bytes, expected: dict[str, Any]) -> None:
    decoded = decode_values(binary([value]), decoder())
    assert decoded.column.to_pylist() == [filled(expected)]


def test_behind_a_schema_registry_s_header() -> None:
    header = b"\x00\x00\x00\x01\x02"
    values = [header + b'{"whole":7}', b'{"whole":7}', None, header + b"{", header]
    headed = HeadedDecoder(decoder())
    decoded = decode_values(binary(list(values)), headed)
    assert [row and row["whole"] for row in decoded.column.to_pylist()] == [7, None, None, None, None]
    assert decoded.corrupt is not None and decoded.corrupt[3].as_py() == "\0\0\0\x01\x02{"
    assert headed.why(binary([values[4]])) == "it is not a JSON object"


def test_as_many_objects_as_values_are_not_one_each() -> None:
    values = [b'{"whole":7}', b'{"whole":1}{"whole":2}', b'{"whole":3}\x00']
    decoded = decode_values(binary(list(values)), decoder())
    assert [row and row["whole"] for row in decoded.column.to_pylist()] == [7, None, None]


def test_the_row_that_arrow_names_may_be_another() -> None:
    good, bad = b'{"whole":7}', b'{"whole":"1"}'
    for count in range(1, 9):
        values = [b"{}" * count, good, bad, good, good, good, good]
        decoded = decode_values(binary(list(values)), decoder())
        found = [row and row["whole"] for row in decoded.column.to_pylist()]
        assert found == [7 if value is good else None for value in values]
        assert decoded.column.is_valid().to_pylist()[0] == (count == 1)


def test_a_long_batch_keeps_its_order() -> None:
    values: list[bytes | None] = [b'{"whole":%d}' % number for number in range(40_000)]
    values[3], values[20_000], values[39_999] = None, b'{"whole":}', b"nothing"
    decoded = decode_values(binary(values), JsonDecoder(SCHEMA))
    found = decoded.column.field("whole").to_pylist()
    assert found == [None if number in (3, 20_000, 39_999) else number for number in range(40_000)]
    assert decoded.corrupt is not None
    assert decoded.corrupt.drop_null().to_pylist() == ['{"whole":}', "nothing"]


@pytest.mark.parametrize("count", [0, 3])
def test_batches_without_values(count: int) -> None:
    for each in (JsonDecoder(SCHEMA), TextDecoder()):
        decoded = decode_values(binary([None] * count), each)
        assert decoded.column.type == each.type and decoded.column.to_pylist() == [None] * count
        assert decoded.corrupt is None


@given(st.lists(st.none() | st.binary(max_size=5) | text.map(str.encode), max_size=12))
def test_text(values: list[bytes | None]) -> None:
    decoded = decode_values(binary(values), TextDecoder())
    corrupt = [None] * len(values) if decoded.corrupt is None else decoded.corrupt.to_pylist()
    for value, column, said in zip(values, decoded.column.to_pylist(), corrupt, strict=True):
        try:
            assert (column, said) == (None if value is None else value.decode(), None)
        except UnicodeDecodeError:
            assert value is not None
            assert (column, said) == (None, value.decode("utf-8", "replace"))


@given(st.lists(st.none() | st.lists(st.none() | st.binary(max_size=6), max_size=3), max_size=5))
def test_bytes_are_base64(items: list[Any]) -> None:
    kind = parse_schema("raw BINARY, raws ARRAY<BINARY>, inner STRUCT<raw: BINARY>")
    rows = [
        None
        if item is None
        else {"raw": item[0] if item else None, "raws": item, "inner": {"raw": b"x"} if item else None}
        for item in items
    ]
    written = [
        None if row is None else json.dumps(row, default=lambda raw: b64encode(raw).decode()).encode() for row in rows
    ]
    decoded = decode_values(binary(written), JsonDecoder(kind))
    decoded.column.validate(full=True)
    assert decoded.column.type == kind and decoded.column.to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (r"/+8=", b"\xff\xef"), (r"AA A\r\nA", b"\x00\x00\x00"), (r"AA", None), (r"AAA", None),
        (r"A===", None), (r"AA=A", None),
        (r"_-8=", None), (r"\u00fc===", None), (r"AA==AA==", None),
    ],
)  # fmt: skip
def test_what_base64_is(text: str, raw: bytes | None) -> None:
    decoded = decode_values(binary([b'{"raw":"%s"}' % text.encode()]), JsonDecoder(parse_schema("raw BINARY")))
    assert decoded.column.to_pylist() == [None if raw is None else {"raw": raw}]
