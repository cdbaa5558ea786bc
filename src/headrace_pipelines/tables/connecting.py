"""A session of PostgreSQL in which every text means one thing, whatever the role, the database or the locale has set.

Settings are set for the transaction, by the first statement in it, so that a pool between keeps none of them. Two are
not touched: the search path, where a table without a schema is looked for and where functions of the table's own
triggers are (names that we write have their schema), and what the server alone may set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.places import PostgresPlace

Connection = psycopg.Connection[tuple[Any, ...]]

SETTINGS: Final = {
    # the encoding of names, of texts and of copied data
    "client_encoding": "UTF8",
    # how literals and names are read and written
    "standard_conforming_strings": "on", "quote_all_identifiers": "off", "transform_null_equals": "off",
    "array_nulls": "on",
    # how values are read and written as texts
    "TimeZone": "UTC", "timezone_abbreviations": "Default", "DateStyle": "ISO, YMD", "IntervalStyle": "postgres",
    "extra_float_digits": "1", "bytea_output": "hex", "lc_monetary": "C", "xmlbinary": "base64",
    "xmloption": "content",
    # a batch waits for others, and ends by itself
    "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
}  # fmt: skip
"""What every session has. Those that a version of PostgreSQL does not know are left out."""
_SET: Final = """
SELECT {} pg_catalog.count(pg_catalog.set_config(name, value, true))
FROM ROWS FROM (pg_catalog.unnest(%s::pg_catalog.text[]), pg_catalog.unnest(%s::pg_catalog.text[])) AS s (name, value)
WHERE pg_catalog.current_setting(name, true) IS NOT NULL
"""
_TO_READ: Final = _SET.format("").encode()
_TO_WRITE: Final = _SET.format(
    """pg_catalog.current_setting('session_replication_role'), pg_catalog.set_config(
    'synchronous_commit', CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off' THEN 'on'
    ELSE pg_catalog.current_setting('synchronous_commit') END, true
),"""
).encode()
"""A batch that the server forgets in a crash would be behind the query's checkpoint."""


@contextmanager
def connected(place: PostgresPlace, *, writes: bool) -> Iterator[Connection]:
    """A connection and a transaction, which ends with the block. Raises `TableError` for what the database refuses."""
    try:
        psycopg.conninfo.conninfo_to_dict(place.conninfo)
    except psycopg.Error:
        # what it says repeats the address, password and all
        raise TableError(f"{place} is not an address that PostgreSQL's own client takes") from None
    try:
        # the encoding is asked for at once too: that of the database may be none of Python's
        encoding = SETTINGS["client_encoding"]
        with psycopg.connect(
            place.conninfo, client_encoding=encoding, fallback_application_name="headrace"
        ) as connection:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            if writes:
                connection.read_only = False
                _settle_writes(connection, place)
            else:
                # a policy of rows is the role's own view of the table
                _settle(connection, _TO_READ, row_security="on")
            yield connection
    except psycopg.Error as error:
        raise TableError(f"{place}: {refusal(error)}") from None


def refusal(error: psycopg.Error) -> str:
    """Returns the database's error message, in one line."""
    return error.diag.message_primary or next(iter(str(error).splitlines()), type(error).__name__)


def _settle_writes(connection: Connection, place: PostgresPlace) -> None:
    """Set what a session has that writes. Raises `TableError` if the role's own setting changes the written values."""
    # a policy would hide rows from deletes; without this it is refused
    role, *_ = _settle(connection, _TO_WRITE, row_security="off")
    if role != "origin":
        what = "so that PostgreSQL neither checks foreign keys nor fires triggers; set it to origin for the run's role"
        raise TableError(f"{place}: session_replication_role is {role}, {what}")


def _settle(connection: Connection, query: bytes, **more: str) -> tuple[Any, ...]:
    settings = {**SETTINGS, **more}
    return connection.execute(query, [list(settings), list(settings.values())]).fetchone() or ("",)
