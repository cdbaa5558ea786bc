"""Protobuf values: what Google's library writes comes back with the nulls and types that Spark has for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace.spark.protobuf_values import ProtobufDecoder, indexes_bytes, protobuf_type
from headrace.spark.schemas import ddl
from headrace.spark.values import HeadedDecoder, decode_values

from .protobuf_files import SCALARS, files, message_class

FILES = files().SerializeToString()
Row = message_class("p.Row")
Old = message_class("q.Old")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SIGNED = {bits: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (32, 64)}
ITEMS = {
    "double": st.floats(allow_nan=False), "float": st.floats(allow_nan=False, width=32), "bool": st.booleans(),
    "string": text, "bytes": st.binary(max_size=5),
} | {
    kind: st.integers(0, 2**bits - 1) if kind.startswith(("uint", "fixed")) else SIGNED[bits]
    for bits in (32, 64) for kind in SCALARS if kind.endswith(str(bits))
}  # fmt: skip
numbers = st.integers(0, 4)
"""Of colours, two of them unknown."""
inners = st.fixed_dictionaries({}, optional={"a": SIGNED[32], "colours": st.lists(numbers, max_size=3)})
spans = st.fixed_dictionaries({"seconds": st.integers(-(10**10), 10**10), "nanos": st.integers(0, 999_999_999)})
rows = st.fixed_dictionaries(
    {},
    optional={
        **{f"f_{kind}": items for kind, items in ITEMS.items()},
        **{f"r_{kind}": st.lists(items, max_size=3) for kind, items in ITEMS.items()},
        "colour": numbers, "inner": inners, "inners": st.lists(inners, max_size=3), "at": spans, "took": spans,
        "ats": st.lists(spans, max_size=2), "empty": st.just({}),
        "counts": st.dictionaries(text, SIGNED[64], max_size=3),
        "by": st.dictionaries(SIGNED[32], inners, max_size=2), "maybe": SIGNED[32],
    },
)  # fmt: skip
CHOICES: list[dict[str, object]] = [{}, {"said": ""}, {"said": "x"}, {"meant": {}}, {"meant": {"a": 5}}]
chosen = st.sampled_from(CHOICES)
all_rows = st.tuples(rows, chosen).map(lambda both: both[0] | both[1])


def colour(number: int) -> str:
    return ["NONE", "RED", "GREEN"][number] if number < 3 else f"UNKNOWN_ENUM_VALUE_Colour_{number}"


def inner(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return (
        row
        if row is None
        else {"a": row.get("a") or None, "colours": [colour(each) for each in row.get("colours", [])]}
    )


def span(row: dict[str, int]) -> timedelta:
    return timedelta(seconds=row["seconds"], microseconds=row["nanos"] // 1000)


def scalar(kind: str, item: Any) -> Any:
    """Unsigned numbers are signed ones."""
    bits = 32 if kind.endswith("32") else 64
    return item - 2**bits if kind.startswith(("uint", "fixed")) and item >= 2 ** (bits - 1) else item


def expected(row: dict[str, Any]) -> dict[str, Any]:
    """What a message is in Arrow."""
    found: dict[str, Any] = {}
    for kind in SCALARS:
        item = row.get(f"f_{kind}")
        found[f"f_{kind}"] = scalar(kind, item) if item or str(item) == "-0.0" else None
    for kind in SCALARS:
        found[f"r_{kind}"] = [scalar(kind, item) for item in row.get(f"r_{kind}", [])]
    return found | {
        "colour": colour(row["colour"]) if row.get("colour") else None,
        "inner": inner(row.get("inner")),
        "inners": [inner(each) for each in row.get("inners", [])],
        "at": EPOCH + span(row["at"]) if "at" in row else None,
        "took": span(row["took"]) if "took" in row else None,
        "ats": [EPOCH + span(each) for each in row.get("ats", [])],
        "counts": sorted(row.get("counts", {}).items()),
        "by": sorted((key, inner(each)) for key, each in row.get("by", {}).items()),
        "said": row.get("said"),
        "meant": inner(row.get("meant")),
        "maybe": row.get("maybe"),
    }


def in_order(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Maps have no order of their own."""
    return (
        row if row is None else row | {name: sorted(row[name], key=lambda pair: pair[0]) for name in ("counts", "by")}
    )


def binary(values: list[bytes | None]) -> pa.Array:
    """The values as a slice, as a fetched batch may be one."""
    return pa.array([b"before", *values, b"after"], pa.binary()).slice(1, len(values))


@settings(max_examples=tried(40))
@given(st.lists(st.none() | all_rows, max_size=4))
def test_what_the_library_writes_comes_back(items: list[Any]) -> None:
    values = [None if item is None else Row(**item).SerializeToString() for item in items]
    decoded = decode_values(binary(values), ProtobufDecoder("p.Row", FILES))
    decoded.column.validate(full=True)
    assert decoded.column.type == protobuf_type("p.Row", FILES) and decoded.corrupt is None
    assert list(map(in_order, decoded.column.to_pylist())) == [
        None if item is None else expected(item) for item in items
    ]


@settings(max_examples=tried(40))
@given(
    st.lists(
        st.tuples(all_rows.map(lambda row: Row(**row).SerializeToString()), st.integers(0), st.binary(max_size=3)),
        max_size=5,
    )
)
def test_malformed_is_what_the_library_refuses(made: list[tuple[bytes, int, bytes]]) -> None:
    values = [value[: cut % (len(value) + 1)] + more for value, cut, more in made]
    decoder = ProtobufDecoder("Row", FILES)
    decoded = decode_values(binary(list(values)), decoder)
    decoded.column.validate(full=True)
    corrupt = [None] * len(values) if decoded.corrupt is None else decoded.corrupt.to_pylist()
    for value, valid, said in zip(values, decoded.column.is_valid().to_pylist(), corrupt, strict=True):
        try:
            Row.FromString(value)
        except DecodeError:
            assert not valid and bytes.fromhex(said) == value
            assert decoder.why(binary([value])) == "it is not such a message"
        else:
            # a time's seconds are any number, a time is not
            assert valid or "overflow" in decoder.why(binary([value]))


def test_types() -> None:
    found = ddl(protobuf_type("p.Row", FILES)).replace("`", "").replace(": ", ":")
    scalars = ["double", "float"] + ["int", "bigint"] * 5 + ["boolean", "string", "binary"]
    singles = [f"f_{name}:{kind}" for name, kind in zip(SCALARS, scalars, strict=True)]
    repeated = [f"r_{name}:array<{kind}>" for name, kind in zip(SCALARS, scalars, strict=True)]
    held = "struct<a:int, colours:array<string>>"
    rest = [
        "colour:string", f"inner:{held}", f"inners:array<{held}>", "at:timestamp", "took:interval day to second",
        "ats:array<timestamp>", "counts:map<string, bigint>", f"by:map<int, {held}>", "said:string", f"meant:{held}",
        "maybe:int",
    ]  # fmt: skip
    assert found == f"struct<{', '.join(singles + repeated + rest)}>"


def test_times_that_are_none_are_malformed() -> None:
    good, bad = ({"at": {"seconds": seconds}} for seconds in (1, 2**62))
    values = [Row(**each).SerializeToString() for each in (good, bad, good)]
    decoder = ProtobufDecoder("p.Row", FILES)
    assert decode_values(binary(list(values)), decoder).column.is_valid().to_pylist() == [True, False, True]
    assert "overflow" in decoder.why(binary([values[1]]))
    alone = decode_values(binary(list(values)), ProtobufDecoder("p.Row", FILES, only="maybe"))
    assert alone.column.to_pylist() == [{"maybe": None}] * 3


def test_proto2_has_defaults_and_fields_that_must_be_there() -> None:
    values = [
        Old(id=1, text="", level=0, by={"a": {"must": "x"}}).SerializeToString(),
        Old(id=0).SerializeToString(),
        Old(text="x").SerializePartialToString(),
        Old(id=1, by={"a": {}}).SerializePartialToString(),
    ]
    decoder = ProtobufDecoder("q.Old", FILES)
    assert decode_values(binary(list(values)), decoder).column.to_pylist() == [
        {"id": 1, "text": "", "level": 0, "by": [("a", {"must": "x"})]},
        {"id": 0, "text": None, "level": 7, "by": []},
        None,
        None,
    ]
    assert decoder.why(binary([values[2]])) == "its field id is missing"
    # text that is none
    bad = Old(id=1).SerializeToString() + b"\x12\x01\xff"
    assert decode_values(binary([bad, values[1]]), decoder).column.is_valid().to_pylist() == [False, True]
    assert decoder.why(binary([bad]))


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (b"\x00", 1), (b"\x00more", 1), (b"\x02\x04more", 2), (b"\x04\x80\x01\x02more", 4),
        (b"", None), (b"\x02", None),
        (b"\x04\x02", None), (b"\x80", None), (b"\x01", None), (b"\xff" * 11, None),
    ],
)  # fmt: skip
def test_a_message_s_place_in_its_file_is_passed_over(body: bytes, size: int | None) -> None:
    assert indexes_bytes(body) == size


def test_behind_a_schema_registry_s_header() -> None:
    decoder = HeadedDecoder(ProtobufDecoder("p.Inner", FILES), indexes_bytes)
    header, body = b"\x00\x00\x00\x01\x02", b"\x08\x05"
    values = [header + b"\x00" + body, header + b"\x02\x02" + body, header, body, None, header + b"\x00\x08"]
    good = {"a": 5, "colours": []}
    assert decode_values(binary(list(values)), decoder).column.to_pylist() == [good, good, None, None, None, None]
    assert decode_values(binary(values[:1] * 3), decoder).column.to_pylist() == [good] * 3
    assert decoder.why(binary([header])) == "it ends within its header"


@pytest.mark.parametrize(
    ("message", "kept", "reason"),
    [
        ("p.Nothing", 4, "there is no message 'p.Nothing'; there are p.Inner, p.Empty, p.Row, p.Node, q.Old, q.Part"),
        ("p.Node", 4, "p.Node contains itself"),
        ("p.Empty", 4, "p.Empty has no fields"),
        ("p.Row", 2, "the file lacks google/protobuf/timestamp.proto, which row.proto imports"),
    ],
)
def test_complaints(message: str, kept: int, reason: str) -> None:
    some = FileDescriptorSet(file=files().file[:kept]).SerializeToString()
    with pytest.raises(ValueError, match=reason) as caught:
        protobuf_type(message, some)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none() -> None:
    with pytest.raises(ValueError, match="the file is not a FileDescriptorSet"):
        protobuf_type("p.Row", b"syntax = 'proto3';")
