"""A database as the tests look into it, whichever of the two it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from headrace_pipelines.tables.following import Target
from headrace_pipelines.tables.layout import Layout
from headrace_pipelines.tables.places import Place, PostgresPlace, SqlitePlace, parse_place
from headrace_pipelines.tables.postgres import PostgresTable
from headrace_pipelines.tables.sources import PostgresSource, SqliteSource
from headrace_pipelines.tables.sqlite import SqliteTable
from headrace_pipelines.tables.watching import Source, Watch


@dataclass(frozen=True)
class Database:
    """`address` without a table; `sqlite` is the file, where it is one."""

    address: str
    sqlite: Path | None = None

    def place(self, table: str) -> Place:
        found = parse_place(f"{self.address}#{table}")
        assert found is not None
        return found

    def target(self, table: str, layout: Layout) -> Target:
        place = self.place(table)
        if isinstance(place, PostgresPlace):
            return PostgresTable(place, layout)
        assert isinstance(place, SqlitePlace)
        return SqliteTable(place, layout)

    def source(self, table: str, watch: Watch, say: Callable[[str], None] = print) -> Source:
        place = self.place(table)
        if isinstance(place, PostgresPlace):
            return PostgresSource(place, watch, say)
        assert isinstance(place, SqlitePlace)
        return SqliteSource(place, watch, say)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, committed."""
        if self.sqlite is None:
            with psycopg.connect(self.address) as connection:
                done = connection.execute(statement.encode())
                return done.fetchall() if done.description else []
        file = sqlite3.connect(self.sqlite)
        try:
            with file:
                return file.execute(statement).fetchall()
        finally:
            file.close()
