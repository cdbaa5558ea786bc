"""Tables of PostgreSQL and SQLite, read page by page; the databases themselves write keys and values as text."""

from __future__ import annotations

from typing import Any

from headrace.spark.pipelines.tables import postgres, sqlite
from headrace.spark.pipelines.tables.following import TableError
from headrace.spark.pipelines.tables.moments import Moment
from headrace.spark.pipelines.tables.places import PostgresPlace, SqlitePlace
from headrace.spark.pipelines.tables.statements import quoted
from headrace.spark.pipelines.tables.watching import Row, Watch, is_deleted


def check_columns(place: object, watch: Watch, there: list[str], *, unique: bool) -> None:
    """Whether a table has what is to be read, and its key is one. Raises `TableError`."""
    if not there:
        raise TableError(f"{place} is not there")
    for name in (*watch.key, watch.by, *([watch.deleted] if watch.deleted else [])):
        if name not in there:
            raise TableError(f"{place} has no column {name!r}; it has {', '.join(there)}")
    if not unique:
        raise TableError(f"{place} has no primary key or unique index of {', '.join(watch.key)}, so it is no key")


def rows_of(found: list[tuple[Any, ...]]) -> list[Row]:
    """What a page's query gives: whether deleted, key and value, and then the order."""
    return [Row(row[3:], is_deleted(row[0]), row[1], row[2]) for row in found]


def page_query(watch: Watch, selected: str, table: str, mark: str, *, since: bool, after: bool) -> str:
    """The query of a page, its parameters the value or the place that it begins at, and then how many rows."""
    order = [watch.by, *watch.key]
    where = f"t.{quoted(watch.by)} IS NOT NULL"
    if after:
        names = ", ".join(f"t.{quoted(name)}" for name in order)
        where = f"({names}) > ({', '.join([mark] * len(order))})"
    elif since:
        where = f"t.{quoted(watch.by)} >= {mark}"
    deleted = "NULL" if watch.deleted is None else f"t.{quoted(watch.deleted)}"
    columns = ", ".join(f"t.{quoted(name)}" for name in order)
    return f"SELECT {deleted}, {selected}, {columns} FROM {table} t WHERE {where} ORDER BY {columns} LIMIT {mark}"


def _parameters(since: Moment | None, after: tuple[Any, ...] | None, rows: int) -> list[Any]:
    if after is not None:
        return [*after, rows]
    return [rows] if since is None else [since, rows]


class PostgresSource:
    """A `watching.Source` in PostgreSQL."""

    def __init__(self, place: PostgresPlace, watch: Watch) -> None:
        self._place = place
        self._watch = watch
        self._table = ""
        self._selected = ""

    def check(self) -> None:
        with postgres.connected(self._place) as connection:
            catalogue = postgres.Catalogue(connection, self._place)
            there = list(catalogue.columns()) if catalogue.oid is not None else []
            check_columns(
                self._place, self._watch, there, unique=bool(there) and catalogue.is_unique([*self._watch.key])
            )
            assert catalogue.schema is not None
            self._table = f"{quoted(catalogue.schema)}.{quoted(self._place.table)}"
        key = self._watch.key
        text = f"t.{quoted(key[0])}::text" if len(key) == 1 else _json([*key])
        self._selected = f"{text}, {_json([name for name in there if name != self._watch.deleted])}"

    def page(self, since: Moment | None, after: tuple[Any, ...] | None, rows: int) -> list[Row]:
        bounds = {"since": since is not None, "after": after is not None}
        # a name may hold anything but a NUL, also what looks like a parameter
        query = page_query(self._watch, self._selected, self._table, "\0", **bounds)
        query = query.replace("%", "%%").replace("\0", "%s")
        with postgres.connected(self._place) as connection:
            connection.execute(b"SET LOCAL TimeZone = 'UTC'")
            return rows_of(connection.execute(query.encode(), _parameters(since, after, rows)).fetchall())


def _json(names: list[str]) -> str:
    """An object of columns as PostgreSQL writes it, in their order, whatever they are called."""
    return f"(SELECT to_json(j)::text FROM (SELECT {', '.join(f't.{quoted(name)}' for name in names)}) j)"


class SqliteSource:
    """A `watching.Source` in SQLite."""

    def __init__(self, place: SqlitePlace, watch: Watch) -> None:
        self._place = place
        self._watch = watch
        self._selected = ""

    def check(self) -> None:
        if not self._place.path.exists():
            raise TableError(f"{self._place.path} is not there")
        with sqlite.connected(self._place, "BEGIN") as connection:
            there = sqlite.columns_of(connection, self._place.table)
            unique = sqlite.is_unique(connection, self._place.table, [*self._watch.key])
        check_columns(self._place, self._watch, there, unique=unique)
        key = self._watch.key
        text = f"CAST(t.{quoted(key[0])} AS TEXT)" if len(key) == 1 else _json_object([*key])
        self._selected = f"{text}, {_json_object([name for name in there if name != self._watch.deleted])}"

    def page(self, since: Moment | None, after: tuple[Any, ...] | None, rows: int) -> list[Row]:
        table = quoted(self._place.table)
        query = page_query(self._watch, self._selected, table, "?", since=since is not None, after=after is not None)
        with sqlite.connected(self._place, "BEGIN") as connection:
            return rows_of(connection.execute(query, _parameters(since, after, rows)).fetchall())


def _json_object(names: list[str]) -> str:
    """An object of columns as SQLite writes it."""
    pairs = []
    for name in names:
        text = name.replace("'", "''")
        pairs.append(f"'{text}', t.{quoted(name)}")
    return f"json_object({', '.join(pairs)})"
