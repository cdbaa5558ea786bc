"""Tables of PostgreSQL and SQLite, read page by page; keys and values are written as `row_format` says.

PostgreSQL writes them itself. SQLite's rows come as Python's objects, for its JSON shortens numbers and has infinities
that are no JSON. Which columns there are is looked up with every page, in the transaction that reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import psycopg
from psycopg.abc import Buffer
from psycopg.types.datetime import DateLoader, IntervalLoader, TimestampLoader, TimestamptzLoader

from headrace_pipelines.tables import sqlite
from headrace_pipelines.tables.catalogue import Catalogue, Column, Index, read_all, read_columns
from headrace_pipelines.tables.connecting import connected
from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.moments import Moment, moment_of
from headrace_pipelines.tables.places import PostgresPlace, SqlitePlace
from headrace_pipelines.tables.row_format import base64_of, float_text, is_json, text_of
from headrace_pipelines.tables.statements import free_name, quoted
from headrace_pipelines.tables.watching import Row, Watch, is_deleted

Say = Callable[[str], None]
"""Takes a line for the person who runs a pipeline."""

_NUMBERS: Final = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
_TIMES: Final = ("date", "timestamp without time zone", "timestamp with time zone")


class Columns:
    """The columns of a table as they were at the last look, and what of them a watch reads."""

    def __init__(self, place: object, watch: Watch, say: Say) -> None:
        self._place = place
        self._watch = watch
        self._say = say
        self._seen: list[str] = []

    def check(self, there: Iterable[str]) -> None:
        """Checks that the table and the columns to read exist. Raises `TableError` if not."""
        names = list(there)
        if not names:
            raise TableError(f"{self._place} does not exist")
        watch = self._watch
        deleted = [watch.deleted] if watch.deleted else []
        for name in (*watch.key, watch.by, *deleted, *watch.included, *watch.excluded):
            if name not in names:
                raise TableError(f"{self._place} has no column {name!r}; it has {', '.join(names)}")
        if not self.of_value(names):
            raise TableError(f"{self._place} has no column left for the value")
        self._seen = names

    def look(self, there: Iterable[str]) -> bool:
        """The same at a later look: says which of those it reads came and went. Whether the columns are others."""
        names, seen = list(there), self._seen
        if names == seen:
            return False
        self.check(names)
        read, was_read = self.of_value(names), self.of_value(seen)
        if come := [name for name in read if name not in was_read]:
            many = ", ".join(map(repr, come))
            self._say(f"{self._place} has new columns: {many}; a row sent before gets them when it changes")
        if gone := [name for name in was_read if name not in read]:
            many = ", ".join(map(repr, gone))
            self._say(f"{self._place} has lost columns: {many}; the run sends rows without them from now on")
        return True

    def of_value(self, there: Iterable[str]) -> list[str]:
        """Those that a value has."""
        watch = self._watch
        return [
            name
            for name in there
            if name != watch.deleted and name not in watch.excluded and (not watch.included or name in watch.included)
        ]

    def refuse_key(self) -> NoReturn:
        """Raises `TableError`."""
        keys = ", ".join(self._watch.key)
        raise TableError(f"{self._place} has no primary key or unique index of {keys}, so {keys} cannot be the key")


def page_query(watch: Watch, alias: str, selected: str, table: str, place: list[str], since: str) -> str:
    """The query of a page, its parameters the value or the place that it begins at, and then how many rows.

    `place` are the marks of parameters for the columns of `Watch.order`, none where it begins at a value or with the
    first row; `since` is the mark of a value.
    """
    by = f"{alias}.{quoted(watch.by)}"
    columns = ", ".join(f"{alias}.{quoted(name)}" for name in watch.order)
    where = f"{by} IS NOT NULL"
    if place:
        where = f"({columns}) > ({', '.join(place)})"
    elif since:
        where = f"{by} >= {since}"
    return f"SELECT {selected} FROM {table} {alias} WHERE {where} ORDER BY {columns} LIMIT "


def _parameters(since: Moment | None, after: tuple[Any, ...] | None, rows: int) -> list[Any]:
    if after is not None:
        return [*after, rows]
    return [rows] if since is None else [since, rows]


# -- PostgreSQL


def _reached(loader: type[psycopg.adapt.Loader]) -> type[psycopg.adapt.Loader]:
    """A loader that gives an infinity for what Python's dates and times do not reach."""

    class Reached(loader):  # type: ignore[misc, valid-type]
        def load(self, data: Buffer) -> Any:
            try:
                return super().load(data)
            except psycopg.DataError:
                text = bytes(data)
                return -math.inf if text.startswith(b"-") or text.endswith(b"BC") else math.inf

    return Reached


_REACHED: Final = {
    name: _reached(loader)
    for name, loader in (
        ("date", DateLoader), ("timestamp", TimestampLoader), ("timestamptz", TimestamptzLoader),
        ("interval", IntervalLoader),
    )
}  # fmt: skip


class PostgresSource:
    """A `watching.Source` in PostgreSQL."""

    def __init__(self, place: PostgresPlace, watch: Watch, say: Say) -> None:
        self._place = place
        self._watch = watch
        self._columns = Columns(place, watch, say)
        self._table = ""

    def check(self) -> None:
        with connected(self._place, writes=False) as connection:
            catalogue = Catalogue(connection, self._place)
            assert catalogue.schema is not None
            self._table = f"{quoted(catalogue.schema)}.{quoted(self._place.table)}"
            key = [*self._watch.key]
            there: dict[str, Column] = {}
            indexes: Sequence[Index] = ()
            if catalogue.oid is not None:
                there, watched = read_all(connection, self._table, key)
                indexes = watched.indexes
            self._columns.check(there)
            _deleted(self._place, "source", self._watch, there)
            if not any(index.is_key(key) and index.valid for index in indexes):
                self._columns.refuse_key()

    def page(self, since: Moment | None, after: tuple[Any, ...] | None, rows: int) -> list[Row]:
        with connected(self._place, writes=False) as connection:
            for name, loader in _REACHED.items():
                connection.adapters.register_loader(name, loader)
            # from here on nobody changes the columns until the transaction ends
            connection.execute(f"SELECT FROM {self._table} LIMIT 0".encode())
            found = read_columns(connection, self._table)
            self._columns.look(found)
            query = self._query(found, since=since is not None, after=after is not None)
            read = connection.execute(query.encode(), _parameters(since, after, rows)).fetchall()
        return [Row(moment_of(row[3]), row[4:], is_deleted(row[0]), row[1], row[2]) for row in read]

    def _query(self, there: Mapping[str, Column], *, since: bool, after: bool) -> str:
        """Whether deleted, key, value, the increasing column, and the place as texts, which all types have."""
        watch = self._watch
        alias = free_name("source", there)
        deleted = _deleted(self._place, alias, watch, there)
        key = watch.key[0]
        key_text = _key_text(alias, key, there[key]) if len(watch.key) == 1 else _object(alias, watch.key, there)
        value = _object(alias, self._columns.of_value(there), there)
        order = [f"{alias}.{quoted(name)}" for name in watch.order]
        selected = ", ".join([deleted, key_text, value, order[0], *(f"{column}::text" for column in order)])
        # a name may hold anything but a NUL, also what looks like a parameter
        place = [f"CAST(\0 AS {there[name].full})" for name in watch.order] if after else []
        query = page_query(watch, alias, selected, self._table, place, "\0" if since else "") + "\0"
        return query.replace("%", "%%").replace("\0", "%s")


def _deleted(place: PostgresPlace, alias: str, watch: Watch, there: Mapping[str, Column]) -> str:
    """Whether a row is deleted, as a truth that PostgreSQL has found or as a text for `is_deleted`."""
    if watch.deleted is None:
        return "NULL"
    column = there[watch.deleted]
    field = f"{alias}.{quoted(watch.deleted)}"
    if column.category == "B":
        return field
    if column.base in _NUMBERS:
        return f"({field} <> 0)"
    if column.category == "V":
        return f"(position('1' in {field}::text) > 0)"
    if column.category == "D" or column.base == "uuid":
        return f"({field} IS NOT NULL)"
    if column.category in ("S", "E"):
        return f"{field}::text"
    what = "which says neither true nor false, nor when; it can be a truth, a number, bits, a time, a UUID or text"
    raise TableError(f"{place}: the deleted column {watch.deleted!r} is of type {column.plain}, {what}")


def _field(alias: str, name: str, column: Column) -> str:
    """A column as PostgreSQL's JSON is to have it."""
    field = f"{alias}.{quoted(name)}"
    return f"translate(encode({field}, 'base64'), E'\\n', '')" if column.base == "bytea" else field


def _key_text(alias: str, name: str, column: Column) -> str:
    field = _field(alias, name, column)
    # JSON has times in ISO 8601
    return f"(to_json({field}) #>> '{{}}')" if column.base in _TIMES else f"({field})::text"


def _object(alias: str, names: Iterable[str], there: Mapping[str, Column]) -> str:
    """An object of columns as PostgreSQL writes it, in their order, whatever they are called."""
    chosen = list(names)
    row = free_name("value", [alias, *chosen])
    fields = ", ".join(f"{_field(alias, name, there[name])} AS {quoted(name)}" for name in chosen)
    # row.* is never a column, as row would be that is called so
    return f"(SELECT to_json({row}.*)::text FROM (SELECT {fields}) {row})"


# -- SQLite


class SqliteSource:
    """A `watching.Source` in SQLite."""

    def __init__(self, place: SqlitePlace, watch: Watch, say: Say) -> None:
        self._place = place
        self._watch = watch
        self._columns = Columns(place, watch, say)

    def check(self) -> None:
        if not self._place.path.exists():
            raise TableError(f"{self._place.path} does not exist")
        with sqlite.connected(self._place, "BEGIN") as connection:
            self._columns.check(sqlite.columns_of(connection, self._place.table))
            if not sqlite.is_unique(connection, self._place.table, [*self._watch.key]):
                self._columns.refuse_key()

    def page(self, since: Moment | None, after: tuple[Any, ...] | None, rows: int) -> list[Row]:
        watch = self._watch
        with sqlite.connected(self._place, "BEGIN") as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
            found = sqlite.columns_of(connection, self._place.table)
            self._columns.look(found)
            alias = free_name("source", found)
            chosen = self._columns.of_value(found)
            names = [*chosen, *watch.key, *watch.order, *([watch.deleted] if watch.deleted else [])]
            selected = ", ".join(f"{alias}.{quoted(name)}" for name in names)
            place = ["?"] * len(watch.order) if after is not None else []
            table = quoted(self._place.table)
            query = page_query(watch, alias, selected, table, place, "?" if since is not None else "") + "?"
            read = connection.execute(query, _parameters(since, after, rows)).fetchall()
        heads = [text_of(name) for name in chosen]
        order_at = len(chosen) + len(watch.key)
        deleted_at = order_at + len(watch.order) if watch.deleted else None
        made: list[Row] = []
        for row in read:
            texts = [self._json(name, found[name], value) for name, value in zip(names, row[:order_at], strict=False)]
            value = "{" + ",".join(f"{head}:{text}" for head, text in zip(heads, texts, strict=False)) + "}"
            key = self._key(row[len(chosen) : order_at], texts[len(chosen) :])
            place_of = row[order_at : order_at + len(watch.order)]
            deleted = deleted_at is not None and is_deleted(row[deleted_at])
            made.append(Row(moment_of(place_of[0]), place_of, deleted, key, value))
        return made

    def _key(self, values: tuple[Any, ...], texts: list[str]) -> str | None:
        if len(values) > 1:
            pairs = zip(self._watch.key, texts, strict=True)
            return "{" + ",".join(f"{text_of(name)}:{text}" for name, text in pairs) + "}"
        if values[0] is None:
            return None
        text = texts[0]
        return str(json.loads(text)) if text.startswith('"') else text

    def _json(self, name: str, declared: str, value: Any) -> str:
        """A value as JSON; what a column was declared as tells truths and JSON from numbers and text."""
        if value is None:
            return "null"
        if isinstance(value, str):
            if not value.isascii():
                self._check_text(name, value)
            return value if "JSON" in declared.upper() and is_json(value) else text_of(value)
        if isinstance(value, bytes):
            return text_of(base64_of(value))
        if isinstance(value, float):
            return float_text(value)
        if value in (0, 1) and declared.upper() in ("BOOLEAN", "BOOL"):
            return "true" if value else "false"
        return str(value)

    def _check_text(self, name: str, value: str) -> None:
        try:
            value.encode()
        except UnicodeEncodeError:
            what = f"{self._place}: the column {name!r} has a text that is not UTF-8"
            raise TableError(f"{what}; --exclude-column leaves the column out") from None
