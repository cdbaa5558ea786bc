"""A table of PostgreSQL that follows a topic: a batch is one transaction."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pyarrow as pa

from headrace_pipelines.tables.catalogue import Catalogue, check_names
from headrace_pipelines.tables.changes import without_hidden
from headrace_pipelines.tables.connecting import Connection, connected
from headrace_pipelines.tables.database import DatabaseTable
from headrace_pipelines.tables.fitting import fit, made_type
from headrace_pipelines.tables.following import (
    BOOKS,
    Following,
    Topic,
    following_of,
    taken_over,
)
from headrace_pipelines.tables.layout import Layout
from headrace_pipelines.tables.places import PostgresPlace
from headrace_pipelines.tables.postgres_batch import PostgresBatch
from headrace_pipelines.tables.statements import create_table, quoted


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
            # two runs that begin at once would both create missing tables
            connection.execute(b"SELECT pg_advisory_xact_lock(hashtext(%s))", [BOOKS])
            catalogue = Catalogue(connection, self._place)
            assert catalogue.schema is not None
            # the search path may be another one with a later batch
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
                fit(connection, self._table, self._place, self._layout)
            self._keep(connection, taken_over(known, topic, run, str(self._place)))

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

    def _write(self, connection: Connection, rows: pa.Table) -> dict[int, str]:
        """Upsert and delete rows, as if one by one in their order; why some are refused, by their places in it."""
        # from here on nobody changes its columns and what watches over them until the transaction ends
        connection.execute(f"LOCK TABLE {self._table} IN ROW EXCLUSIVE MODE".encode())
        fitting = fit(connection, self._table, self._place, self._layout)
        if fitting.step != "batch":
            # a constraint that may be deferred is on no table whose rows go in at once, nor does one look at it
            connection.execute(b"SET CONSTRAINTS ALL IMMEDIATE")
        batch = PostgresBatch(connection, self._table, self._layout, fitting)
        if not fitting.hides(rows):
            return batch.write(rows)
        fewer, places = without_hidden(rows, self._layout)
        return {places[place]: why for place, why in batch.write(fewer, once=True).items()}


def _in_query(name: str) -> str:
    """A quoted name in a statement with parameters."""
    return name.replace("%", "%%")
