"""JSON values: Arrow's reader takes many at once, and what it refuses is sifted value by value.

Arrow's reader alone decides which values are malformed. A try of it costs some 0.05 ms and ends at the first malformed
value, so where there are many of them, those that it certainly refuses are found by Python's own parser first.
"""

from __future__ import annotations

import json
import re
import secrets
from binascii import a2b_base64
from collections import Counter
from collections.abc import Callable
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from headrace.spark.schemas import list_of
from headrace.spark.values import CUT_ROWS, MalformedError, as_text, in_pieces, joined, spread

JSON_ROWS: Final = 16 * 1024
"""Values given to Arrow's JSON reader at once; it takes 100,000 objects at most, and gets two a value."""
SWARM: Final = 3
NEAR_ROWS: Final = 32
"""Malformed values come in swarms: after so many that are so near, values are screened before they are tried."""
_ROW: Final = re.compile(r" in row (\d+)")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
"""How every date and time begins that Arrow reads."""


class Repeating(dict[str, Any]):
    """An object of which some keys are there twice."""

    repeated: frozenset[str]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    times = Counter(name for name, _ in pairs)
    repeating = Repeating(found)
    repeating.repeated = frozenset(name for name, count in times.items() if count > 1)
    return repeating


_PARSE: Final = json.JSONDecoder(strict=False, object_pairs_hook=_object).decode

Refused = Callable[[Any], bool]
"""Whether Arrow certainly refuses what Python's parser gives for a field, which is not None."""


class JsonDecoder:
    """Values that are JSON objects, each of them one: fields by a schema, others ignored, missing ones null.

    A map is read from a list of its pairs, `[{"key": ..., "value": ...}]`: `json_maps` writes objects so.

    Arrow's reader takes a text of objects and does not care where one value ends, so that two halves of an object in
    two values would make one row. Every value is followed by a mark, an object with an unguessable key: if every second
    row is a mark, every value was one object.
    """

    def __init__(self, schema: pa.StructType) -> None:
        self.type = schema
        self.rows_at_once = JSON_ROWS
        self._read = _as_read(schema)
        self._mark = "mark-" + secrets.token_hex(8)
        self._behind = pa.scalar(b'\n{"%s":true}\n' % self._mark.encode())
        fields = [*self._read, pa.field(self._mark, pa.bool_())]
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore", newlines_in_values=False
        )
        self._decimals = [place for place, field in enumerate(schema) if _has_decimal(field.type)]
        self._refused = _refused(schema)

    def decode(self, values: pa.Array) -> pa.Array:
        begun = _begun(values)
        if begun is not None:
            values = values.filter(begun)
        found: list[pa.Array] = []
        for start in range(0, len(values), self.rows_at_once):
            piece = values.slice(start, self.rows_at_once)
            try:
                found.append(self._column(piece))
            except MalformedError:
                found.append(self._sifted(piece))
        column = joined(found, self.type)
        return column if begun is None else spread(column, begun)

    def sound(self, values: pa.Array) -> pa.Array:
        """The column of values, at most `JSON_ROWS`, of which none is malformed; else raises `MalformedError`."""
        if _begun(values) is not None:
            raise MalformedError("it is not a JSON object")
        return self._column(values)

    def why(self, value: pa.Array) -> str:
        if _begun(value) is not None:
            return "it is not a JSON object"
        try:
            self._column(value)
        except MalformedError as error:
            return str(error)
        raise ValueError("nothing is wrong with the value")

    def shown(self, values: pa.Array) -> pa.Array:
        return as_text(values)

    def _sifted(self, values: pa.Array) -> pa.Array:
        """The column of values of which some are malformed."""
        found: list[pa.Array] = []
        at = 0
        swarm = 0
        while at < len(values):
            piece = values.slice(at, CUT_ROWS)
            malformed: int | None = None
            if swarm < SWARM:
                try:
                    found.append(self._column(piece))
                except MalformedError as error:
                    malformed = error.row
                else:
                    at += len(piece)
                    swarm = 0
                    continue
            if malformed is None:
                found.append(self._screened(piece))
                at += len(piece)
                swarm = found[-1].null_count
                continue
            # what Arrow says of a row may be of a later one, where a value was more than one object
            before, this = piece.slice(0, malformed), piece.slice(malformed, 1)
            found += [self._tried(before), self._screened(this)]
            at += malformed + 1
            swarm = swarm + 1 if malformed < NEAR_ROWS else 1
        return joined(found, self.type)

    def _tried(self, values: pa.Array) -> pa.Array:
        try:
            return self._column(values)
        except MalformedError:
            return self._screened(values)

    def _screened(self, values: pa.Array) -> pa.Array:
        """The same, value by value at first."""
        sound = pa.array([not self._certainly_malformed(value) for value in values.to_pylist()], pa.bool_())
        rest = values.filter(sound)
        return spread(in_pieces(len(rest), CUT_ROWS, self._some_of(rest), self.type), sound)

    def _some_of(self, values: pa.Array) -> Callable[[int, int], pa.Array]:
        return lambda low, high: self._column(values.slice(low, high - low))

    def _certainly_malformed(self, value: bytes) -> bool:
        """Whether Arrow's reader would refuse the value; False where that is not certain."""
        try:
            item = _PARSE(value.decode())
        except UnicodeDecodeError:
            return True
        except json.JSONDecodeError:
            # what Arrow reads as a number, and Python does not
            return b"Inf" not in value
        except (ValueError, RecursionError):
            return False
        return self._refused(item)

    def _column(self, values: pa.Array) -> pa.Array:
        """The column, without a null, of values that begin objects. Raises `MalformedError` where one is malformed."""
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
        if not marks.equals(repeated(2 * rows, b"\xaa")):
            raise MalformedError("it is not one JSON object")
        columns = table.drop_columns([self._mark]).filter(repeated(2 * rows, b"\x55")).combine_chunks()
        arrays = [_whole(columns.column(index)) for index in range(len(self._read))]
        for place in self._decimals:
            try:
                # Arrow's reader counts the digits that a number is written with, before it adds those of the scale
                arrays[place].validate(full=True)
            except pa.ArrowInvalid:
                raise MalformedError("a number has more digits than its decimal type") from None
        column = pa.StructArray.from_arrays(arrays, fields=list(self._read))
        return _settled(column, self.type)

    def _table(self, values: pa.Array) -> pa.Table:
        text = pc.binary_join_element_wise(values, self._behind, b"")
        size = memoryview(text.buffers()[1]).cast("i")[len(text)]
        block = arrow_json.ReadOptions(use_threads=False, block_size=max(size, 1))
        data = pa.BufferReader(text.buffers()[2].slice(0, size))
        # of one block: the reader of a stream begins three times as fast as the reader of a table
        return arrow_json.open_json(data, read_options=block, parse_options=self._options).read_all()


def _begun(values: pa.Array) -> pa.Array | None:
    """Which values begin an object, None where all do.

    In an object's place Arrow's reader must meet neither a null, for which it reads before the beginning of its memory,
    nor a byte order mark, which it skips at the beginning of its text.
    """
    begun = pc.starts_with(values, pattern=b"{")
    if begun.true_count == len(values):
        return None
    begun = pc.match_substring_regex(values, pattern=r"\A[ \t\r\n]*\{")
    return None if begun.true_count == len(values) else begun


def repeated(count: int, bits: bytes) -> pa.Array:
    """So many booleans, from a byte that repeats."""
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits * (count // 8 + 1))])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _as_read(kind: pa.DataType) -> pa.DataType:
    """A type as Arrow's JSON reader has it: dates and bytes are text there, and a map is a list of its pairs."""
    if pa.types.is_map(kind):
        return _as_read(_pairs(kind))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    return pa.string() if pa.types.is_date(kind) or pa.types.is_binary(kind) else kind


def _has_decimal(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_decimal(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


def _pairs(kind: pa.MapType) -> pa.ListType:
    return list_of(pa.struct([kind.key_field.with_nullable(True), kind.item_field]))


def _settled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """What was read, as the type that it is to have. Raises `MalformedError`."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        fields = [_settled(column.field(place), field.type) for place, field in enumerate(kind)]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        if pa.types.is_map(kind):
            # a map lies in memory as the list of its pairs does
            pairs = _settled(column.values, _pairs(kind).value_type)
            items = pa.StructArray.from_arrays(pairs.flatten(), fields=[kind.key_field, kind.item_field])
        else:
            items = _settled(column.values, kind.value_type)
        buffers = column.buffers()[:2]
        return pa.Array.from_buffers(kind, len(column), buffers, column.null_count, column.offset, [items])
    if pa.types.is_binary(kind):
        return _from_base64(column)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise MalformedError(str(error)) from None


def _from_base64(texts: pa.Array) -> pa.Array:
    """Bytes out of Base64, as Spark's `from_json` has them: padded, white space passed over."""
    try:
        found = [
            None if text is None else a2b_base64("".join(text.split()), strict_mode=True) for text in texts.to_pylist()
        ]
    except ValueError:
        raise MalformedError("bytes are not in Base64") from None
    return pa.array(found, pa.binary())


def _refused(kind: pa.DataType) -> Refused:
    """The check of a field of this type."""
    if pa.types.is_map(kind):
        return _refused(_pairs(kind))
    if pa.types.is_struct(kind):
        return _struct_refused([(field.name, _refused(field.type)) for field in kind])
    if pa.types.is_list(kind):
        inner = _refused(kind.value_type)
        return lambda item: type(item) is not list or any(each is not None and inner(each) for each in item)
    if pa.types.is_boolean(kind):
        return lambda item: type(item) is not bool
    if pa.types.is_integer(kind):
        end = 1 << (kind.bit_width - 1)
        return lambda item: type(item) is not int or not -end <= item < end
    if pa.types.is_floating(kind):
        return lambda item: type(item) not in (int, float)
    if pa.types.is_decimal(kind):
        return lambda item: type(item) in (bool, list, dict)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return lambda item: type(item) is not str or not _begins_with_a_day(item)
    return lambda item: type(item) is not str


def _begins_with_a_day(item: str) -> bool:
    if _DAY.match(item) is None:
        return False
    try:
        date.fromisoformat(item[:10])
    except ValueError:
        # a year that Python has not
        return item.startswith("0000")
    return True


def _struct_refused(fields: list[tuple[str, Refused]]) -> Refused:
    names = {name for name, _ in fields}

    def refused(item: Any) -> bool:
        if not isinstance(item, dict):
            return True
        if type(item) is Repeating and not names.isdisjoint(item.repeated):
            return True
        for name, inner in fields:
            found = item.get(name)
            if found is not None and inner(found):
                return True
        return False

    return refused
