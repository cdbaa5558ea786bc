"""Batches to Arrow, compiled and as plain Python, against the record decoder."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace.arrow
from headrace.arrow import decode
from headrace.arrow.decode import COLUMN_NAMES, decode_fetched, schema_of
from headrace.client.reading import Fetched
from headrace.wire.batch import BATCH_OVERHEAD, CorruptBatch, checksum, iter_headers
from headrace.wire.records import Compression, Record, build_batch, decode_batch


def plain() -> ModuleType:
    """The loop's source file as it runs without a compiler."""
    spec = importlib.util.spec_from_file_location("plain_columns", Path(headrace.arrow.__file__).parent / "_columns.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # as it is where the compiler is not installed
    module.cython = type("cython", (), {"compiled": False})  # type: ignore[attr-defined]
    return module


PLAIN = plain()
SCHEMA = schema_of(COLUMN_NAMES)


@pytest.fixture(params=["compiled", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(decode, "Columns", PLAIN.Columns)
        monkeypatch.setattr(decode, "HeaderCount", PLAIN.HeaderCount)
    chosen: str = request.param
    return chosen


def piece(data: bytes, position: int = 0, end: int | None = None, **more: Any) -> Fetched:
    return Fetched("t", 3, position, 0, end, memoryview(data), 0, 0, 0, **more)


def rows_of(fetched: Fetched, **options: Any) -> list[dict[str, Any]]:
    found = []
    for batch in decode_fetched(fetched, SCHEMA, **options):
        batch.validate(full=True)
        assert batch.schema.equals(SCHEMA)
        columns = [batch.column(i) for i in range(batch.num_columns)]
        micros = columns[5].cast(pa.int64()).to_pylist()
        for index, row in enumerate(batch.drop_columns(["timestamp"]).to_pylist()):
            found.append(row | {"timestamp": micros[index]})
    return found


def expected(data: bytes, position: int, end: int) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": header.timestamp_type,
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for at, header in iter_headers(data)
        if not header.is_control
        for record in decode_batch(data, at)
        if position <= record.offset < end
    ]


BYTES = st.none() | st.binary(max_size=30)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-1, 2**42),
        BYTES,
        BYTES,
        st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3),
    ),
    min_size=1,
    max_size=8,
)
BATCHES = st.lists(
    st.tuples(RECORDS, st.sampled_from(Compression), st.booleans(), st.integers(0, 3)), min_size=1, max_size=4
)


def log_of(batches: list[tuple[list[Record], Compression, bool, int]]) -> tuple[bytes, int]:
    data, offset = b"", 0
    for records, codec, append, gap in batches:
        offset += gap
        data += build_batch(records, base_offset=offset, compression=codec, log_append_time=77 if append else None)
        offset += len(records)
    return data, offset


@pytest.mark.parametrize("form", ["compiled", "plain"], indirect=True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, st.integers(0, 12), st.integers(0, 20), st.sampled_from([1, 5, 1000]))
def test_same_as_the_record_decoder(
    form: str, batches: list[tuple[list[Record], Compression, bool, int]], position: int, end: int, group: int
) -> None:
    data, _ = log_of(batches)
    assert rows_of(piece(data, position, end), group_rows=group) == expected(data, position, end)


def test_gaps_of_compaction_and_a_batch_that_begins_below(form: str) -> None:
    data = build_batch(
        [Record(4, 1, b"a", b"1"), Record(9, 2, b"b", None), Record(15, 3, None, b"")], base_offset=2, keep_offsets=True
    )
    assert [(r["offset"], r["key"], r["value"]) for r in rows_of(piece(data, 5))] == [(9, b"b", None), (15, None, b"")]


def test_control_batches_and_aborted_transactions_are_skipped(form: str) -> None:
    def txn(offset: int, producer: int, *values: bytes) -> bytes:
        return build_batch(
            [Record(0, 1, None, value) for value in values],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    def marker(offset: int, producer: int, commit: int) -> bytes:
        key = bytes((0, 0, 0, commit))
        return build_batch(
            [Record(0, 1, key, bytes(6))],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )

    data = txn(0, 1, b"gone") + txn(1, 2, b"kept") + marker(2, 1, 0) + marker(3, 2, 1) + txn(4, 1, b"later")
    fetched = piece(data, aborted=[(1, 0)])
    assert [r["value"] for r in rows_of(fetched, committed=True)] == [b"kept", b"later"]
    assert [r["value"] for r in rows_of(fetched)] == [b"gone", b"kept", b"later"]


def test_columns_are_chosen_and_wrong_names_refused() -> None:
    data = build_batch([Record(0, 1, b"k", b"v")])
    (batch,) = decode_fetched(piece(data), schema_of(["offset", "value"]))
    assert batch.to_pylist() == [{"value": b"v", "offset": 0}]
    with pytest.raises(ValueError, match="there is no column 'keys'"):
        schema_of(["keys"])


def test_errors_name_the_place(form: str) -> None:
    data = bytearray(build_batch([Record(0, 1, b"k", b"v")], base_offset=40))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="topic t partition 3 offset 40: the checksum"):
        rows_of(piece(bytes(data)))


def test_a_header_key_that_is_no_text_is_refused() -> None:
    data = bytearray(build_batch([Record(0, 1, b"k", b"v", [("name", b"x")])], base_offset=40))
    data[data.index(b"name")] = 0xFF
    data[17:21] = checksum(data, 0, len(data)).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="offset 40: the key of a header at or after it is not UTF-8"):
        rows_of(piece(bytes(data)))


@given(st.binary(max_size=80), st.integers(0, 4), st.integers(-5, 60), st.booleans())
def test_hostile_bodies_are_refused_alike(noise: bytes, count: int, at: int, headers: bool) -> None:
    body = bytearray(build_batch([Record(0, 1, b"key", b"value", [("h", b"x")])] * 3)[BATCH_OVERHEAD:])
    if at >= 0:
        body[at : at + len(noise)] = noise
    else:
        body = bytearray(noise)
    outcomes = []
    for module in (decode, PLAIN):
        entries = module.HeaderCount().measure(body, count) if headers else None
        if entries is not None and entries < 0:
            outcomes.append((entries, False, 0))
            continue
        views = decode._Buffers(count, len(body), entries).views
        columns = module.Columns(views)
        outcomes.append((entries, bool(columns.add(body, count, 0, 1, 0, 0, 0, 1 << 40)), columns.row))
    assert outcomes[0] == outcomes[1]


def test_records_are_decoded_without_pandas() -> None:
    """Half a second and 40 MB of each of Spark's workers, where a scalar is made from a Python object."""
    code = """
import sys
from headrace.arrow.decode import COLUMN_NAMES, decode_fetched, schema_of
from headrace.client.reading import Fetched
from headrace.wire.records import Record, build_batch
data = bytes(build_batch([Record(value=b"v", headers=[("h", b"w")])]))
(rows,) = decode_fetched(Fetched("t", 3, 0, 0, None, memoryview(data), 0, 0, 0), schema_of(COLUMN_NAMES))
assert rows.num_rows == 1 and "pandas" not in sys.modules, rows
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
