"""What the tables of all databases do alike: a batch and the positions after it, in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import pyarrow as pa

from headrace.spark.pipelines.tables.changes import beyond, last_of_each_key, positions_after
from headrace.spark.pipelines.tables.following import BOOKS, Following, TableError
from headrace.spark.pipelines.tables.layout import Layout

C = TypeVar("C")
P = TypeVar("P")


class DatabaseTable(ABC, Generic[P, C]):
    """The part of a `following.Target` that no database has of its own: `P` is its place, `C` its connection."""

    nested_as_json = True
    takes_endless = True
    buckets = 0

    def __init__(self, place: P, layout: Layout) -> None:
        self._place = place
        self._layout = layout
        self._run = ""

    def apply(self, changes: pa.Table) -> None:
        with self._transaction() as connection:
            known = self._following(connection)
            if known is None:
                raise TableError(f"{BOOKS} has lost the row of {self._place}, which holds its offsets")
            known.written_by(self._run, str(self._place))
            fresh = beyond(changes, known.positions)
            if fresh.num_rows:
                self._write(connection, last_of_each_key(fresh, self._layout))
                self._keep(connection, known.at(positions_after(fresh, known.positions)))

    def _gone(self) -> TableError:
        return TableError(f"{self._place} is gone; delete its row in {BOOKS} too, and the run creates it again")

    def _not_unique(self) -> TableError:
        keys = ", ".join(self._layout.key_names)
        return TableError(f"{self._place} has no primary key or unique index of {keys}; the run finds rows by it")

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[C]:
        """A connection and a transaction, which ends with the block. Raises `TableError`."""

    @abstractmethod
    def _following(self, connection: C) -> Following | None:
        """What the table knows of its topic, nobody else's until the transaction ends."""

    @abstractmethod
    def _keep(self, connection: C, following: Following) -> None: ...

    @abstractmethod
    def _write(self, connection: C, rows: pa.Table) -> None:
        """Upsert and delete rows, each key once."""
