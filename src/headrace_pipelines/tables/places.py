"""Where tables are: `postgresql://host/database#table`, `sqlite:path#table` and `parquet:directory`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

_SHOWN: Final = ("host", "hostaddr", "port", "dbname", "user", "service")
"""What of an address's parameters says where it is; others may be secrets."""
_SCHEMES: Final = "postgresql://HOST/DATABASE#TABLE, sqlite:PATH#TABLE or parquet:DIRECTORY"


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A table in PostgreSQL. Its text is the address without password and settings."""

    conninfo: str = field(repr=False)
    schema: str | None
    table: str
    shown_text: str

    def __str__(self) -> str:
        return self.shown_text


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    """A table in a file of SQLite."""

    path: Path
    table: str

    def __str__(self) -> str:
        return f"sqlite:{self.path}#{quote(self.table)}"


@dataclass(frozen=True, slots=True)
class ParquetPlace:
    """A table in Parquet files of a directory."""

    path: Path

    def __str__(self) -> str:
        return f"parquet:{self.path}"


Place = PostgresPlace | SqlitePlace | ParquetPlace


def parse_place(text: str) -> Place | None:
    """The table that an address names, paths made absolute; None where it can only be a topic's name.

    Raises ValueError, in one sentence that does not repeat a password.
    """
    scheme, colon, rest = text.partition(":")
    if not colon:
        return None
    if scheme in ("postgresql", "postgres"):
        return _postgres(rest)
    if scheme == "sqlite":
        path, table = _split(rest, "sqlite:PATH#TABLE")
        if not path:
            raise ValueError("sqlite:PATH#TABLE needs a path")
        return SqlitePlace(Path(path).resolve(), unquote(table))
    if scheme == "parquet":
        if not rest:
            raise ValueError("parquet:DIRECTORY needs a directory")
        return ParquetPlace(Path(rest).resolve())
    raise ValueError(f"{scheme}: is not the address of a table; give {_SCHEMES}")


def _split(rest: str, form: str) -> tuple[str, str]:
    """Splits an address at its last #."""
    before, mark, table = rest.rpartition("#")
    if not mark or not table:
        raise ValueError(f"the address names no table; it must be {form}")
    if "\0" in unquote(table):
        raise ValueError("a table's name must not have a NUL in it")
    return before, table


def _postgres(rest: str) -> PostgresPlace:
    form = "postgresql://HOST/DATABASE#TABLE or #SCHEMA.TABLE"
    address, table = _split(rest, form)
    if not address.startswith("//"):
        raise ValueError(f"the address must be {form}")
    if set(table) & {"/", "@"}:
        raise ValueError(f"the address must be {form}; write # before that as %23, / and @ in a name as %2F and %40")
    parts = [unquote(part) for part in table.split(".")]
    if len(parts) > 2 or not all(parts):
        raise ValueError("a table's name must be TABLE or SCHEMA.TABLE; write another dot as %2E")
    where, question, query = address[2:].partition("?")
    user, _, hosts = where.rpartition("@")
    user = user.partition(":")[0]
    shown_query = urlencode([pair for pair in parse_qsl(query) if pair[0] in _SHOWN])
    shown = f"postgresql://{user}{'@' * bool(user)}{hosts}{'?' * bool(shown_query)}{shown_query}#{table}"
    conninfo = f"postgresql://{where}{question}{query}"
    return PostgresPlace(conninfo, parts[0] if len(parts) == 2 else None, parts[-1], shown)
