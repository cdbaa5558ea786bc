"""Records as changes of a table, a batch at a time: keys and values read by the layout, and the reason for each
unreadable one.

Arrow's JSON reader takes most values at once. What it refuses, and columns of any JSON or of nested values that the
table takes as JSON, are read value by value, as `row_format` says; a value's fate depends on itself alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrow.decode import HEADERS_FIELD
from headrace.spark.json_maps import json_decoder
from headrace_pipelines.tables.changes import (
    DELETED,
    column_names,
    schema_of,
    stored_type,
)
from headrace_pipelines.tables.layout import JSON, Layout
from headrace_pipelines.tables.row_format import (
    Limits,
    Read,
    UnfitError,
    fields_of,
    reader,
    text_item,
    writer,
)

REASON: Final = pa.field("reason", pa.string())
"""Why a record is unreadable; null where it is not."""
KEY: Final = pa.field("key", pa.binary())
VALUE: Final = pa.field("value", pa.binary())
LETTER: Final = (REASON, KEY, VALUE, HEADERS_FIELD)
"""The kept parts of an unreadable record; the reason is null for readable ones, and the rest if it is not wanted."""

NO_LIMITS: Final = Limits()

Reasons = dict[int, str]
"""By row, why it is unreadable."""


@dataclass(frozen=True, slots=True)
class RecordDecoder:
    """How the records of a topic are read; a target says how it takes nested values, and its limits."""

    layout: Layout
    nested_as_json: bool = False
    limits: Limits = NO_LIMITS
    with_letters: bool = False
    """Whether unreadable records are kept whole, their headers too; else their reason alone."""
    with_all: bool = False
    """Whether the readable ones are too, for a table that may refuse them."""

    @property
    def schema(self) -> pa.Schema:
        """Decoded records: the columns of `changes.schema_of` from `deleted` on, and the unreadable ones."""
        changes = schema_of(self.layout, nested_as_json=self.nested_as_json)
        columns = [changes.field(name) for name in (DELETED.name, *column_names(self.layout))]
        return pa.schema([*columns, *(LETTER if self.with_letters else LETTER[:1])])

    def decode(self, keys: pa.Array, values: pa.Array, headers: pa.Array | None = None) -> pa.RecordBatch:
        """What records do to a table, row by row; those with a reason have nulls in their columns.

        A value that is null deletes. The headers are there where unreadable records are kept.
        """
        keys, values = keys.cast(pa.binary()), values.cast(pa.binary())
        reasons: Reasons = dict.fromkeys(_rows_where(keys.is_null()), "it has no key")
        columns = self._keys(keys, reasons) + self._columns(values, list(self.layout.value), reasons)
        for name, column in zip(self.layout.key_names, columns, strict=False):
            for row in _rows_where(column.is_null()):
                reasons.setdefault(row, f"its key has no {name!r}")
        made = {DELETED.name: values.is_null(), **dict(zip(column_names(self.layout), columns, strict=True))}
        sound: pa.Array | None = None
        if reasons:
            sound = pa.array([row not in reasons for row in range(len(keys))], pa.bool_())
            for name in column_names(self.layout):
                made[name] = _where(sound, made[name])
        made[REASON.name] = pa.array([reasons.get(row) for row in range(len(keys))], REASON.type)
        if self.with_letters:
            unsound = pa.repeat(pa.scalar(False), len(keys)) if sound is None else pc.invert(sound)
            kept = {KEY.name: keys, VALUE.name: values, HEADERS_FIELD.name: headers}
            made |= kept if self.with_all else {name: _where(unsound, column) for name, column in kept.items()}
        schema = self.schema
        return pa.RecordBatch.from_arrays([made[field.name].cast(field.type) for field in schema], schema=schema)

    def _keys(self, keys: pa.Array, reasons: Reasons) -> list[pa.Array]:
        if self.layout.key_format == "json":
            columns = self._columns(keys, list(self.layout.key), reasons)
        else:
            columns = [self._text_keys(keys, self.layout.key.field(0), reasons)]
        # two zeros are one key to a database
        return [pc.add(column, 0.0) if pa.types.is_floating(column.type) else column for column in columns]

    def _text_keys(self, keys: pa.Array, field: pa.Field, reasons: Reasons) -> pa.Array:
        if pa.types.is_integer(field.type) or (field.type == pa.string() and self.limits.nul):
            try:
                return keys.cast(pa.string()).cast(field.type)
            except pa.ArrowInvalid:
                # one of them is none, and which one is found out below
                pass
        read = reader(field.type, self.limits)
        found: list[Any] = []
        for row, key in enumerate(keys.to_pylist()):
            item = None
            if key is not None:
                try:
                    item = read(text_item(key.decode(), field.type))
                except (UnfitError, UnicodeDecodeError) as error:
                    reasons[row] = f"its key, {field.name!r}: {_why(error)}"
            found.append(item)
        return pa.array(found, field.type)

    def _columns(self, values: pa.Array, fields: list[pa.Field], reasons: Reasons) -> list[pa.Array]:
        """The columns of JSON objects; null where a value is null or is none."""
        there = values.is_valid()
        texts = values.filter(there)
        rows = _rows_where(there)
        by_arrow = not any(
            field.type == JSON or (self.nested_as_json and pa.types.is_nested(field.type)) for field in fields
        )
        if not by_arrow:
            return _put(self._one_by_one(texts.to_pylist(), rows, fields, reasons), rows, len(values))
        column = json_decoder(pa.struct(fields)).decode(texts)
        sound = column.is_valid()
        if not self.limits.nul:
            for place, field in enumerate(fields):
                if field.type == pa.string():
                    has_nul = pc.match_substring(pc.struct_field(column, [place]), "\0")
                    sound = pc.and_(sound, pc.invert(pc.fill_null(has_nul, False)))
        columns = [pc.struct_field(column, [place]) for place in range(len(fields))]
        if sound.true_count == len(rows):
            return _put(columns, rows, len(values))
        left = pc.invert(sound)
        refused = [row for row, is_left in zip(rows, left.to_pylist(), strict=True) if is_left]
        again = self._one_by_one(texts.filter(left).to_pylist(), refused, fields, reasons)
        taken = [row for row, is_left in zip(rows, left.to_pylist(), strict=True) if not is_left]
        both = [pa.concat_arrays([first.filter(sound), second]) for first, second in zip(columns, again, strict=True)]
        return _put(both, taken + refused, len(values))

    def _one_by_one(
        self, texts: Sequence[bytes], rows: Sequence[int], fields: list[pa.Field], reasons: Reasons
    ) -> list[pa.Array]:
        """The same, a value at a time; `rows` are their indexes."""
        kinds = {field.name: field.type for field in fields}
        reads = [self._read(field.type) for field in fields]
        found: list[list[Any]] = [[] for _ in fields]
        for row, text in zip(rows, texts, strict=True):
            items: list[Any] = [None] * len(fields)
            try:
                item_fields = fields_of(text.decode(), kinds)
                for place, (field, read) in enumerate(zip(fields, reads, strict=True)):
                    item = item_fields.get(field.name)
                    if item is not None:
                        try:
                            items[place] = read(item)
                        except UnfitError as error:
                            raise UnfitError(f"{field.name!r}: {error}") from None
            except (UnfitError, UnicodeDecodeError) as error:
                reasons.setdefault(row, _why(error))
                items = [None] * len(fields)
            for column, item in zip(found, items, strict=True):
                column.append(item)
        kinds_stored = [stored_type(field.type, nested_as_json=self.nested_as_json) for field in fields]
        return [pa.array(column, kind) for column, kind in zip(found, kinds_stored, strict=True)]

    def _read(self, kind: pa.DataType) -> Read:
        read = reader(kind, self.limits)
        if not (self.nested_as_json and pa.types.is_nested(kind)):
            return read
        write = writer(kind)
        return lambda item: write(read(item))


def _why(error: UnfitError | UnicodeDecodeError) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _rows_where(mask: pa.Array) -> list[int]:
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found


def _where(mask: pa.Array, column: pa.Array) -> pa.Array:
    """The column with nulls where the mask is false."""
    rows = pa.array(range(len(column)), pa.int64())
    return column.take(pc.if_else(mask, rows, pa.scalar(None, pa.int64())))


def _put(columns: list[pa.Array], rows: list[int], count: int) -> list[pa.Array]:
    """Columns of so many rows, with the items that these have at those places and nulls elsewhere."""
    if rows == list(range(count)):
        return columns
    places: list[int | None] = [None] * count
    for place, row in enumerate(rows):
        places[row] = place
    order = pa.array(places, pa.int64())
    return [column.take(order) for column in columns]
