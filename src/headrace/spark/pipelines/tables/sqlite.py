"""A table of SQLite that follows a topic: a batch is one transaction of the driver, the only writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.pipelines.tables.changes import column_names
from headrace.spark.pipelines.tables.database import DatabaseTable
from headrace.spark.pipelines.tables.following import (
    BOOKS,
    Following,
    TableError,
    Topic,
    following_of,
    taken_over,
)
from headrace.spark.pipelines.tables.layout import JSON
from headrace.spark.pipelines.tables.places import SqlitePlace
from headrace.spark.pipelines.tables.row_format import NAN
from headrace.spark.pipelines.tables.statements import create_table, matches, quoted, upsert
from headrace.spark.pipelines.tables.times import texts

BOOLEAN: Final = "BOOLEAN"
JSON_TEXT: Final = "JSON TEXT"
"""With TEXT in it, for what is JSON alone is kept as a number where it looks like one."""
BUSY_S: Final = 30.0
"""How long a batch waits for another writer of the file."""


def made_type(kind: pa.DataType) -> str:
    """The type of a column that is made for this type; what SQLite has no type for is text.

    SQLite takes any word for a type. Whoever reads the table again knows truths and JSON by these.
    """
    if pa.types.is_boolean(kind):
        return BOOLEAN
    if pa.types.is_integer(kind):
        return "INTEGER"
    if pa.types.is_binary(kind):
        return "BLOB"
    if kind == JSON or pa.types.is_nested(kind):
        return JSON_TEXT
    return "REAL" if pa.types.is_floating(kind) else "TEXT"


@contextmanager
def connected(place: SqlitePlace, begin: str) -> Iterator[sqlite3.Connection]:
    """A connection and a transaction, which ends with the block. Raises `TableError` for what the database refuses."""
    try:
        connection = sqlite3.connect(place.path, timeout=BUSY_S, isolation_level=None)
        try:
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        finally:
            # what was not committed goes with it
            connection.close()
    except sqlite3.Error as error:
        raise TableError(f"{place}: {error}") from None


def columns_of(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """The names of a table's columns and what they were declared as; none where there is no table."""
    return dict(connection.execute("SELECT name, type FROM pragma_table_info(?)", [table]).fetchall())


def is_unique(connection: sqlite3.Connection, table: str, names: list[str]) -> bool:
    """Whether these columns, in any order and whatever case, are the primary key or have a unique index."""
    wanted = {name.lower() for name in names}
    primary = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", [table])
    if {row[0].lower() for row in primary} == wanted:
        return True
    indexes = connection.execute('SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', [table])
    for (index,) in indexes.fetchall():
        indexed = [row[0] for row in connection.execute("SELECT name FROM pragma_index_info(?)", [index])]
        if None not in indexed and {name.lower() for name in indexed} == wanted:
            return True
    return False


class SqliteTable(DatabaseTable[SqlitePlace, sqlite3.Connection]):
    """A `following.Target` in SQLite."""

    takes_nul = True

    def open(self, topic: Topic, run: str) -> None:
        self._run = run
        with self._transaction() as connection:
            books = "table_name TEXT PRIMARY KEY COLLATE NOCASE, following TEXT NOT NULL"
            connection.execute(f"CREATE TABLE IF NOT EXISTS {BOOKS} ({books})")
            known = self._following(connection)
            there = columns_of(connection, self._place.table)
            if there:
                self._check(connection, there)
            elif known is not None:
                raise self._gone()
            else:
                connection.execute(create_table(quoted(self._place.table), self._layout, made_type))
            self._keep(connection, taken_over(known, topic, run, str(self._place)))

    def _check(self, connection: sqlite3.Connection, there: Iterable[str]) -> None:
        """Whether the table takes our rows; types are no matter, SQLite takes any value in any column."""
        lower = [name.lower() for name in there]
        for name in self._layout.names:
            if name.lower() not in lower:
                raise TableError(f"{self._place} has no column {name!r}; it has {', '.join(there)}")
        if not is_unique(connection, self._place.table, self._layout.key_names):
            raise self._not_unique()

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return connected(self._place, "BEGIN IMMEDIATE")

    def _following(self, connection: sqlite3.Connection) -> Following | None:
        found = connection.execute(f"SELECT following FROM {BOOKS} WHERE table_name = ?", [self._place.table])
        row = found.fetchone()
        return None if row is None else following_of(row[0])

    def _keep(self, connection: sqlite3.Connection, following: Following) -> None:
        statement = f"INSERT OR REPLACE INTO {BOOKS} VALUES (?, ?)"
        connection.execute(statement, [self._place.table, following.text()])

    def _write(self, connection: sqlite3.Connection, rows: pa.Table) -> None:
        """Upsert and delete rows, each key once."""
        table, names, keys = quoted(self._place.table), column_names(self._layout), self._layout.key_names
        marks = f"VALUES ({', '.join('?' * len(names))})"
        deleted = rows["deleted"]
        kept, gone = rows.filter(pc.invert(deleted)), rows.filter(deleted)
        connection.executemany(upsert(table, self._layout, marks), bound(kept.select(names)))
        delete = f"DELETE FROM {table} WHERE {matches(keys, '?' * len(keys), table)}"
        connection.executemany(delete, bound(gone.select(names[: len(keys)])))


def bound(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Rows as SQLite takes them: numbers, truths as 0 and 1, bytes, everything else as text."""
    return zip(*(_bound(column) for column in rows.columns), strict=True)


def _bound(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_temporal(kind):
        column = texts(column)
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    found: list[Any] = column.to_pylist()
    if pa.types.is_floating(kind):
        # SQLite would keep a null in its place
        return [NAN if each is not None and each != each else each for each in found]
    return found
