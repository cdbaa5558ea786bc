"""Arrow to batches, compiled and as plain Python, against the record decoder and another client's partitioner."""

from __future__ import annotations

import importlib.util
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as their_murmur2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace.arrow
from headrace.arrow import encode
from headrace.arrow.decode import HEADER_TYPE
from headrace.arrow.encode import check_schema, encode_batch, hash_rows
from headrace.wire.batch import check_crc, read_header, records_are_whole
from headrace.wire.records import Compression, decode_batch


def plain() -> ModuleType:
    """The loops' source file as it runs without a compiler."""
    spec = importlib.util.spec_from_file_location("plain_rows", Path(headrace.arrow.__file__).parent / "_rows.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.cython = type("cython", (), {"compiled": False})  # type: ignore[attr-defined]
    return module


PLAIN = plain()
NOW = 1_700_000_000_123
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["compiled", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        for name in ("Column", "Rows", "key_partitions", "order_by_partition"):
            monkeypatch.setattr(encode, name, getattr(PLAIN, name))
    chosen: str = request.param
    return chosen


BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=4), "value": st.none() | st.binary(max_size=9)}), max_size=3
)
ROW = st.fixed_dictionaries(
    {
        "key": BYTES,
        "value": BYTES,
        "partition": st.none() | st.integers(0, 4),
        "timestamp": st.none() | st.integers(-(10**12), 10**13).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
        "headers": HEADERS,
        "topic": st.sampled_from(["a", "b"]),
    }
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", HEADER_TYPE),
        ("topic", pa.string()),
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(ROW, min_size=1, max_size=12),
    st.sampled_from(Compression),
    st.sampled_from([16, 80, 5000]),
    st.integers(0, 3),
    st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=90)), max_size=2),
)
def test_every_row_arrives_once_and_in_order(
    form: str, rows: list[dict[str, Any]], codec: Compression, size: int, skipped: int, marks: list[tuple[str, bytes]]
) -> None:
    table = pa.RecordBatch.from_pylist(rows, schema=SCHEMA).slice(skipped)
    rows = rows[skipped:]
    check_schema(table.schema, None)
    got: dict[tuple[str, int], list[Any]] = {}
    for topic, partition, batch, count in encode_batch(
        table, None, lambda _: 5, now_ms=NOW, compression=codec, batch_bytes=size, marks=marks
    ):
        header = read_header(batch)
        assert check_crc(batch, 0, header) and header.size == len(batch) and header.record_count == count
        assert codec or records_are_whole(batch, 0, header)
        records = decode_batch(batch)
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert [record.offset for record in records] == list(range(count))
        got.setdefault((topic, partition), []).extend(tuple(record[1:]) for record in records)
    for topic in "ab":
        # rows without a key or a partition go to one partition together, which is chosen at random
        mine = {partition: part for (name, partition), part in got.items() if name == topic}
        assert any(mine == placed([row for row in rows if row["topic"] == topic], loose, marks) for loose in range(5))


def placed(rows: list[dict[str, Any]], loose: int, marks: list[tuple[str, bytes]]) -> dict[int, list[Any]]:
    """The records by partition, in order, with those that nothing binds in `loose`."""
    places: dict[int, list[Any]] = {}
    for row in rows:
        partition = row["partition"]
        if partition is None:
            key = row["key"]
            partition = loose if key is None else (their_murmur2(key) & 0x7FFFFFFF) % 5
        when = NOW if row["timestamp"] is None else int((row["timestamp"] - EPOCH) / timedelta(milliseconds=1))
        headers = [(header["key"], header["value"]) for header in row["headers"] or []] + marks
        places.setdefault(partition, []).append((when, row["key"], row["value"], headers))
    return places


def told(row: dict[str, Any]) -> str:
    """What a row says, as a hash of it should see it: a time that it does not say is the first."""
    headers = None if row["headers"] is None else [(header["key"], header["value"]) for header in row["headers"]]
    return repr([row["topic"], row["partition"], row["timestamp"] or EPOCH, row["key"], row["value"], headers])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROW, max_size=8), st.lists(ROW, max_size=8), st.randoms(), st.integers(0, 8))
def test_a_sum_of_hashes_knows_the_rows_and_not_their_order(
    form: str, rows: list[dict[str, Any]], others: list[dict[str, Any]], chance: Any, cut: int
) -> None:
    def summed(*parts: list[dict[str, Any]]) -> int:
        hashes = (hash_rows(pa.RecordBatch.from_pylist(part, schema=SCHEMA), None) for part in parts)
        return sum(hashes) & (1 << 64) - 1

    mixed = chance.sample(rows, len(rows))
    assert summed(rows) == summed(mixed) == summed(mixed[:cut], mixed[cut:])
    assert summed([{}] * 0) == 0
    assert (summed(rows) == summed(others)) == (sorted(map(told, rows)) == sorted(map(told, others)))
    sliced = pa.RecordBatch.from_pylist([*others, *rows], schema=SCHEMA).slice(len(others))
    assert hash_rows(sliced, None) == summed(rows)


def test_both_forms_hash_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = [
        {"key": b"k", "value": b"x" * n, "topic": "ab"[n % 2], "partition": None} for n in range(20)
    ]
    rows += [
        {**rows[0], "value": None, "timestamp": EPOCH - timedelta(days=1), "headers": [{"key": "h", "value": None}]}
    ]
    table = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    compiled = hash_rows(table, None), hash_rows(table, "t")
    for name in ("Column", "Rows"):
        monkeypatch.setattr(encode, name, getattr(PLAIN, name))
    assert (hash_rows(table, None), hash_rows(table, "t")) == compiled


def test_text_columns_and_a_topic_from_the_option(form: str) -> None:
    table = pa.RecordBatch.from_pydict({"key": ["EWR", None], "value": pa.array(["x", "yy"], pa.large_string())})
    check_schema(table.schema, "t")
    records = [
        (topic, record.key, record.value)
        for topic, _, batch, _ in encode_batch(table, "t", lambda _: 3, now_ms=NOW)
        for record in decode_batch(batch)
    ]
    assert sorted(records, key=str) == [("t", None, b"yy"), ("t", b"EWR", b"x")]


def test_a_record_larger_than_a_batch_goes_alone(form: str) -> None:
    table = pa.RecordBatch.from_pydict({"value": [b"s", b"x" * 5000, b"t"]})
    batches = list(encode_batch(table, "t", lambda _: 1, now_ms=NOW, batch_bytes=100))
    assert [[len(r.value or b"") for r in decode_batch(batch)] for _, _, batch, _ in batches] == [[1], [5000, 1]] or [
        [len(r.value or b"") for r in decode_batch(batch)] for _, _, batch, _ in batches
    ] == [[1], [5000], [1]]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("wanted", [1, 200, 3_000, 1 << 31])
def test_batches_are_as_small_as_their_topic_wants_them(form: str, codec: Compression, wanted: int) -> None:
    dice = random.Random(5)
    values = [dice.randbytes(dice.choice([0, 1, 50])) + b"x" * dice.choice([0, 3, 900]) for _ in range(400)]
    table = pa.RecordBatch.from_pydict({"value": values})
    batches = list(
        encode_batch(table, "t", lambda _: 1, now_ms=NOW, compression=codec, wanted_bytes={"t": wanted}.__getitem__)
    )
    assert [record.value for _, _, batch, _ in batches for record in decode_batch(batch)] == values
    assert all(len(batch) <= wanted + 130 or count == 1 for _, _, batch, count in batches)
    if wanted == 3_000:
        filled = sorted(len(batch) for _, _, batch, _ in batches)
        assert filled[len(filled) // 2] > wanted // 2


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        ({"key": pa.binary()}, "t", "Records need a column 'value'"),
        ({"value": pa.binary()}, None, "give the option 'topic'"),
        ({"value": pa.int64()}, "t", "The column 'value' is int64"),
        ({"value": pa.binary(), "partition": pa.int64()}, "t", "The column 'partition' is int64"),
        ({"value": pa.binary(), "timestamp": pa.int64()}, "t", "need a timestamp"),
        ({"value": pa.binary(), "headers": pa.string()}, "t", "array<struct<key, value>>"),
        ({"value": pa.binary(), "extra": pa.string()}, "t", "no column 'extra'"),
        ({"value": pa.string(), "_corrupt_record": pa.string()}, "t", "no column '_corrupt_record'"),
    ],
)
def test_wrong_columns_are_one_sentence(columns: dict[str, pa.DataType], topic: str | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        check_schema(pa.schema(list(columns.items())), topic)


def test_a_whole_row_of_a_source_is_a_record_again() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"]),
            "value": pa.array([b"v"]),
            "topic": pa.array(["from"]),
            "partition": pa.array([2], pa.int32()),
            "offset": pa.array([4711], pa.int64()),
            "timestamp": pa.array([NOW * 1000], pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"x"}]], HEADER_TYPE),
        }
    )
    check_schema(rows.schema, "to")
    [(topic, partition, batch, count)] = encode_batch(rows, "to", lambda _: 3, now_ms=NOW + 5)
    [record] = decode_batch(batch)
    assert (topic, partition, count, record.key, record.value) == ("to", 2, 1, b"k", b"v")
    assert (record.offset, record.timestamp, list(record.headers)) == (0, NOW, [("h", b"x")])


def test_rows_that_go_nowhere_are_refused() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"x"], "partition": pa.array([7], pa.int32())})
    with pytest.raises(ValueError, match="no partition 7"):
        list(encode_batch(rows, "t", lambda _: 3, now_ms=NOW))
    rows = pa.RecordBatch.from_pydict({"value": [b"x"], "topic": pa.array([None], pa.string())})
    with pytest.raises(ValueError, match="no topic"):
        list(encode_batch(rows, None, lambda _: 3, now_ms=NOW))
    rows = pa.RecordBatch.from_pylist(
        [{"value": b"x", "headers": [{"key": None, "value": b"x"}]}], schema=SCHEMA.remove(5)
    )
    with pytest.raises(ValueError, match="no key"):
        list(encode_batch(rows, "t", lambda _: 3, now_ms=NOW))
