"""Any rows of a database, sent to a topic and read from it into another table, are the same rows."""

from __future__ import annotations

import base64
import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace_pipelines.tables import read_table
from headrace_pipelines.tables.layout import Layout, layout_of
from headrace_pipelines.tables.parquet import ParquetTable
from headrace_pipelines.tables.places import ParquetPlace
from headrace_pipelines.tables.times import DAY_MICROS, text_of_days, text_of_micros
from headrace_pipelines.tables.watching import Watch

from .databases import Database
from .round_trips import carry

WATCH = Watch(("id",), "id")
FLOATS = st.floats() | st.sampled_from([0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e22, 123456789012345680.0])
FLOATS_32 = st.floats(width=32)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(
    ["NaN", "infinity", "null", "\\N", "\\x00", '"', "QQ==", "{}", "\\u0000", "\x1f"]
)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
ENDS = st.sampled_from(["infinity", "-infinity"])
DATES = ENDS | st.integers(-2_440_500, 2_145_000_000).map(text_of_days) | st.dates().map(str)
PLAIN_TIMES = st.datetimes(timezones=st.just(UTC))
MOMENTS = st.integers(-2_440_500 * DAY_MICROS, (1 << 63) - 2) | PLAIN_TIMES.map(
    lambda at: (at - datetime(1970, 1, 1, tzinfo=UTC)) // datetime.resolution
)
ZONED = ENDS | MOMENTS.map(lambda micros: text_of_micros(micros, zoned=True))
LOCAL = ENDS | MOMENTS.map(lambda micros: text_of_micros(micros, zoned=False))
DECIMALS = st.decimals(-(10**15) + 1, 10**15 - 1, places=5)
ANY_JSON = (
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    )
    .map(json.dumps)
    .filter(lambda text: text != "null")
)
"""But for null itself, which a record does not tell from no JSON at all."""


def rows(*columns: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Rows of these columns, each of which may be null, behind a number."""
    row = st.tuples(*(st.none() | column for column in columns))
    return st.lists(row, max_size=6).map(lambda found: [(number, *each) for number, each in enumerate(found)])


POSTGRES = {
    "b": "boolean", "i2": "smallint", "i4": "integer", "i8": "bigint", "r": "real", "d": "double precision",
    "n": "numeric(20,5)", "s": "text", "day": "date", "ts": "timestamptz", "tn": "timestamp", "y": "bytea",
    "j": "jsonb",
}  # fmt: skip
POSTGRES_LAYOUT = layout_of(
    "id BIGINT",
    "b BOOLEAN, i2 SMALLINT, i4 INT, i8 BIGINT, r FLOAT, d DOUBLE, n DECIMAL(20, 5), s STRING, day DATE, "
    "ts TIMESTAMP, tn TIMESTAMP_NTZ, y BINARY, j VARIANT",
)
POSTGRES_ROWS = rows(
    st.booleans(), st.integers(-(1 << 15), (1 << 15) - 1), st.integers(-(1 << 31), (1 << 31) - 1), INTEGERS,
    FLOATS_32, FLOATS, DECIMALS, TEXTS, DATES, ZONED, LOCAL, st.binary(), ANY_JSON,
)  # fmt: skip
SQLITE_LAYOUT = layout_of("id BIGINT", "b BOOLEAN, i BIGINT, d DOUBLE, s STRING, y BINARY, j VARIANT, at TIMESTAMP")
SQLITE_ROWS = rows(
    st.booleans(), INTEGERS, FLOATS, TEXTS | st.just("a\0b"), st.binary(), ANY_JSON | st.just("1.50"), ZONED
)


@pytest.fixture
def connection(postgres: Any, database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.address(database), autocommit=True) as opened:
        yield opened


def relaxed(examples: int) -> settings:
    return settings(max_examples=tried(examples), suppress_health_check=[HealthCheck.function_scoped_fixture])


def fill(connection: psycopg.Connection[Any], found: list[tuple[Any, ...]]) -> None:
    """The table `items` anew, and no other one; rows go in as texts, so that PostgreSQL says what they mean."""
    columns = ", ".join(f"{name} {kind}" for name, kind in POSTGRES.items())
    for table in ("items", "copy", "headrace_table_sync"):
        connection.execute(f"DROP TABLE IF EXISTS {table}".encode())
    connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, {columns})".encode())
    marks = ", ".join(f"%s::{kind}" for kind in ("bigint", *POSTGRES.values()))
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO items VALUES ({marks})".encode(), found)


def texts_of(connection: psycopg.Connection[Any], table: str) -> list[Any]:
    columns = ", ".join(f"{name}::text" for name in ("id", *POSTGRES))
    return connection.execute(f"SELECT {columns} FROM {table} ORDER BY id".encode()).fetchall()


@pytest.mark.slow
@relaxed(40)
@given(found=POSTGRES_ROWS)
def test_postgres_to_postgres(
    postgres: Any, database: str, connection: psycopg.Connection[Any], found: list[tuple[Any, ...]]
) -> None:
    fill(connection, found)
    shop = Database(postgres.address(database))
    carry(shop.source("items", WATCH), POSTGRES_LAYOUT, shop.target("copy", POSTGRES_LAYOUT))
    wanted = texts_of(connection, "items")
    assert len(wanted) == len(found) and texts_of(connection, "copy") == wanted


@relaxed(15)
@given(found=POSTGRES_ROWS)
def test_postgres_to_sqlite_and_back(
    postgres: Any, database: str, connection: psycopg.Connection[Any], found: list[tuple[Any, ...]]
) -> None:
    """What SQLite has no type for is text there, and the same again behind it. It has no zero below zero."""
    fill(connection, [tuple(0.0 if type(item) is float and item == 0 else item for item in row) for row in found])
    shop = Database(postgres.address(database))
    with TemporaryDirectory() as directory:
        between = Database(f"sqlite:{directory}/shop.db", Path(directory) / "shop.db")
        carry(shop.source("items", WATCH), POSTGRES_LAYOUT, between.target("middle", POSTGRES_LAYOUT))
        carry(between.source("middle", WATCH), POSTGRES_LAYOUT, shop.target("copy", POSTGRES_LAYOUT))
    wanted = texts_of(connection, "items")
    assert len(wanted) == len(found) and texts_of(connection, "copy") == wanted


@relaxed(100)
@given(found=SQLITE_ROWS)
def test_sqlite_to_sqlite(found: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "shop.db"
        shop = Database(f"sqlite:{file}", file)
        columns = "b BOOLEAN, i INTEGER, d REAL, s TEXT, y BLOB, j JSON TEXT, at TEXT"
        with closing(sqlite3.connect(file)) as opened, opened:
            opened.execute(f"CREATE TABLE items (id INTEGER PRIMARY KEY, {columns})")
            opened.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?)", found)
        records = carry(shop.source("items", WATCH), SQLITE_LAYOUT, shop.target("copy", SQLITE_LAYOUT))
        assert [key for key, _ in records] == [str(row[0]).encode() for row in found]
        for _, value in records:
            json.loads(value or b"", parse_constant=pytest.fail)
        shown = "id, typeof(b), b, i, typeof(d), d, s, typeof(y), y, j, at"
        assert shop.run(f"SELECT {shown} FROM copy") == shop.run(f"SELECT {shown} FROM items")


PLAIN = st.tuples(
    st.booleans(), INTEGERS, FLOATS, DECIMALS, TEXTS, st.dates(),
    PLAIN_TIMES, st.binary(),
)  # fmt: skip
PLAIN_LAYOUT = layout_of(
    "id BIGINT", "b BOOLEAN, i BIGINT, d DOUBLE, n DECIMAL(20, 5), s STRING, day DATE, at TIMESTAMP, y BINARY"
)
PLAIN_COLUMNS = {
    "b": "boolean",
    "i": "bigint",
    "d": "double precision",
    "n": "numeric(20,5)",
    "s": "text",
    "day": "date",
}


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return isinstance(found, float) and (found == wanted or (math.isnan(found) and math.isnan(wanted)))
    return bool(found == wanted) and type(found) is type(wanted)


@relaxed(20)
@given(found=st.lists(PLAIN, max_size=5))
def test_postgres_and_sqlite_to_parquet(
    postgres: Any, database: str, connection: psycopg.Connection[Any], found: list[tuple[Any, ...]]
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in PLAIN_COLUMNS.items())
    connection.execute(b"DROP TABLE IF EXISTS items")
    connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, {columns}, at timestamptz, y bytea)".encode())
    given_rows = [(number, *row) for number, row in enumerate(found)]
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO items VALUES ({', '.join(['%s'] * 9)})".encode(), given_rows)
    shop = Database(postgres.address(database))
    with TemporaryDirectory() as directory:
        between = Database(f"sqlite:{directory}/shop.db", Path(directory) / "shop.db")
        carry(shop.source("items", WATCH), PLAIN_LAYOUT, between.target("middle", PLAIN_LAYOUT))
        for name, source in (("one", shop.source("items", WATCH)), ("two", between.source("middle", WATCH))):
            table = ParquetTable(ParquetPlace(Path(directory) / name), PLAIN_LAYOUT, buckets=2)
            carry(source, PLAIN_LAYOUT, table)
            table.close()
            read = [tuple(row.values()) for row in read_table(Path(directory) / name).sort_by("id").to_pylist()]
            assert len(read) == len(given_rows)
            for there, wanted in zip(read, given_rows, strict=True):
                assert all(map(same, there, wanted)), (there, wanted)


KEYS: dict[str, tuple[str, str, list[Any]]] = {
    "integer": ("bigint", "BIGINT", [-(1 << 63), 0, 7]),
    "text": ("text", "STRING", ["", " 7 ", "null", "ß\n\\", '"x"', "007"]),
    "truth": ("boolean", "BOOLEAN", [False, True]),
    "double": ("double precision", "DOUBLE", [-math.inf, -1e22, 0.1, 5e-324, math.inf]),
    "nan": ("double precision", "DOUBLE", [0.5, math.nan]),
    "decimal": ("numeric(12,3)", "DECIMAL(12, 3)", [Decimal("-1.500"), Decimal("0.001")]),
    "bytes": ("bytea", "BINARY", [b"", b"\0\xff", b"x" * 60]),
    "date": ("date", "DATE", ["0044-03-15 BC", "2026-01-02", "12026-01-02", "infinity", "-infinity"]),
    "time": ("timestamptz", "TIMESTAMP", ["0044-03-15 12:00:00+00 BC", "2026-01-02 03:04:05.000006+00", "infinity"]),
    "local time": ("timestamp", "TIMESTAMP_NTZ", ["2026-01-02 03:04:05", "-infinity"]),
}


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(postgres: Any, database: str, kind: str, form: str) -> None:
    """As a key alone, and as one of two, through SQLite and back; also where a page begins behind them."""
    type_there, type_here, keys = KEYS[kind]
    shop = Database(postgres.address(database))
    two = form == "json"
    with psycopg.connect(shop.address, autocommit=True) as connection:
        primary = (
            f"k {type_there}, o int, n int, PRIMARY KEY (k, o)" if two else f"k {type_there} PRIMARY KEY, o int, n int"
        )
        connection.execute(f"CREATE TABLE items ({primary})".encode())
        for number, key in enumerate(keys):
            connection.execute(f"INSERT INTO items VALUES (%s::{type_there}, 1, %s)".encode(), [key, number % 2])
    key_schema, value_schema = (f"k {type_here}, o INT", "n INT") if two else (f"k {type_here}", "o INT, n INT")
    layout = layout_of(key_schema, value_schema)
    watch = Watch(("k", "o") if two else ("k",), "n")
    with TemporaryDirectory() as directory:
        between = Database(f"sqlite:{directory}/shop.db", Path(directory) / "shop.db")
        carry(shop.source("items", watch), layout, between.target("middle", layout))
        records = carry(between.source("middle", watch), layout, shop.target("copy", layout))
    assert len(records) == len(keys)
    shown = "SELECT k::text, o, n FROM {} ORDER BY k"
    assert shop.run(shown.format("copy")) == shop.run(shown.format("items"))


def test_values_within_values(postgres: Any, database: str) -> None:
    """Arrays, maps and rows hold every kind of value too."""
    layout: Layout = layout_of(
        "id BIGINT",
        "d ARRAY<DOUBLE>, y ARRAY<BINARY>, ts ARRAY<TIMESTAMP>, row STRUCT<a: DECIMAL(9, 2), day: DATE>, "
        "m MAP<STRING, FLOAT>",
    )
    shop = Database(postgres.address(database))
    with psycopg.connect(shop.address, autocommit=True) as connection:
        connection.execute(b"CREATE TYPE pair AS (a numeric(9,2), day date)")
        columns = b"d float8[], y bytea[], ts timestamptz[], row pair, m jsonb"
        connection.execute(b"CREATE TABLE items (id int PRIMARY KEY, " + columns + b")")
        values = "{NaN,1.5,NULL,-Infinity}", "{infinity,NULL,2026-01-02 03:04:05.000006+00}", '{"x": "NaN", "y": 0.5}'
        connection.execute(
            b"INSERT INTO items VALUES (1, %s, ARRAY['\\x00ff'::bytea], %s, ROW(1.50, 'infinity'), %s)", values
        )
    carry(shop.source("items", WATCH), layout, shop.target("copy", layout))
    ((d, y, ts, row, m),) = shop.run("SELECT d, y, ts, row, m FROM copy")
    assert d == ["NaN", 1.5, None, "-Infinity"]
    assert y == [base64.b64encode(b"\x00\xff").decode()]
    assert ts == ["infinity", None, "2026-01-02 03:04:05.000006Z"]
    assert (row, m) == ({"a": 1.5, "day": "infinity"}, {"x": "NaN", "y": 0.5})
    with TemporaryDirectory() as directory:
        table = ParquetTable(ParquetPlace(Path(directory)), layout, buckets=1)
        carry(shop.source("items", WATCH), layout, table)
        table.close()
        (found,) = read_table(directory).to_pylist()
    assert math.isnan(found["d"][0]) and found["d"][1:] == [1.5, None, -math.inf]
    assert found["y"] == [b"\x00\xff"]
    assert found["ts"][0] == datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "Parquet has no time without end"
    assert found["row"] == {"a": Decimal("1.50"), "day": date(9999, 12, 31)}
