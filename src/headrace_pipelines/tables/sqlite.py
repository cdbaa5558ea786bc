"""A table of SQLite that follows a topic: a batch is one transaction of the driver, the only writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from headrace_pipelines.tables.changes import DELETED, column_names, without_hidden
from headrace_pipelines.tables.database import DatabaseTable
from headrace_pipelines.tables.following import (
    BOOKS,
    Following,
    TableError,
    Topic,
    following_of,
    taken_over,
)
from headrace_pipelines.tables.layout import JSON, Layout, type_name
from headrace_pipelines.tables.places import SqlitePlace
from headrace_pipelines.tables.row_format import NAN
from headrace_pipelines.tables.statements import create_table, quoted, upsert
from headrace_pipelines.tables.times import texts

BOOLEAN: Final = "BOOLEAN"
JSON_TEXT: Final = "JSON TEXT"
"""With TEXT in it, for what is JSON alone is kept as a number where it looks like one."""
BUSY_S: Final = 30.0
"""How long a batch waits for another writer of the file."""
SETTINGS: Final = ("foreign_keys = OFF", "ignore_check_constraints = OFF", "recursive_triggers = OFF")
"""As a session of SQLite has them by itself, however it was built."""
_REFUSED: Final = (
    sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_ERROR,
)  # fmt: skip
"""What SQLite says of a record's values; an error too, for the statement itself was found sound before."""
_OTHERS: Final = """
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :t COLLATE NOCASE)
    OR EXISTS (SELECT 1 FROM sqlite_master WHERE name = :t COLLATE NOCASE AND sql LIKE '%check%')
    OR EXISTS (SELECT 1 FROM pragma_table_xinfo(:t) WHERE hidden > 1)
    OR EXISTS (SELECT 1 FROM pragma_index_list(:t) l, pragma_index_xinfo(l.name) x WHERE x.cid = -2 OR l.partial)
    OR (SELECT count(*) FROM pragma_index_list(:t) WHERE "unique") > :keys
"""
"""Whether there are triggers, checks, columns or indexes of expressions, or other unique indexes than the key's."""
_PROBE: Final = "temp.headrace_probe"


def made_type(kind: pa.DataType) -> str:
    """The type of a column that is made for this type; what SQLite has no type for is text.

    SQLite takes any word for a type. A later reader of the table recognizes booleans and JSON by these.
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
            for setting in SETTINGS:
                connection.execute(f"PRAGMA {setting}")
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
    return _collations(connection, table, names) is not None


def _collations(connection: sqlite3.Connection, table: str, names: list[str]) -> list[str | None] | None:
    """By which collations these columns find a row: those of their unique index, None for each of a number of a row.

    None where no row is found by them.
    """
    indexes = connection.execute('SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', [table])
    for (index,) in indexes.fetchall():
        indexed = connection.execute("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", [index]).fetchall()
        found = {None if name is None else name.lower(): collation for name, collation in indexed}
        if found.keys() == {name.lower() for name in names}:
            return [found[name.lower()] for name in names]
    primary = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", [table]).fetchall()
    return [None] if [name.lower() for (name,) in primary] == [name.lower() for name in names] else None


def affinity(declared: str, *, strict: bool = False) -> str:
    """What SQLite turns values of a column into, by what it was declared as."""
    words = declared.upper()
    if "INT" in words:
        return "INTEGER"
    if any(word in words for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if not words or "BLOB" in words or (strict and words == "ANY"):
        return "BLOB"
    return "REAL" if any(word in words for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _may_change(kind: pa.DataType, found: str) -> bool:
    """Whether a column of this affinity may keep another value than one of the type."""
    if found in ("BLOB", "TEXT") or pa.types.is_binary(kind) or pa.types.is_floating(kind):
        return False
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return found == "REAL"
    return True


def _is_kept(kind: pa.DataType, given: Any, found: Any) -> bool:
    """Whether what a column keeps is what was given: the same text, or the same number."""
    if given is None or isinstance(found, (str, bytes)) or isinstance(given, (int, float)):
        return bool(given == found)
    if not pa.types.is_decimal(kind):
        return False
    # as it is read again, by the fewest digits that give a number
    return Decimal(given) == Decimal(repr(found))


class SqliteTable(DatabaseTable[SqlitePlace, sqlite3.Connection]):
    """A `following.Target` in SQLite."""

    takes_nul = True

    def open(self, topic: Topic, run: str) -> None:
        self._run = run
        with self._transaction() as connection:
            books = "table_name TEXT PRIMARY KEY COLLATE NOCASE, following TEXT NOT NULL"
            connection.execute(f"CREATE TABLE IF NOT EXISTS {BOOKS} ({books})")
            known = self._following(connection)
            if columns_of(connection, self._place.table):
                self._fit(connection)
            elif known is not None:
                raise self._gone()
            else:
                connection.execute(create_table(quoted(self._place.table), self._layout, made_type))
            self._keep(connection, taken_over(known, topic, run, str(self._place)))

    def _fit(self, connection: sqlite3.Connection) -> _Fit:
        """How the table takes our rows. Raises `TableError` where it does not."""
        name = self._place.table
        there = {column.lower(): declared for column, declared in columns_of(connection, name).items()}
        strict = _is_strict(connection, name)
        changing: dict[int, str] = {}
        for place, field in enumerate(self._layout.fields):
            if field.name.lower() not in there:
                raise TableError(f"{self._place} has no column {field.name!r}; it has {', '.join(there)}")
            declared = there[field.name.lower()]
            found = affinity(declared, strict=strict)
            if found == "TEXT" and pa.types.is_primitive(field.type) and not pa.types.is_temporal(field.type):
                if not pa.types.is_decimal(field.type):
                    what = f"{declared}, which makes a text of a {type_name(field.type)}"
                    raise TableError(f"{self._place}: the column {field.name!r} is {what}")
            if _may_change(field.type, found):
                changing[place] = declared
        collations = _collations(connection, name, self._layout.key_names)
        if collations is None:
            raise self._not_unique()
        hides = not changing and not strict and _is_plain(connection, name, self._layout, collations)
        fit = _Fit(quoted(name), self._layout, collations, changing, hides)
        marks = [None] * len(self._layout.fields)
        # errors of a statement, and not of a record
        connection.execute(f"EXPLAIN {fit.upsert}", marks).close()
        connection.execute(f"EXPLAIN {fit.delete}", marks[: len(collations)]).close()
        self._check_others(connection)
        return fit

    def _check_others(self, connection: sqlite3.Connection) -> None:
        """Whether rows can be made that have our columns alone. Raises `TableError`."""
        table = self._place.table
        query = 'SELECT name FROM pragma_table_info(?) WHERE "notnull" AND dflt_value IS NULL'
        ours = {name.lower() for name in self._layout.names}
        for (name,) in connection.execute(query, [table]).fetchall():
            if name.lower() not in ours:
                raise TableError(
                    f"{self._place}: the column {name!r} is NOT NULL without a default, so no row can be made"
                )

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return connected(self._place, "BEGIN IMMEDIATE")

    def _following(self, connection: sqlite3.Connection) -> Following | None:
        found = connection.execute(f"SELECT following FROM {BOOKS} WHERE table_name = ?", [self._place.table])
        row = found.fetchone()
        return None if row is None else following_of(row[0])

    def _keep(self, connection: sqlite3.Connection, following: Following) -> None:
        statement = f"INSERT OR REPLACE INTO {BOOKS} VALUES (?, ?)"
        connection.execute(statement, [self._place.table, following.text()])

    def _write(self, connection: sqlite3.Connection, rows: pa.Table) -> dict[int, str]:
        """Upsert and delete rows one by one; why some are refused, by their places."""
        fit = self._fit(connection)
        if not fit.hides:
            return self._write_all(connection, fit, rows)
        fewer, where = without_hidden(rows, self._layout)
        return {where[place]: why for place, why in self._write_all(connection, fit, fewer).items()}

    def _write_all(self, connection: sqlite3.Connection, fit: _Fit, rows: pa.Table) -> dict[int, str]:
        given = list(bound(rows.select(column_names(self._layout))))
        refused = fit.changed(connection, given)
        upsert, delete, keys = fit.upsert, fit.delete, len(fit.collations)
        for deleted, group in groupby(enumerate(rows[DELETED.name].to_pylist()), itemgetter(1)):
            places = [place for place, _ in group if place not in refused]
            values = [given[place][:keys] for place in places] if deleted else [given[place] for place in places]
            self._each(connection, delete if deleted else upsert, places, values, refused)
        return refused

    def _each(
        self,
        connection: sqlite3.Connection,
        statement: str,
        places: list[int],
        values: list[tuple[Any, ...]],
        refused: dict[int, str],
    ) -> None:
        """Run a statement for each of some values; where SQLite refuses it, that one alone is left out."""
        at = 0

        def left() -> Iterator[tuple[Any, ...]]:
            nonlocal at
            while at < len(values):
                at += 1
                yield values[at - 1]

        while at < len(values):
            try:
                connection.executemany(statement, left())
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", -1) & 0xFF not in _REFUSED:
                    raise
                if not connection.in_transaction:
                    raise TableError(f"{self._place}: {error}; a conflict there ends the whole transaction") from None
                refused[places[at - 1]] = str(error)


@dataclass(frozen=True, slots=True)
class _Fit:
    """A table that takes rows of a layout, as it is during a batch.

    `table` is quoted; `collations` are those of the key, `changing` what columns were declared as that may keep another
    value than they are given, by their places. `hides` is true where a row may be left out for a later one of its key.
    """

    table: str
    layout: Layout
    collations: list[str | None]
    changing: Mapping[int, str]
    hides: bool

    @property
    def _keys(self) -> list[str]:
        names = zip(self.layout.key_names, self.collations, strict=True)
        return [quoted(name) + ("" if each is None else f" COLLATE {quoted(each)}") for name, each in names]

    @property
    def upsert(self) -> str:
        marks = f"VALUES ({', '.join('?' * len(self.layout.fields))})"
        # a conflict is an error, whatever the table says
        return upsert(self.table, self.layout, marks, verb="INSERT OR ABORT", keys=", ".join(self._keys))

    @property
    def delete(self) -> str:
        return f"DELETE FROM {self.table} WHERE {' AND '.join(f'{self.table}.{key} = ?' for key in self._keys)}"

    def changed(self, connection: sqlite3.Connection, given: list[tuple[Any, ...]]) -> dict[int, str]:
        """Which rows have values that their columns would keep otherwise, found in a table of the same columns."""
        if not self.changing:
            return {}
        columns = [f"c{place} {affinity(declared)}" for place, declared in self.changing.items()]
        connection.execute(f"CREATE TABLE {_PROBE} (n INTEGER PRIMARY KEY, {', '.join(columns)})")
        marks = ", ".join("?" * (1 + len(columns)))
        rows = ((n, *(row[place] for place in self.changing)) for n, row in enumerate(given))
        connection.executemany(f"INSERT INTO {_PROBE} VALUES ({marks})", rows)
        refused: dict[int, str] = {}
        fields = self.layout.fields
        for n, *found in connection.execute(f"SELECT * FROM {_PROBE}"):
            for (place, declared), kept in zip(self.changing.items(), found, strict=True):
                if not _is_kept(fields[place].type, given[n][place], kept):
                    refused.setdefault(n, f"{fields[place].name!r}: its column, {declared}, keeps another value")
        connection.execute(f"DROP TABLE {_PROBE}")
        return refused


def _is_plain(connection: sqlite3.Connection, table: str, layout: Layout, collations: list[str | None]) -> bool:
    """Whether keys are equal by their bytes, and nothing in a table refuses a row or looks at it for a moment."""
    if any(each not in (None, "BINARY") for each in collations):
        return False
    if any(pa.types.is_floating(field.type) for field in layout.key):
        return False
    (others,) = connection.execute(_OTHERS, {"t": table, "keys": int(collations != [None])}).fetchone()
    required = connection.execute('SELECT name FROM pragma_table_info(?) WHERE "notnull"', [table]).fetchall()
    return not others and {name.lower() for (name,) in required} <= {name.lower() for name in layout.key_names}


def _is_strict(connection: sqlite3.Connection, table: str) -> bool:
    if sqlite3.sqlite_version_info < (3, 37):
        return False
    found = connection.execute("SELECT strict FROM pragma_table_list(?) WHERE schema = 'main'", [table]).fetchone()
    return found is not None and bool(found[0])


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
