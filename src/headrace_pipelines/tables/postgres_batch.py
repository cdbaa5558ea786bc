"""A batch of changes in a table of PostgreSQL: copied into a table of its own, and from there into the real one.

What goes in at once is tried at once, behind a savepoint. Where PostgreSQL refuses it for a record's sake, it is halved
until the record is found, which is refused alone; the others go in, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headrace_pipelines.tables.changes import DELETED, column_names
from headrace_pipelines.tables.connecting import Connection, refusal
from headrace_pipelines.tables.fitting import Fit, Step
from headrace_pipelines.tables.layout import Layout
from headrace_pipelines.tables.statements import free_name, listed, matches, quoted, upsert
from headrace_pipelines.tables.times import texts

STAGED: Final = "pg_temp.headrace_staged"
"""The batch, in the types of the real table."""
TEXTS: Final = "pg_temp.headrace_texts"
"""The batch as texts, where a value may not fit."""
SEQ: Final = "seq"
_REFUSED: Final = ("22", "23", "2F", "38", "39", "44", "54", "P0")
"""Classes of SQLSTATE that are about a record: its values, constraints, limits, and what triggers raise."""
_TWICE: Final = "21000"
"""A statement would write one row twice."""
_MARK: Final = "\0"
"""A parameter; a name may hold anything else."""
_WITHIN: Final = f"{SEQ} >= {_MARK} AND {SEQ} < {_MARK}"

Piece = tuple[int, int, bool | None]
"""From one place of the batch to before another one; whether all are deletes, or none. None where they may be both."""


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


def _is_of_a_record(error: psycopg.Error) -> bool:
    return (error.sqlstate or "")[:2] in _REFUSED


class PostgresBatch:
    """One batch, in the transaction of a connection; `table` is the quoted name of the real table."""

    def __init__(self, connection: Connection, table: str, layout: Layout, fit: Fit) -> None:
        self._connection = connection
        self._table = table
        self._layout = layout
        self._fit = fit
        self._names = column_names(layout)
        self._refused: dict[int, str] = {}
        self._once = False
        self._deletes = True

    def write(self, rows: pa.Table, *, once: bool = False) -> dict[int, str]:
        """Apply the rows, and say why some are refused, by their places. `once` where no key has two upserts, and none
        a delete behind its upsert."""
        self._once = once
        self._deletes = bool(pc.any(rows[DELETED.name]).as_py())
        numbered = rows.append_column(SEQ, pa.array(range(rows.num_rows), pa.int64()))
        numbered = numbered.select([SEQ, DELETED.name, *self._names])
        self._run(staging(self._table, self._layout))
        if not (self._fit.exact and self._copied(numbered)):
            self._convert(numbered)
        step = self._fit.step_of(rows)
        if step == "batch":
            self._each([(0, rows.num_rows, None)], self._all, STAGED)
        else:
            self._index(STAGED)
            self._each(self._pieces(step, rows.num_rows), self._some)
        return self._refused

    def _run(self, statement: str, *parameters: int) -> psycopg.Cursor[tuple[Any, ...]]:
        if not parameters:
            return self._connection.execute(statement.encode())
        # a name may hold what looks like a parameter
        return self._connection.execute(statement.replace("%", "%%").replace(_MARK, "%s").encode(), parameters)

    def _copy(self, table: str, rows: pa.Table) -> None:
        with self._connection.cursor() as cursor:
            with cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv)".encode()) as copy:
                copy.write(as_csv(rows))

    def _copied(self, rows: pa.Table) -> bool:
        """Copy rows as they are; False where a value of one is none of its column's."""
        try:
            with self._connection.transaction():
                self._copy(STAGED, rows)
        except psycopg.Error as error:
            if not _is_of_a_record(error):
                raise
            return False
        return True

    def _convert(self, rows: pa.Table) -> None:
        """Copy rows as texts, and bring those into the staged table whose values are the columns' exactly."""
        conversions = self._fit.conversions
        kinds = ["bytea" if each.as_bytes else "text" for each in conversions]
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(self._names, kinds, strict=True))
        self._run(f"CREATE TEMP TABLE {TEXTS} ({SEQ} bigint, {DELETED.name} boolean, {columns}) ON COMMIT DROP")
        for name, each in zip(self._names, conversions, strict=True):
            if each.as_bytes:
                place = rows.schema.get_field_index(name)
                rows = rows.set_column(place, name, rows[name].cast(pa.string()).cast(pa.binary()))
        self._copy(TEXTS, rows)
        pairs = list(zip(self._names, conversions, strict=True))
        values = ", ".join(each.value.replace("{}", name) for name, each in pairs)
        checks = [
            (place, f"coalesce({each.exact.replace('{}', name)}, true)")
            for place, (name, each) in enumerate(pairs)
            if each.exact is not None
        ]
        exact = " AND ".join(check for _, check in checks) or "true"
        first = " ".join(f"WHEN NOT {check} THEN {place}" for place, check in checks) or "WHEN true THEN 0"
        insert = f"INSERT INTO {STAGED} SELECT {SEQ}, {DELETED.name}, {values} FROM {TEXTS} WHERE {_WITHIN} AND {exact}"
        inexact = f"SELECT {SEQ}, CASE {first} END FROM {TEXTS} WHERE {_WITHIN} AND NOT ({exact})"

        def convert(pieces: Sequence[Piece]) -> None:
            for low, high, _ in pieces:
                if self._run(insert, low, high).rowcount < high - low:
                    for seq, place in self._run(inexact, low, high).fetchall():
                        self._refused[seq] = self._inexact(place)

        self._each([(0, rows.num_rows, None)], convert, TEXTS)

    def _inexact(self, place: int) -> str:
        return f"{self._layout.names[place]!r}: its column, {self._fit.types[place]}, cannot hold the value exactly"

    def _pieces(self, step: Step, count: int) -> list[Piece]:
        """Returns what goes in at once, in order: records, or those of different keys, upserts and deletes apart."""
        keys = ", ".join(self._names[: len(self._layout.key)])
        query = (
            f"SELECT {SEQ}, {DELETED.name}, before, other IS NOT false FROM (SELECT {SEQ}, {DELETED.name}, "
            f"lag({SEQ}) OVER (PARTITION BY {keys} ORDER BY {SEQ}) AS before, "
            f"{DELETED.name} <> lag({DELETED.name}) OVER (ORDER BY {SEQ}) AS other FROM {STAGED}) s"
        )
        if step != "record":
            query += " WHERE before IS NOT NULL OR other IS NOT false"
        found: list[Piece] = []
        begun: int = 0
        kind: bool | None = None
        for seq, deleted, before, other in self._connection.execute(f"{query} ORDER BY {SEQ}".encode()):
            if step == "record" or (step == "run" and other) or (before is not None and before >= begun):
                if seq:
                    found.append((begun, seq, kind))
                begun, kind = seq, None if step == "keys" else deleted
        return [*found, (begun, count, kind)]

    def _all(self, pieces: Sequence[Piece]) -> None:
        """Apply whole pieces: keys with any delete are deleted first, then the last record of each key is written."""
        keys = listed(self._names[: len(self._layout.key)])
        rows = ", ".join(self._names)
        last = f"SELECT DISTINCT ON ({keys}) {rows}, {DELETED.name} FROM {STAGED} WHERE {_WITHIN}"
        last = f"SELECT {rows} FROM ({last} ORDER BY {keys}, {SEQ} DESC) s WHERE NOT {DELETED.name}"
        if self._once:
            last = f"SELECT {rows} FROM {STAGED} WHERE {_WITHIN} AND NOT {DELETED.name}"
        for low, high, _ in pieces:
            if self._deletes:
                self._run(self._delete(), low, high)
            self._run(upsert(self._table, self._layout, last), low, high)

    def _some(self, pieces: Sequence[Piece]) -> None:
        """Apply pieces one after the other."""
        rows = ", ".join(self._names)
        ordered = f"SELECT {rows} FROM {STAGED} WHERE {_WITHIN} ORDER BY {SEQ}"
        insert = upsert(self._table, self._layout, ordered)
        delete = self._delete()
        for low, high, deleted in pieces:
            if deleted is None:
                self._all([(low, high, None)])
            else:
                self._run(delete if deleted else insert, low, high)

    def _delete(self) -> str:
        target = free_name("target", self._layout.names)
        staged = free_name("staged", self._layout.names)
        keys = [f"{staged}.{name}" for name in self._names[: len(self._layout.key)]]
        found = matches(self._layout.key_names, keys, target)
        within = f"{staged}.{SEQ} >= {_MARK} AND {staged}.{SEQ} < {_MARK} AND {staged}.{DELETED.name}"
        return f"DELETE FROM {self._table} {target} USING {STAGED} {staged} WHERE {within} AND {found}"

    def _index(self, table: str) -> None:
        self._run(f"CREATE INDEX ON {table} ({SEQ})")
        self._run(f"ANALYZE {table} ({SEQ})")

    def _each(self, pieces: list[Piece], attempt: Callable[[Sequence[Piece]], None], table: str | None = None) -> None:
        """Attempt pieces in their order, all at once and then fewer, until each record is applied or refused.

        `table` is the one that they are read from, where it has no index yet.
        """
        left = [pieces]
        while left:
            some = left.pop()
            if not some:
                continue
            known = dict(self._refused)
            try:
                with self._connection.transaction():
                    attempt(some)
            except psycopg.Error as error:
                self._refused = known
                if not _is_of_a_record(error) and error.sqlstate != _TWICE:
                    raise
                if table is not None:
                    self._index(table)
                    table = None
                low, high, deleted = some[0]
                if len(some) > 1:
                    left += [some[len(some) // 2 :], some[: len(some) // 2]]
                elif high - low > 1:
                    middle = (low + high) // 2
                    left += [[(middle, high, deleted)], [(low, middle, deleted)]]
                elif error.sqlstate == _TWICE:
                    raise
                else:
                    self._refused[low] = refusal(error)


def staging(table: str, layout: Layout) -> str:
    """The statement that makes the table that a batch is copied into, of the types of the real one."""
    names = zip(layout.names, column_names(layout), strict=True)
    columns = ", ".join(f"{quoted(real)} AS {name}" for real, name in names)
    rows = f"SELECT 0::bigint AS {SEQ}, false AS {DELETED.name}, {columns} FROM {table} WITH NO DATA"
    return f"CREATE TEMP TABLE {STAGED} ON COMMIT DROP AS {rows}"
