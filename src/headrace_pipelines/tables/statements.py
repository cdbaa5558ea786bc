"""SQL that PostgreSQL and SQLite have in common: names quoted, whatever is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from headrace_pipelines.tables.layout import Layout


def quoted(name: str) -> str:
    """A name as both databases take any name that has no NUL."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Names, quoted, with commas between them."""
    return ", ".join(quoted(name) for name in names)


def free_name(wish: str, names: Iterable[str]) -> str:
    """A name for our own use that none of these is, whatever case they are in."""
    taken = {name.lower() for name in names}
    while wish in taken:
        wish += "_"
    return wish


def create_table(table: str, layout: Layout, type_of: Callable[[pa.DataType], str]) -> str:
    """The statement that makes the table, its primary key the record's key. `table` is quoted already."""
    keys = set(layout.key_names)
    columns = [
        f"{quoted(field.name)} {type_of(field.type)}{' NOT NULL' * (field.name in keys)}" for field in layout.fields
    ]
    return f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({listed(layout.key_names)}))"


def upsert(table: str, layout: Layout, rows: str, *, verb: str = "INSERT", keys: str | None = None) -> str:
    """The statement that writes `rows`, a VALUES or SELECT of all columns, over those with the same keys.

    `keys` is the list of the key's columns as a unique index has them, where that is not as they are.
    """
    # a table that is called excluded itself has another name here
    table = f"{table} AS {free_name('target', layout.names)}"
    assigned = ", ".join(f"{quoted(field.name)} = excluded.{quoted(field.name)}" for field in layout.value)
    conflict = f"ON CONFLICT ({keys or listed(layout.key_names)}) DO UPDATE SET {assigned}"
    return f"{verb} INTO {table} ({listed(layout.names)}) {rows} {conflict}"


def matches(names: Sequence[str], others: Sequence[str], table: str) -> str:
    """The condition that columns of a table are equal to other expressions, one by one."""
    return " AND ".join(f"{table}.{quoted(name)} = {other}" for name, other in zip(names, others, strict=True))
