"""What the tables of all databases do alike: a batch and the positions after it, in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Final, Generic, TypeVar

import pyarrow as pa

from headrace_pipelines.tables.changes import OFFSET, PARTITION, beyond, in_order, positions_after
from headrace_pipelines.tables.following import BOOKS, Following, Refused, Settle, TableError
from headrace_pipelines.tables.layout import Layout

C = TypeVar("C")
P = TypeVar("P")
_ROW: Final = "row"


class DatabaseTable(ABC, Generic[P, C]):
    """The part of a `following.Target` that no database has of its own: `P` is its place, `C` its connection."""

    nested_as_json = True
    takes_endless = True
    buckets = 0
    refuses = True

    def __init__(self, place: P, layout: Layout) -> None:
        self._place = place
        self._layout = layout
        self._run = ""

    def apply(self, changes: pa.Table, settle: Settle | None = None) -> None:
        with self._transaction() as connection:
            known = self._following(connection)
            if known is None:
                raise TableError(f"{BOOKS} has lost the row of {self._place}, which holds its offsets")
            known.written_by(self._run, str(self._place))
            numbers = pa.array(range(changes.num_rows), pa.int64())
            fresh = in_order(beyond(changes.append_column(_ROW, numbers), known.positions))
            refused: dict[int, str] = {}
            if fresh.num_rows:
                rows = fresh[_ROW].to_pylist()
                found = self._write(connection, fresh)
                refused = {rows[place]: found[place] for place in sorted(found)}
                self._keep(connection, known.at(positions_after(fresh, known.positions)))
            if settle is not None:
                settle(refused)
            elif refused:
                raise self._refusal(changes, refused)

    def _refusal(self, changes: pa.Table, refused: Refused) -> TableError:
        row, reason = next(iter(refused.items()))
        partition, offset = (changes[field.name][row].as_py() for field in (PARTITION, OFFSET))
        others = f" (and {len(refused) - 1} others of the batch)" if len(refused) > 1 else ""
        where = f"it refuses the record at offset {offset} of partition {partition}{others}"
        return TableError(f"{self._place}: {reason}; {where}, and --dead-letters TOPIC sends such records there")

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
    def _write(self, connection: C, rows: pa.Table) -> dict[int, str]:
        """Upsert and delete rows, as if one by one in their order; why some are refused, by their places in it."""
