"""Sessions of PostgreSQL whose role, database or environment has settings, and databases of other encodings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from headrace_pipelines.tables.connecting import SETTINGS, connected
from headrace_pipelines.tables.following import TableError, Topic
from headrace_pipelines.tables.layout import layout_of
from headrace_pipelines.tables.places import PostgresPlace, parse_place
from headrace_pipelines.tables.watching import Watch

from .databases import Database
from .round_trips import Record, changes_of, records_of

TOPIC = Topic("names")
LAYOUT = layout_of("name STRING", "j VARIANT, n BIGINT")
RECORDS: list[Record] = [("Müller".encode(), '{"j": {"ä": "ß"}, "n": 1}'.encode()), (b"x", '{"j": "é"}'.encode())]
WRITTEN = [("Müller", '{"ä": "ß"}', 1), ("x", '"é"', None)]
OTHERS = {
    "client_encoding": "LATIN1", "standard_conforming_strings": "off", "quote_all_identifiers": "on",
    "transform_null_equals": "on", "array_nulls": "off", "TimeZone": "Asia/Tokyo", "DateStyle": "German",
    "IntervalStyle": "iso_8601", "extra_float_digits": "-10", "bytea_output": "escape", "lc_monetary": "C.UTF-8",
    "xmlbinary": "hex", "xmloption": "document", "statement_timeout": "9s", "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "9s", "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on", "default_transaction_deferrable": "on", "timezone_abbreviations": "India",
}  # fmt: skip


def place_of(address: str) -> PostgresPlace:
    found = parse_place(f"{address}#names")
    assert isinstance(found, PostgresPlace)
    return found


def write(shop: Database) -> None:
    table = shop.target("names", LAYOUT)
    table.open(TOPIC, "run")
    table.apply(changes_of(RECORDS, LAYOUT, table))


@contextmanager
def encoded(postgres: Any, database: str, encoding: str) -> Iterator[Database]:
    """An empty database of that encoding."""
    with psycopg.connect(postgres.address("postgres"), autocommit=True) as connection:
        made = f"CREATE DATABASE {database}_{encoding} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
        connection.execute(made.encode())
    yield Database(postgres.address(f"{database}_{encoding}".lower()))


def as_utf8(shop: Database, expression: str, table: str = "names") -> list[str]:
    """Texts as the server itself gives them to a session that has asked for UTF-8, by their bytes."""
    with psycopg.connect(shop.address, client_encoding="UTF8") as connection:
        query = f"SELECT {expression} FROM {table} ORDER BY 1"
        return [text for (text,) in connection.execute(query.encode()).fetchall()]


@pytest.mark.parametrize("encoding", ["LATIN1", "LATIN9", "WIN1252", "EUC_JIS_2004", "SQL_ASCII"])
def test_databases_of_other_encodings(postgres: Any, database: str, encoding: str) -> None:
    """What was written is what is read, by everybody."""
    records = RECORDS
    if encoding in ("EUC_JIS_2004", "MULE_INTERNAL"):
        records = [("\u30df".encode(), b'{"n": 1}')]
    with encoded(postgres, database, encoding) as shop:
        table = shop.target("names", LAYOUT)
        table.open(TOPIC, "run")
        table.apply(changes_of(records, LAYOUT, table))
        names = sorted((key or b"").decode() for key, _ in records)
        if encoding == "SQL_ASCII":
            assert as_utf8(shop, "encode(name::bytea, 'hex')") == [name.encode().hex() for name in names]
        else:
            assert as_utf8(shop, "name") == names
        back = records_of(shop.source("names", Watch(("name",), "n")))
        assert [key for key, _ in back] == [records[0][0]]


def test_an_encoding_without_a_conversion_is_refused(postgres: Any, database: str) -> None:
    with encoded(postgres, database, "MULE_INTERNAL") as shop:
        with pytest.raises(TableError, match="conversion between UTF8 and MULE_INTERNAL is not supported"):
            write(shop)


@pytest.mark.parametrize("setting", OTHERS)
def test_what_a_role_has_set(postgres: Any, database: str, setting: str) -> None:
    shop = Database(postgres.address(database))
    with psycopg.connect(shop.address, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database} SET {setting} = '{OTHERS[setting]}'".encode())
    write(shop)
    with connected(place_of(shop.address), writes=False) as connection:
        found = connection.execute(b"SELECT name, j::text, n FROM names ORDER BY name").fetchall()
    assert found == WRITTEN
    assert [key for key, _ in records_of(shop.source("names", Watch(("name",), "n")))] == ["Müller".encode()]


def test_what_the_environment_says(postgres: Any, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    monkeypatch.setenv("PGDATESTYLE", "German")
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on -c quote_all_identifiers=on")
    shop = Database(f"{postgres.address(database)}?client_encoding=SQL_ASCII")
    for _ in range(2):
        write(shop)
    monkeypatch.delenv("PGOPTIONS")
    assert as_utf8(Database(postgres.address(database)), "name") == ["Müller", "x"]


@pytest.mark.parametrize("writes", [True, False])
def test_every_setting_is_as_it_says(postgres: Any, database: str, writes: bool) -> None:
    with psycopg.connect(postgres.address(database), autocommit=True) as connection:
        for setting, value in OTHERS.items():
            connection.execute(f"ALTER DATABASE {database} SET {setting} = '{value}'".encode())
    with connected(place_of(postgres.address(database)), writes=writes) as connection:
        shown = "SELECT current_setting(%s, true)"
        found = {name: connection.execute(shown.encode(), [name]).fetchone() for name in SETTINGS}
        assert {name: value for name, value in found.items() if value != (SETTINGS[name],)} in (
            {}, {"transaction_timeout": (None,)},
        )  # fmt: skip
        ((isolation, role),) = connection.execute(
            b"SELECT current_setting('transaction_isolation'), current_setting('row_security')"
        ).fetchall()
    assert (isolation, role) == ("read committed", "off" if writes else "on")


def test_what_cannot_be_set_is_refused(postgres: Any, database: str) -> None:
    with psycopg.connect(postgres.address(database), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database} SET session_replication_role = 'replica'".encode())
    with pytest.raises(
        TableError, match="session_replication_role is replica, so that PostgreSQL neither checks foreign"
    ):
        write(Database(postgres.address(database)))


def test_a_policy_that_would_hide_rows(postgres: Any, database: str) -> None:
    """Writing is refused; reading reads what the role sees."""
    with psycopg.connect(postgres.address(database), autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS tenant_{database}".encode())
        connection.execute(f"CREATE ROLE tenant_{database} LOGIN PASSWORD 'tenant'".encode())
        connection.execute(b"CREATE TABLE names (name text PRIMARY KEY, j jsonb, n bigint)")
        connection.execute(b"INSERT INTO names VALUES ('mine', NULL, 1), ('theirs', NULL, 2)")
        connection.execute(b"ALTER TABLE names ENABLE ROW LEVEL SECURITY")
        connection.execute(b"CREATE POLICY mine ON names USING (name = 'mine')")
        connection.execute(f"GRANT ALL ON names TO tenant_{database}".encode())
        connection.execute(f"GRANT ALL ON SCHEMA public TO tenant_{database}".encode())
    shop = Database(f"postgresql://tenant_{database}:tenant@127.0.0.1:{postgres.port}/{database}")
    with pytest.raises(TableError, match="query would be affected by row-level security policy"):
        write(shop)
    assert [key for key, _ in records_of(shop.source("names", Watch(("name",), "n")))] == [b"mine"]


def test_a_batch_that_the_query_counts_on_is_on_disk(postgres: Any, database: str) -> None:
    """The server is set to forget the last transactions in a crash."""
    with connected(place_of(postgres.address(database)), writes=True) as connection:
        assert connection.execute(b"SHOW synchronous_commit").fetchone() == ("on",)
