"""Values as typed Arrow columns: a batch at a time, and what cannot be decoded told from what can.

A decoder takes many values at once and refuses them all where one is malformed; `decode_values` then splits them until
the malformed ones stand alone. So a value's fate depends on itself alone, never on its neighbours.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

JSON_ROWS: Final = 16 * 1024
"""Values given to Arrow's JSON reader at once; it takes 100,000 objects at most, and gets two a value."""
TEXT_ROWS: Final = 1 << 20
CUT_ROWS: Final = 256
"""What is refused is tried again in pieces of so many, before single values are looked for."""
_ROW: Final = re.compile(r" in row (\d+)")


class MalformedError(Exception):
    """Some of the values cannot be decoded; `row` is the first of them, where that is known."""

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason)
        self.row = row


class Decoder(Protocol):
    """How values become a column."""

    type: pa.DataType
    rows_at_once: int
    implausible: str

    def plausible(self, values: pa.Array) -> pa.Array | None:
        """Which of the values, none of them null, may be well-formed; None where all may. Cheap."""

    def decode(self, values: pa.Array) -> pa.Array:
        """The column, without a null, of values that are plausible. Raises `MalformedError` where one is malformed."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A column, null where a value was null or malformed, and the text of the malformed ones, where there are any."""

    column: pa.Array
    corrupt: pa.Array | None = None


def decode_values(values: pa.Array, decoder: Decoder) -> Decoded:
    """Decode binary values, nulls among them."""
    valid = values.is_valid() if values.null_count else None
    present = values if valid is None else values.filter(valid)
    plausible = decoder.plausible(present)
    if plausible is None:
        column = _joined(_pieces(present, decoder), decoder)
    else:
        column = _spread(_joined(_pieces(present.filter(plausible), decoder), decoder), plausible)
    corrupt: pa.Array | None = None
    if column.null_count:
        malformed = column.is_null()
        corrupt = _spread(as_text(present.filter(malformed)), malformed)
    if valid is None:
        return Decoded(column, corrupt)
    return Decoded(_spread(column, valid), None if corrupt is None else _spread(corrupt, valid))


def why_malformed(value: pa.Array, decoder: Decoder) -> str:
    """What is wrong with a malformed value, given as an array of one."""
    plausible = decoder.plausible(value)
    if plausible is not None and not plausible[0].as_py():
        return decoder.implausible
    try:
        decoder.decode(value)
    except MalformedError as error:
        return str(error)
    raise ValueError("nothing is wrong with the value")


def as_text(values: pa.Array) -> pa.Array:
    """Bytes as text, U+FFFD in place of what is no UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string())


def _spread(column: pa.Array, mask: pa.Array) -> pa.Array:
    """The items of `column` at the places where `mask` is true, in order, and null elsewhere."""
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return column.take(pc.if_else(mask, places, pa.scalar(None, pa.int64())))


def _joined(pieces: Iterator[pa.Array], decoder: Decoder) -> pa.Array:
    all_pieces = list(pieces)
    if len(all_pieces) == 1:
        return all_pieces[0]
    return pa.concat_arrays(all_pieces) if all_pieces else pa.nulls(0, decoder.type)


def _pieces(values: pa.Array, decoder: Decoder) -> Iterator[pa.Array]:
    """The column in pieces, a null in the place of each malformed value."""
    step = decoder.rows_at_once
    todo = [(start, min(start + step, len(values))) for start in range(0, len(values), step)]
    todo.reverse()
    while todo:
        start, end = todo.pop()
        try:
            yield decoder.decode(values.slice(start, end - start))
        except MalformedError as error:
            if end - start == 1:
                yield pa.nulls(1, decoder.type)
                continue
            marks = _cuts(start, end, error.row)
            todo += [(low, high) for low, high in pairwise(marks) if high > low][::-1]


def _cuts(start: int, end: int, malformed: int | None) -> list[int]:
    """Where a range that was refused is cut: each try costs what it reads, and some 0.1 ms."""
    if end - start > CUT_ROWS:
        return [*range(start, end, CUT_ROWS), end]
    if malformed:
        # what is before it is sound; where the first is malformed others may be, and eighths find them sooner
        return [start, start + malformed, start + malformed + 1, end]
    return [*range(start, end, -(-(end - start) // 8)), end]


class TextDecoder:
    """Values that are UTF-8."""

    type = pa.string()
    rows_at_once = TEXT_ROWS
    implausible = "it is not text"

    def plausible(self, values: pa.Array) -> pa.Array | None:
        return None

    def decode(self, values: pa.Array) -> pa.Array:
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            raise MalformedError("it is not UTF-8") from None


class JsonDecoder:
    """Values that are JSON objects, each of them one: fields by a schema, others ignored, missing ones null.

    Arrow's reader takes a text of objects and does not care where one value ends, so that two halves of an object in
    two values would make one row. Behind every value stands a mark, an object with a key that nobody can know: where
    every second row is a mark, every value was one object.
    """

    rows_at_once = JSON_ROWS
    implausible = "it is no JSON object"

    def __init__(self, schema: pa.StructType) -> None:
        self.type = schema
        self._read = _as_read(schema)
        self._mark = "mark-" + secrets.token_hex(8)
        self._behind = pa.scalar(b'\n{"%s":true}\n' % self._mark.encode())
        fields = [*self._read, pa.field(self._mark, pa.bool_())]
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore", newlines_in_values=False
        )

    def plausible(self, values: pa.Array) -> pa.Array | None:
        """Those that begin an object: Arrow's reader must not meet a null, or a byte order mark, in an object's place.

        It reads before the beginning of its memory for the one, and skips the other at the beginning of its text.
        """
        begun = pc.starts_with(values, pattern=b"{")
        if begun.true_count == len(values):
            return None
        begun = pc.match_substring_regex(values, pattern=r"\A[ \t\r\n]*\{")
        return None if begun.true_count == len(values) else begun

    def decode(self, values: pa.Array) -> pa.Array:
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            raise MalformedError("it is not UTF-8") from None
        rows = len(values)
        try:
            table = self._table(values)
        except pa.ArrowInvalid as error:
            found = _ROW.search(str(error))
            row = int(found[1]) // 2 if found else None
            raise MalformedError(_ROW.sub("", str(error)), row if row is not None and row < rows else None) from None
        marks = table.column(self._mark).is_valid().combine_chunks()
        if not marks.equals(_every_second(rows, b"\xaa")):
            raise MalformedError("it is not one JSON object")
        columns = table.drop_columns([self._mark]).filter(_every_second(rows, b"\x55")).combine_chunks()
        arrays = [_whole(columns.column(index)) for index in range(len(self._read))]
        column = pa.StructArray.from_arrays(arrays, fields=list(self._read))
        if self._read == self.type:
            return column
        try:
            return column.cast(self.type)
        except pa.ArrowInvalid as error:
            raise MalformedError(str(error)) from None

    def _table(self, values: pa.Array) -> pa.Table:
        text = pc.binary_join_element_wise(values, self._behind, b"")
        size = memoryview(text.buffers()[1]).cast("i")[len(text)]
        block = arrow_json.ReadOptions(use_threads=False, block_size=max(size, 1))
        data = pa.BufferReader(text.buffers()[2].slice(0, size))
        return arrow_json.read_json(data, read_options=block, parse_options=self._options)


def _every_second(rows: int, bits: bytes) -> pa.Array:
    """Twice as many booleans as there are rows, from a byte that repeats."""
    return pa.Array.from_buffers(pa.bool_(), 2 * rows, [None, pa.py_buffer(bits * (rows // 4 + 1))])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _as_read(kind: pa.DataType) -> pa.DataType:
    """A type as Arrow's JSON reader has it: dates are text there, to be cast."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    return pa.string() if pa.types.is_date(kind) else kind
