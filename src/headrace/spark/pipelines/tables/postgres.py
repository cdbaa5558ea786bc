"""A table of PostgreSQL that follows a topic: a batch goes in by COPY and two statements, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.csv

from headrace.spark.pipelines.tables.changes import column_names
from headrace.spark.pipelines.tables.connecting import Connection, connected
from headrace.spark.pipelines.tables.database import DatabaseTable
from headrace.spark.pipelines.tables.following import (
    BOOKS,
    Following,
    TableError,
    Topic,
    following_of,
    taken_over,
)
from headrace.spark.pipelines.tables.layout import JSON, Layout, type_name
from headrace.spark.pipelines.tables.places import PostgresPlace
from headrace.spark.pipelines.tables.statements import create_table, free_name, listed, matches, quoted, upsert
from headrace.spark.pipelines.tables.times import texts
from headrace.spark.schemas import TIMESTAMP

NAME_BYTES_MAX: Final = 63
"""PostgreSQL cuts longer names off."""
STAGED: Final = "headrace_staged"
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

_TYPED: Final = """
WITH RECURSIVE typed AS (
    SELECT attname::text AS name, attnum AS place, format_type(atttypid, atttypmod) AS whole,
        format_type(atttypid, NULL) AS plain, atttypid AS kind
    FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
  UNION ALL
    SELECT name, place, whole, plain, typbasetype FROM typed JOIN pg_type ON pg_type.oid = kind WHERE typtype = 'd'
)
"""
_COLUMNS: Final = f"""{_TYPED}
SELECT name, whole, plain, format_type(kind, NULL), typcategory::text FROM typed JOIN pg_type ON pg_type.oid = kind
WHERE typtype <> 'd' ORDER BY place
""".encode()
_OUT_OF_SIGHT: Final = f"""{_TYPED}
SELECT string_agg(DISTINCT quote_ident(nspname), ', ')
FROM typed JOIN pg_type ON pg_type.oid = kind JOIN pg_namespace ON pg_namespace.oid = typnamespace
WHERE NOT pg_type_is_visible(kind)
""".encode()
_UNIQUE: Final = b"""
SELECT array_agg(a.attname::text) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid
"""


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


def as_csv(rows: pa.Table) -> pa.Buffer:
    """Rows as COPY reads them: every value between quotation marks, a null as nothing."""
    table = pa.table([_as_text(column) for column in rows.columns], names=rows.column_names)
    out = pa.BufferOutputStream()
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")
    pyarrow.csv.write_csv(table, out, options)
    return out.getvalue()


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_temporal(column.type):
        return texts(column)
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def check_names(names: Iterable[str]) -> None:
    """Whether PostgreSQL can have these names. Raises `TableError`."""
    for name in names:
        if len(name.encode()) > NAME_BYTES_MAX:
            raise TableError(f"PostgreSQL takes names of up to {NAME_BYTES_MAX} bytes, and {name!r} is longer")


@dataclass(frozen=True, slots=True)
class Column:
    """The type of a column: as a cast takes it, without its size, and what it is where it is a domain.

    `category` is a letter, as pg_type has it.
    """

    full: str
    plain: str
    base: str
    category: str


def read_columns(connection: Connection, table: str) -> dict[str, Column]:
    """The columns of a table that is there, by their names, in their order; its name is quoted."""
    (oid,) = connection.execute(b"SELECT %s::regclass::oid", [table]).fetchone() or (None,)
    return _columns(connection, oid)


def _columns(connection: Connection, oid: int | None) -> dict[str, Column]:
    (hidden,) = connection.execute(_OUT_OF_SIGHT, [oid]).fetchone() or (None,)
    if hidden is not None:
        # without a type's own operators, PostgreSQL compares its values as those of another type
        wider = "set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''), %s::text), true)"
        connection.execute(f"SELECT {wider}".encode(), [hidden])
    return {name: Column(*types) for name, *types in connection.execute(_COLUMNS, [oid])}


class Catalogue:
    """What a database says of one table, which may not be there yet."""

    def __init__(self, connection: Connection, place: PostgresPlace) -> None:
        """Looks for the table along the search path, where the place names no schema."""
        check_names([place.schema or "", place.table])
        self._connection = connection
        wanted = quoted(place.table) if place.schema is None else f"{quoted(place.schema)}.{quoted(place.table)}"
        found = connection.execute(
            b"SELECT c.oid, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            b"WHERE c.oid = to_regclass(%s)",
            [wanted],
        ).fetchone()
        self.oid: int | None = None if found is None else found[0]
        self.schema: str | None
        if found is not None:
            self.schema = found[1]
        elif place.schema is not None:
            self.schema = place.schema
        else:
            (self.schema,) = connection.execute(b"SELECT current_schema()").fetchone() or (None,)
        if self.schema is None:
            raise TableError(f"{place}: the search path has no schema to make tables in; write #SCHEMA.TABLE")

    def columns(self) -> dict[str, Column]:
        """The table's columns by their names, in their order."""
        return _columns(self._connection, self.oid)

    def is_unique(self, names: list[str]) -> bool:
        """Whether these columns, in any order, have a unique index of their own."""
        return any(set(row[0]) == set(names) for row in self._connection.execute(_UNIQUE, [self.oid]))


class PostgresTable(DatabaseTable[PostgresPlace, Connection]):
    """A `following.Target` in PostgreSQL. Connects for each batch, so that nothing is held while there is none."""

    takes_nul = False

    def __init__(self, place: PostgresPlace, layout: Layout) -> None:
        super().__init__(place, layout)
        self._table = ""
        self._books = ""

    def open(self, topic: Topic, run: str) -> None:
        self._run = run
        with self._transaction() as connection:
            # two runs that begin at once would both make what is missing
            connection.execute(b"SELECT pg_advisory_xact_lock(hashtext(%s))", [BOOKS])
            catalogue = Catalogue(connection, self._place)
            assert catalogue.schema is not None
            self._table = f"{quoted(catalogue.schema)}.{quoted(self._place.table)}"
            self._books = f"{quoted(catalogue.schema)}.{quoted(BOOKS)}"
            books = f"CREATE TABLE IF NOT EXISTS {self._books} (table_name text PRIMARY KEY, following text NOT NULL)"
            connection.execute(books.encode())
            known = self._following(connection)
            if catalogue.oid is None:
                if known is not None:
                    raise self._gone()
                check_names(self._layout.names)
                connection.execute(create_table(self._table, self._layout, made_type).encode())
            else:
                self._check(catalogue)
            self._keep(connection, taken_over(known, topic, run, str(self._place)))

    def _check(self, catalogue: Catalogue) -> None:
        """Whether the table takes our rows."""
        there = catalogue.columns()
        for field in self._layout.fields:
            if field.name not in there:
                raise TableError(f"{self._place} has no column {field.name!r}; it has {', '.join(there)}")
            wanted = fitting_types(field.type)
            if there[field.name].plain not in wanted:
                kind = f"{there[field.name].plain}, and {type_name(field.type)} needs {' or '.join(wanted)}"
                raise TableError(f"{self._place}: the column {field.name!r} is {kind}")
        if not catalogue.is_unique(self._layout.key_names):
            raise self._not_unique()

    def _transaction(self) -> AbstractContextManager[Connection]:
        return connected(self._place, writes=True)

    def _following(self, connection: Connection) -> Following | None:
        """What the table knows of its topic, locked until the transaction ends."""
        query = f"SELECT following FROM {_in_query(self._books)} WHERE table_name = %s FOR UPDATE"
        found = connection.execute(query.encode(), [self._place.table]).fetchone()
        return None if found is None else following_of(found[0])

    def _keep(self, connection: Connection, following: Following) -> None:
        query = (
            f"INSERT INTO {_in_query(self._books)} VALUES (%s, %s) "
            "ON CONFLICT (table_name) DO UPDATE SET following = excluded.following"
        )
        connection.execute(query.encode(), [self._place.table, following.text()])

    def _write(self, connection: Connection, rows: pa.Table) -> None:
        """Upsert and delete rows, each key once."""
        names = column_names(self._layout)
        connection.execute(staging(self._table, self._layout).encode())
        with connection.cursor() as cursor:
            with cursor.copy(f"COPY {STAGED} FROM STDIN (FORMAT csv)".encode()) as copy:
                copy.write(as_csv(rows.select(["deleted", *names])))
        for statement in applying(self._table, self._layout):
            connection.execute(statement.encode())


def _in_query(name: str) -> str:
    """A quoted name in a statement with parameters."""
    return name.replace("%", "%%")


def staging(table: str, layout: Layout) -> str:
    """The statement that makes the table that a batch is copied into, of the types of the real one."""
    names = zip(layout.names, column_names(layout), strict=True)
    columns = ", ".join(f"{quoted(real)} AS {name}" for real, name in names)
    return f"CREATE TEMP TABLE {STAGED} ON COMMIT DROP AS SELECT false AS deleted, {columns} FROM {table} WITH NO DATA"


def applying(table: str, layout: Layout) -> list[str]:
    """Statements that bring what was copied into the real table."""
    names = column_names(layout)
    target = free_name("target", layout.names)
    staged = free_name("staged", layout.names)
    keys = [f"{staged}.{name}" for name in names[: len(layout.key)]]
    gone = f"{staged}.deleted AND {matches(layout.key_names, keys, target)}"
    return [
        upsert(table, layout, f"SELECT {listed(names)} FROM {STAGED} WHERE NOT deleted"),
        f"DELETE FROM {table} {target} USING {STAGED} {staged} WHERE {gone}",
    ]
