"""Records as changes: what is readable, why the rest is not, and that Arrow's reader and ours read alike."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace_pipelines.tables.dead_letters import COLUMNS, DeadLetters
from headrace_pipelines.tables.decoding import RecordDecoder
from headrace_pipelines.tables.layout import Layout, layout_of
from headrace_pipelines.tables.row_format import Limits
from headrace_pipelines.tables.times import texts

from .round_trips import Record, as_fetched, decoded_of

COLUMNS_OF_ALL = (
    "b BOOLEAN, t TINYINT, i BIGINT, f FLOAT, d DOUBLE, n DECIMAL(5, 2), s STRING, day DATE, at TIMESTAMP, "
    "l TIMESTAMP_NTZ, y BINARY, a ARRAY<INT>, o STRUCT<x: DOUBLE>, m MAP<STRING, INT>"
)
BY_ARROW = layout_of("id INT", COLUMNS_OF_ALL)
ONE_BY_ONE = layout_of("id INT", f"{COLUMNS_OF_ALL}, any VARIANT")
STRICT = Limits(nul=False)


def decoded(records: list[Record], layout: Layout, limits: Limits = Limits(), **more: Any) -> pa.RecordBatch:  # noqa: B008
    return decoded_of(RecordDecoder(layout, limits=limits, **more), as_fetched(records))


def reason(value: bytes, layout: Layout, limits: Limits = Limits(), key: bytes | None = b"1") -> Any:  # noqa: B008
    return decoded([(key, value)], layout, limits)["reason"][0].as_py()


scalars = st.sampled_from(
    [
        "null", "true", "false", "0", "1", "-0", "-1", "127", "128", "-129", "1.0", "1e2", "0.1", "-0.0", "1.25",
        "1.255", "999.99", "1000", "9223372036854775807", "9223372036854775808",
        "1e400", '"NaN"', '"Infinity"', '"-Infinity"',
        '"x"', '""', '"1.5"', '"2026-01-02"', '"2026-01-02T03:04:05Z"', '"2026-01-02 03:04:05.678+01:00"',
        '"2026-02-30"',
        '"infinity"', '"0044-03-15 BC"', '"QQ=="', '"QQ"', '"\\\\x00ff"', '"a\\u0000b"', '"\\ud800"', "[]", "[1,null]",
        '["x"]', "{}", '{"x":1}', '{"x":"NaN"}', '{"x":null,"y":[]}', '{"k":1}', "[[1]]",
    ]
)  # fmt: skip
objects = st.dictionaries(
    st.sampled_from([*(field.name for field in BY_ARROW.value), "else"]), scalars, max_size=4
).map(lambda fields: ("{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in fields.items()) + "}").encode())


def shown(column: pa.Array) -> str:
    return repr((texts(column) if pa.types.is_temporal(column.type) else column).to_pylist())


@given(st.lists(objects, max_size=6), st.booleans())
@example([b'{"d": "NaN"}', b'{"d": -0}', b'{"i": -0}', b"{}"], True)
@example([b'{"n": 1000}', b'{"n": 999.99}', b'{"n": "1000"}'], False)
def test_both_ways_of_reading_read_alike(values: list[bytes], nul: bool) -> None:
    """What Arrow's reader takes, ours takes too, and gives the same; and a value's neighbours are no matter."""
    records: list[Record] = [(b"%d" % number, value) for number, value in enumerate(values)]
    limits = Limits(nul=nul)
    fast = decoded(records, BY_ARROW, limits)
    slow = decoded(records, ONE_BY_ONE, limits).drop_columns([f"c{len(BY_ARROW.fields)}"])
    assert fast["reason"].to_pylist() == slow["reason"].to_pylist()
    for name in fast.schema.names:
        assert shown(fast[name]) == shown(slow[name]), name
    for number, record in enumerate(records):
        assert decoded([record], BY_ARROW, limits)["reason"][0] == fast["reason"][number]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "it is not a JSON object"), (b"[]", "it is not a JSON object"), (b"null", "it is not a JSON object"),
        (b"{", "it is not JSON"), (b'{"d"}', "it is not JSON"), (b'{"d":1,}', "it is not JSON"),
        (b'{"d":1 "i":1}', "it is not JSON"),
        (b'{"d":1} {}', "more text follows the JSON object"), (b"\xff", "it is not UTF-8"),
        (b'{"d":NaN,"a":1}', "NaN is not JSON"), (b'{"d":"nan"}', "'d': 'nan' is not of type double"),
        (b'{"d":1,"d":2}', "it has the field 'd' twice"), (b'{"o":{"x":1,"x":2}}', "an object has a field twice"),
        (b'{"n":1.255}', "'n': 1.255 is not of type decimal(5,2)"), (b'{"i":1.0}', "'i': 1.0 is not of type bigint"),
        (b'{"t":128}', "'t': 128 is not of type tinyint"), (b'{"s":1}', "'s': 1 is not of type string"),
        (b'{"y":"Q"}', "'y': 'Q' is not of type binary"),
        (b'{"at":"yesterday"}', "'at': 'yesterday' is not of type timestamp"),
        (b'{"a":{}}', "'a': {} is not of type array<int>"),
        (b'{"o":{"x":"y"}}', "'o': 'y' is not of type double"),
        (b'{"s":"\\ud800"}', "'s': a text has half of a surrogate pair"),
        (b'{"f":1e39}', "'f': 1e39 is not of type float"), (b'{"else":' + b"[" * 20_000, "it is nested too deeply"),
    ],
)  # fmt: skip
def test_why_a_value_is_unreadable(value: bytes, words: str) -> None:
    assert reason(value, ONE_BY_ONE) == words


@pytest.mark.parametrize(
    ("schema", "key", "words"),
    [
        ("id INT", None, "it has no key"), ("id INT", b"x", "its key, 'id': 'x' is not of type int"),
        ("id INT", b"\xff", "its key, 'id': it is not UTF-8"),
        ("id INT", b"2147483648", "its key, 'id': 2147483648 is not of type int"),
        ("s STRING", b"a\0", "its key, 's': a text has a NUL"),
        ("id DOUBLE", b"nan", "its key, 'id': 'nan' is not of type double"),
        ("a INT, b INT", b'{"a":1}', "its key has no 'b'"), ("a INT, b INT", b'{"a":1,"b":null}', "its key has no 'b'"),
        ("a INT, b INT", b"1", "it is not a JSON object"),
    ],
)  # fmt: skip
def test_why_a_key_is_unreadable(schema: str, key: bytes | None, words: str) -> None:
    assert reason(b"{}", layout_of(schema, "n INT"), STRICT, key) == words


@pytest.mark.parametrize(
    ("value", "sound"),
    [
        (b'{"any":"a\\u0000"}', False), (b'{"any":{"a\\u0000":1}}', False), (b'{"any":"\\\\u0000"}', True),
        (b'{"any":"\\\\\\u0000"}', False), (b'{"any":"\\ud83d\\ude00"}', True), (b'{"any":["\\udead"]}', False),
        (b'{"any":1e131071}', True), (b'{"any":[1e131072]}', False), (b'{"any":"1e131072"}', True),
        (b'{"any":1e-16383}', True), (b'{"any":1e-16384}', False), (b'{"any":0e999999}', True),
        (b'{"any":1e99999999999999999999}', False), (b'{"any":' + b"9" * 131_072 + b"}", True),
        (b'{"any":' + b"9" * 131_073 + b"}", False),
    ],
)  # fmt: skip
def test_any_json_that_postgres_does_not_take(value: bytes, sound: bool) -> None:
    assert (reason(value, ONE_BY_ONE, STRICT) is None) == sound


def test_any_json_stays_as_it_is_written() -> None:
    layout = layout_of("id INT", "any VARIANT, n INT")
    texts = ["1.50", '{ "b" :1e400, "b": 2, "a": [ ] }', "12345678901234567890", '"x"', "true", "-0"]
    values: list[Record] = [(b"1", f'{{"n": 1, "any":{text} ,"x":[{{}}]}}'.encode()) for text in texts]
    found = decoded([*values, (b"1", b'{"any":null}'), (b"1", b"{}"), (b"1", None)], layout)
    assert found["c1"].to_pylist() == [*texts, None, None, None]
    assert found["reason"].null_count == len(found)
    assert found["deleted"].to_pylist() == [False] * (len(found) - 1) + [True]


def test_nothing_and_a_copy_for_the_workers() -> None:
    decoder = RecordDecoder(ONE_BY_ONE, nested_as_json=True, limits=STRICT, with_letters=True)
    copy = pickle.loads(pickle.dumps(decoder))
    assert copy == decoder
    nothing = as_fetched([])
    empty = copy.decode(nothing["key"], nothing["value"], nothing["headers"])
    assert empty.num_rows == 0 and empty.schema == decoder.schema


def test_dead_letters_are_the_records_and_why() -> None:
    records: list[Record] = [
        (b"1", b"{}"),
        (b"\xff", b'{"n":1}'),
        (None, b"\0"),
        (b"2", b"ein b\xfcchlein"),
        (b"3", None),
    ]
    batch = as_fetched(records)
    headers = [None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, [], None]
    batch = batch.set_column(5, batch.schema.field(5), pa.array(headers, batch.schema.field(5).type))
    found = decoded_of(RecordDecoder(layout_of("id INT", "n INT"), with_letters=True), batch)
    sent: list[pa.RecordBatch] = []
    letters = DeadLetters("prices", lambda rows, _: sent.append(rows))
    table = pa.Table.from_batches([found])
    letters.send(table.filter(found["reason"].is_valid()), 0)
    letters.send(table.slice(0, 0), 1)
    (rows,) = sent
    assert rows.schema == COLUMNS
    assert list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)) == records[1:4]
    added = [{each["key"]: each["value"] for each in row} for row in rows["headers"].to_pylist()]
    assert [row["headrace.dead_letter.reason"] for row in added] == [
        b"its key, 'id': it is not UTF-8", b"it has no key", b"it is not UTF-8",
    ]  # fmt: skip
    assert (added[0]["a"], added[0]["b"], added[0]["headrace.dead_letter.topic"]) == (b"1", None, b"prices")
    assert [row["headrace.dead_letter.offset"] for row in added] == [b"1", b"2", b"3"]
    assert added[1]["headrace.dead_letter.partition"] == b"0"
