"""How a table of PostgreSQL takes a layout: which types fit, which may hold a value only in part, how rows go in.

A batch goes in at once if nothing in the table looks at a row as it is for a moment. If something does, such as a
check, records of different keys go in at once; if rows are compared with each other, as by another unique index,
upserts or deletes of different keys; and if even that may make a difference, as for triggers, a record alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.schemas import TIMESTAMP
from headrace_pipelines.tables.catalogue import Column, Index, read_all
from headrace_pipelines.tables.changes import DELETED, column_names
from headrace_pipelines.tables.connecting import Connection
from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.layout import JSON, Layout, type_name
from headrace_pipelines.tables.places import PostgresPlace

Step = Literal["batch", "keys", "run", "record"]
"""What goes in at once: all, records of different keys, upserts or deletes of different keys, or a record."""
INDEXED_BYTES: Final = 2000
"""Less than what fits into a row of an index, with any separators and encoding."""
_INTEGERS: Final = ("smallint", "integer", "bigint", "numeric")
_FITTING: Final[dict[pa.DataType, tuple[str, ...]]] = {
    pa.bool_(): ("boolean",),
    pa.int8(): _INTEGERS,
    pa.int16(): _INTEGERS,
    pa.int32(): _INTEGERS[1:],
    pa.int64(): _INTEGERS[2:],
    pa.float32(): ("real", "double precision"),
    pa.float64(): ("double precision",),
    pa.string(): ("text", "character varying", "character", "citext", "uuid"),
    pa.binary(): ("bytea",),
    JSON: ("jsonb", "json"),
    pa.date32(): ("date",),
    TIMESTAMP: ("timestamp with time zone",),
    pa.timestamp("us"): ("timestamp without time zone",),
}
"""The types of columns that take a value of ours; the first one is made."""
_DECIMAL: Final = ("numeric",)
_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_NUMERIC: Final = re.compile(r"numeric\((\d+),(-?\d+)\)")
_PRECISION: Final = re.compile(r"timestamp\([0-5]\) ")
_DAYS: Final = (-719_162, 2_932_897)
"""The years 1 to 9999, which every column of dates or times has."""
_WHOLE_TEXTS: Final = ("UTF8", "SQL_ASCII")
"""Encodings of databases that keep our texts as they are."""


def fitting_types(kind: pa.DataType) -> tuple[str, ...]:
    """The types of PostgreSQL, without their sizes, that take a value of this type."""
    if pa.types.is_nested(kind):
        return _FITTING[JSON]
    return _DECIMAL if pa.types.is_decimal(kind) else _FITTING[kind]


def made_type(kind: pa.DataType) -> str:
    """The type of a column that is made for this type."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return fitting_types(kind)[0]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a text that is staged becomes a value of a column: SQL, in which `{}` is the text.

    `exact` is SQL that is true where the value is all of the text, None where it always is. A text that is staged as
    bytes is in UTF-8, in a database of another encoding.
    """

    value: str
    exact: str | None
    as_bytes: bool = False


def conversion(kind: pa.DataType, column: Column, *, encoded: bool) -> Conversion:
    """How texts of a type of ours become values of the column; `encoded` is a database with an encoding of its own."""
    full, is_text = column.full, column.plain in ("character varying", "character") or kind == pa.string()
    if encoded and (kind in (pa.string(), JSON) or pa.types.is_nested(kind)):
        text = "convert_from({}, 'UTF8')"
        exact = "convert_to(" + text + ", 'UTF8') = {}"
        if column.plain in ("character varying", "character"):
            exact += f' AND (({text}::{full})::text) COLLATE "C" = ({text}) COLLATE "C"'
        return Conversion(f"{text}::{full}", exact, as_bytes=True)
    value = "{}::" + full
    if _is_narrower(kind, full):
        wide = "numeric" if column.plain == "numeric" else column.plain
        return Conversion(
            value if wide != "numeric" else "{}::numeric::" + full, f"{{}}::{wide}::{full} = {{}}::{wide}"
        )
    if is_text and (column.plain == "character" or "(" in full):
        return Conversion(value, "({}::" + full + ')::text COLLATE "C" = {} COLLATE "C"')
    return Conversion(value, None)


def _is_narrower(kind: pa.DataType, full: str) -> bool:
    """Whether a numeric or a timestamp has fewer digits than values of the type."""
    if (found := _NUMERIC.fullmatch(full)) is not None:
        digits, scale = (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (_DIGITS[kind], 0)
        return int(found[2]) < scale or int(found[1]) - int(found[2]) < digits - scale
    return _PRECISION.match(full) is not None


@dataclass(frozen=True, slots=True)
class Fit:
    """A table that takes the rows of a layout, as it is during a batch.

    `required` are our columns that take no null, `sized` those in an index that a large value does not fit into.
    """

    layout: Layout
    conversions: tuple[Conversion, ...]
    types: tuple[str, ...]
    step: Step
    required: tuple[str, ...]
    sized: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether each value of our types is one of the table's, so that rows are copied as they are."""
        return all(conversion.exact is None for conversion in self.conversions)

    def hides(self, rows: pa.Table) -> bool:
        """Whether a row may be left out for a later one of its key: whether surely none of the batch is refused."""
        if not self.exact or self.step_of(rows) != "batch":
            return False
        names = column_names(self.layout)
        return all(
            _is_sure(field.type, kind, rows[name])
            for field, kind, name in zip(self.layout.fields, self.types, names, strict=True)
        )

    def step_of(self, rows: pa.Table) -> Step:
        """What of a batch goes in at once: less, where a record may be refused that a later one would hide."""
        if self.step != "batch":
            return self.step
        there = rows.filter(pc.invert(rows[DELETED.name]))
        bytes_of = [pc.max(pc.binary_length(there[name])).as_py() or 0 for name in self.sized]
        if sum(bytes_of) > INDEXED_BYTES or any(there[name].null_count for name in self.required):
            return "keys"
        return "batch"


def fit(connection: Connection, table: str, place: PostgresPlace, layout: Layout) -> Fit:
    """How the table, by its quoted name, takes rows. Raises `TableError` where it does not."""
    there, watched = read_all(connection, table, layout.key_names)
    for field in layout.fields:
        if field.name not in there:
            raise TableError(f"{place} has no column {field.name!r}; it has {', '.join(there)}")
        wanted = fitting_types(field.type)
        if there[field.name].plain not in wanted:
            kind = f"{there[field.name].plain}, and {type_name(field.type)} needs {' or '.join(wanted)}"
            raise TableError(f"{place}: the column {field.name!r} is {kind}")
        if there[field.name].made:
            raise TableError(f"{place}: PostgreSQL makes the values of the column {field.name!r} itself")
    if watched.rules:
        raise TableError(f"{place} has rules, which would do something else with rows; the run needs a table without")
    ours = layout.names
    for name, column in there.items():
        if name not in ours and column.required and not (column.filled or column.made or watched.triggers):
            raise TableError(f"{place}: the column {name!r} is NOT NULL without a default, so no row can be made")
    indexes = watched.indexes
    _check_keys(indexes, place, layout)
    encoding = connection.info.parameter_status("server_encoding")
    columns = [there[name] for name in ours]
    encoded = encoding not in _WHOLE_TEXTS
    conversions = [
        conversion(f.type, column, encoded=encoded) for f, column in zip(layout.fields, columns, strict=True)
    ]
    short = dict(zip(ours, column_names(layout), strict=True))
    indexed = {name for index in indexes for name in index.stored}
    step = _step(indexes, layout, loose=any(_is_loose(f.type, there[f.name]) for f in layout.key))
    if watched.triggers or watched.entangled:
        step = "record"
    elif watched.checked and step == "batch":
        step = "keys"
    return Fit(
        layout=layout,
        conversions=tuple(conversions),
        types=tuple(column.full for column in columns),
        step=step,
        required=tuple(short[field.name] for field in layout.value if there[field.name].required),
        sized=tuple(short[f.name] for f in layout.fields if f.name in indexed and _varies(f.type)),
    )


def _check_keys(indexes: Sequence[Index], place: PostgresPlace, layout: Layout) -> None:
    """Whether rows are found by the key. Raises `TableError`."""
    keys = ", ".join(layout.key_names)
    found = [index for index in indexes if index.is_key(layout.key_names)]
    usable = [index for index in found if index.valid and index.immediate]
    if not usable:
        deferrable = "; a deferrable one does not do" if any(not index.immediate for index in found) else ""
        raise TableError(f"{place} has no primary key or unique index of {keys}; the run finds rows by it{deferrable}")
    if not all(index.same for index in found):
        what = f"a unique index of {keys} with another collation or operator class than the columns have"
        raise TableError(f"{place} has {what}, so that keys are equal in one and not in the other")


def _step(indexes: Sequence[Index], layout: Layout, *, loose: bool) -> Step:
    """What goes in at once, as far as keys and indexes are concerned."""
    others = [index for index in indexes if not index.is_key(layout.key_names)]
    if any((index.unique or index.exclusive) and not index.immediate for index in indexes):
        return "record"
    if any(index.unique or index.exclusive for index in others):
        return "run"
    if loose or any(not index.plain or index.method not in ("btree", "hash") for index in others):
        return "keys"
    return "batch"


def _is_loose(kind: pa.DataType, column: Column) -> bool:
    """Whether two values that are not the same may be equal, such as -0.0 and 0.0: the first one is a row's key."""
    return column.loose or column.base == "citext" or bool(pa.types.is_floating(kind))


def _is_sure(kind: pa.DataType, column: str, values: pa.ChunkedArray) -> bool:
    """Whether a column, which holds all values of the type exactly, surely takes these ones."""
    if kind == JSON or pa.types.is_nested(kind):
        # neither does PostgreSQL's parser run out of its stack
        return bool((pc.max(pc.binary_length(values)).as_py() or 0) <= INDEXED_BYTES)
    if pa.types.is_temporal(kind):
        ends = pc.min_max(values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()))
        day = 1 if pa.types.is_date32(kind) else 86_400_000_000
        least, most = ends["min"].as_py(), ends["max"].as_py()
        return least is None or bool(_DAYS[0] * day <= least and most < _DAYS[1] * day)
    return column != "uuid"


def _varies(kind: pa.DataType) -> bool:
    return bool(kind in (pa.string(), pa.binary(), JSON) or pa.types.is_nested(kind))
