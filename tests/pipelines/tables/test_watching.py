"""A table's changes, read from a real PostgreSQL and from SQLite: what is sent, and what is sent again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.moments import Position, look_back_of
from headrace_pipelines.tables.watching import Acknowledged, Watch, Watcher

from .databases import Database

WATCH = Watch(("id",), "changed", "deleted")


class Sent:
    """What a watcher has sent; `fails` makes the next send fail."""

    def __init__(self) -> None:
        self.records: list[tuple[str, Any]] = []
        self.fails = False

    def __call__(self, rows: pa.RecordBatch) -> None:
        if self.fails:
            raise ConnectionError("the brokers are gone")
        values = [None if value is None else json.loads(value) for value in rows["value"].to_pylist()]
        self.records += zip(rows["key"].to_pylist(), values, strict=True)

    def take(self) -> list[tuple[str, Any]]:
        taken, self.records = self.records, []
        return taken


def items(shop: Database, *rows: str) -> None:
    shop.run("CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT, changed BIGINT, deleted BOOLEAN DEFAULT FALSE)")
    insert(shop, *rows)


def insert(shop: Database, *rows: str) -> None:
    shop.run(f"INSERT INTO items (id, name, changed) VALUES {', '.join(rows)}")


def watcher(
    shop: Database,
    directory: Path,
    sent: Sent,
    look_back: str = "10",
    watch: Watch = WATCH,
    table: str = "items",
    say: Callable[[str], None] = print,
) -> Watcher:
    """In pages of three rows."""
    source = shop.source(table, watch, say)
    source.check()
    return Watcher(source, Acknowledged(sent, Position(directory)), look_back_of(look_back), 3)


def look(each: Watcher) -> int:
    return sum(page.sent for page in each.look())


def ids(sent: Sent) -> list[int]:
    return [int(key) for key, _ in sent.take()]


def test_what_is_there_then_what_changes(shop: Database, tmp_path: Path) -> None:
    items(shop, "(1, 'one', 5)", "(2, 'two', 5)", "(3, 'three', 5)", "(4, 'four', 5)", "(7, 'seven', NULL)")
    insert(shop, "(5, 'five', 6)", "(6, NULL, 3)")
    sent = Sent()
    running = watcher(shop, tmp_path, sent)
    assert look(running) == 6
    assert [key for key, _ in sent.records] == ["6", "1", "2", "3", "4", "5"], "pages of three, ties among them"
    assert sent.take()[0][1] == {"id": 6, "name": None, "changed": 3}
    assert look(running) == 0
    shop.run("UPDATE items SET name = 'zwei', changed = 7 WHERE id = 2")
    assert (look(running), sent.take()) == (1, [("2", {"id": 2, "name": "zwei", "changed": 7})])
    shop.run("UPDATE items SET name = 'uno' WHERE id = 1")
    assert look(running) == 1, "within the look-back a change is seen even where the column did not increase"


def test_late_commits_are_found_as_far_as_the_look_back_goes(shop: Database, tmp_path: Path) -> None:
    items(shop, "(1, 'x', 100)")
    sent = Sent()
    running = watcher(shop, tmp_path, sent)
    look(running)
    insert(shop, "(2, 'late', 90)", "(3, 'too late', 89)")
    sent.take()
    assert look(running) == 1
    assert ids(sent) == [2]
    insert(shop, "(4, 'ahead', 120)")
    look(running)
    insert(shop, "(5, 'late', 110)", "(6, 'too late', 109)")
    look(running)
    assert ids(sent) == [4, 5]


def test_a_transaction_that_commits_late(postgres: Any, database: str, tmp_path: Path) -> None:
    """It wrote before what was read and sent, and commits after."""
    shop = Database(postgres.address(database))
    shop.run("CREATE TABLE items (id INT PRIMARY KEY, changed TIMESTAMPTZ DEFAULT clock_timestamp())")
    sent = Sent()
    watch = Watch(("id",), "changed")
    running = watcher(shop, tmp_path, sent, "1m", watch=watch)
    with psycopg.connect(shop.address) as slow:
        slow.execute("INSERT INTO items (id) VALUES (1)")
        shop.run("INSERT INTO items (id) VALUES (2)")
        look(running)
        assert ids(sent) == [2]
    look(running)
    assert ids(sent) == [1]
    assert look(running) == 0


def test_a_restart_goes_on_and_sends_the_look_back_again(shop: Database, tmp_path: Path) -> None:
    items(shop, *(f"({n}, 'x', {n})" for n in range(50)))
    sent = Sent()
    look(watcher(shop, tmp_path, sent))
    assert ids(sent) == [*range(50)]
    insert(shop, "(50, 'x', 50)", "(100, 'late', 2)")
    look(watcher(shop, tmp_path, sent))
    assert ids(sent) == [*range(39, 51)], "10 before the position, 49"
    look(watcher(shop, tmp_path, sent, "0"))
    assert ids(sent) == [50]


def test_the_position_waits_for_the_brokers(shop: Database, tmp_path: Path) -> None:
    items(shop, *(f"({n}, 'x', {n})" for n in range(7)))
    sent = Sent()
    running = watcher(shop, tmp_path, sent, "0")
    pages = running.look()
    next(pages)
    sent.fails = True
    with pytest.raises(ConnectionError):
        next(pages)
    assert Position(tmp_path).moment == 2
    sent.fails = False
    sent.take()
    look(watcher(shop, tmp_path, sent, "0"))
    assert ids(sent) == [2, 3, 4, 5, 6]


def test_soft_deletes_are_nulls(shop: Database, tmp_path: Path) -> None:
    items(shop, "(1, 'one', 1)", "(2, 'two', 1)")
    sent = Sent()
    running = watcher(shop, tmp_path, sent)
    look(running)
    sent.take()
    shop.run("UPDATE items SET deleted = TRUE, changed = 2 WHERE id = 1")
    look(running)
    assert sent.take() == [("1", None)]
    shop.run("UPDATE items SET deleted = FALSE, changed = 3 WHERE id = 1")
    look(running)
    assert sent.take() == [("1", {"id": 1, "name": "one", "changed": 3})]
    shop.run("DELETE FROM items WHERE id = 2")
    assert look(running) == 0, "a row that is gone is not seen"


def test_deleted_by_a_time_and_keys_of_several_columns(shop: Database, tmp_path: Path) -> None:
    shop.run('CREATE TABLE items ("sh%p" TEXT, no INT, at TEXT, gone TEXT, PRIMARY KEY ("sh%p", no))')
    shop.run("INSERT INTO items VALUES ('a', 1, '2026-01-01 08:00:00', NULL)")
    shop.run("INSERT INTO items VALUES ('a', 2, '2026-01-01 08:00:05', '2026-01-01')")
    sent = Sent()
    watch = Watch(("sh%p", "no"), "at", "gone")
    running = watcher(shop, tmp_path, sent, "1m", watch=watch)
    look(running)
    one = {"sh%p": "a", "no": 1, "at": "2026-01-01 08:00:00"}
    assert [(json.loads(key), value) for key, value in sent.records] == [
        ({"sh%p": "a", "no": 1}, one), ({"sh%p": "a", "no": 2}, None),
    ]  # fmt: skip
    sent.take()
    shop.run("INSERT INTO items VALUES ('b', 1, '2026-01-01 07:59:05', NULL), ('b', 2, '2026-01-01 07:59:04', NULL)")
    look(running)
    assert [json.loads(key)["no"] for key, _ in sent.take()] == [1]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date", "numeric", "real"])
def test_columns_that_increase_in_postgres(postgres: Any, database: str, tmp_path: Path, kind: str) -> None:
    shop = Database(postgres.address(database))
    value = "(DATE '2026-01-01' + %d)" if kind in ("timestamp", "timestamptz", "date") else "%d.5"
    back = "1d" if "DATE" in value else "1"
    shop.run(f"CREATE TABLE items (id INT PRIMARY KEY, changed {kind})")
    for number in range(5):
        shop.run(f"INSERT INTO items VALUES ({number}, {value % number})")
    sent = Sent()
    watch = Watch(("id",), "changed")
    look(watcher(shop, tmp_path, sent, back, watch=watch))
    assert ids(sent) == [0, 1, 2, 3, 4]
    look(watcher(shop, tmp_path, sent, back, watch=watch))
    assert ids(sent) == [3, 4]


@pytest.mark.parametrize("least", [10**34 + 7_000_000, 10**400], ids=["of 35 digits", "beyond floats"])
def test_numbers_of_many_digits(postgres: Any, database: str, tmp_path: Path, least: int) -> None:
    """The position and the look-back have all of them."""
    shop = Database(postgres.address(database))
    shop.run("CREATE TABLE items (id INT PRIMARY KEY, changed NUMERIC)")
    shop.run(f"INSERT INTO items SELECT n, {least}::numeric + n FROM generate_series(1, 20) n")
    sent = Sent()
    running = watcher(shop, tmp_path, sent, watch=Watch(("id",), "changed"))
    look(running)
    assert ids(sent) == [*range(1, 21)] and Position(tmp_path).moment == least + 20
    shop.run(f"INSERT INTO items SELECT n, {least}::numeric + n FROM generate_series(21, 30) n")
    look(running)
    assert ids(sent) == [*range(21, 31)]
    look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "changed")))
    assert ids(sent) == [*range(20, 31)]


def test_what_is_remembered_is_bounded_by_the_look_back(shop: Database, tmp_path: Path) -> None:
    items(shop, *(f"({n}, 'x', {n})" for n in range(90)))
    running = watcher(shop, tmp_path, Sent())
    assert max(page.remembered for page in running.look()) < 30


@pytest.mark.parametrize(
    ("watch", "words"),
    [
        (Watch(("id",), "at"), "has no column 'at'; it has id, name, changed, deleted"),
        (Watch(("no",), "changed"), "has no column 'no'"),
        (Watch(("id",), "changed", "gone"), "has no column 'gone'"),
        (Watch(("id",), "changed", included=("id", "no")), "has no column 'no'"),
        (Watch(("id",), "changed", excluded=("no",)), "has no column 'no'"),
        (Watch(("id",), "changed", excluded=("id", "name", "changed", "deleted")), "has no column left for the value"),
        (Watch(("name",), "changed"), "no primary key or unique index of name, so name cannot be the key"),
    ],
)
def test_a_table_that_cannot_be_read(shop: Database, tmp_path: Path, watch: Watch, words: str) -> None:
    items(shop, "(1, 'x', 1)")
    with pytest.raises(TableError) as complaint:
        watcher(shop, tmp_path, Sent(), watch=watch)
    assert words in str(complaint.value)
    with pytest.raises(TableError, match="does not exist"):
        watcher(shop, tmp_path, Sent(), table="no_items")


def test_what_is_no_position_is_said_before_anything_is_sent(shop: Database, tmp_path: Path) -> None:
    items(shop, "(1, 'x', 1)")
    sent = Sent()
    for watch, back, words in (
        (WATCH, "1m", "the look-back is a time, and the increasing column holds numbers"),
        (Watch(("id",), "name"), "1m", "'x', which is neither a number nor a time"),
    ):
        with pytest.raises(TableError, match=words):
            look(watcher(shop, tmp_path, sent, back, watch=watch))
    assert (sent.records, list(tmp_path.glob("position*"))) == ([], [])
    look(watcher(shop, tmp_path, sent))
    sent.take()
    shop.run("CREATE TABLE others (id BIGINT PRIMARY KEY, changed TEXT)")
    shop.run("INSERT INTO others VALUES (1, '2026-01-01')")
    with pytest.raises(TableError):
        look(watcher(shop, tmp_path, sent, table="others", watch=Watch(("id",), "changed")))
    assert sent.records == []


@pytest.mark.parametrize(
    ("included", "excluded", "columns"),
    [
        ((), (), {"id": 1, "name": "one", "changed": 5}),
        (("name", "id"), (), {"id": 1, "name": "one"}),
        ((), ("id", "changed"), {"name": "one"}),
    ],
)
def test_columns_are_included_and_excluded(
    shop: Database, tmp_path: Path, included: tuple[str, ...], excluded: tuple[str, ...], columns: dict[str, Any]
) -> None:
    """The key is the key all the same, and the order the order."""
    items(shop, "(1, 'one', 5)")
    sent = Sent()
    look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "changed", "deleted", included, excluded)))
    assert sent.take() == [("1", columns)]


def test_columns_that_come_and_go_are_seen_and_said(shop: Database, tmp_path: Path) -> None:
    items(shop, "(1, 'one', 1)", "(2, 'two', 50)")
    sent = Sent()
    said: list[str] = []
    running = watcher(shop, tmp_path, sent, say=said.append)
    assert (look(running), said) == (2, [])
    sent.take()
    shop.run("ALTER TABLE items ADD COLUMN colour TEXT DEFAULT 'red'")
    insert(shop, "(3, 'three', 51)")
    look(running)
    assert sent.take() == [
        ("2", {"id": 2, "name": "two", "changed": 50, "colour": "red"}),
        ("3", {"id": 3, "name": "three", "changed": 51, "colour": "red"}),
    ], "those within the look-back are read again, and are others"
    (line,) = said
    assert line.endswith("#items has new columns: 'colour'; a row sent before gets them when it changes")
    assert (look(running), len(said)) == (0, 1)
    shop.run("ALTER TABLE items DROP COLUMN name")
    shop.run("UPDATE items SET changed = 60 WHERE id = 1")
    look(running)
    assert sent.take()[-1] == ("1", {"id": 1, "changed": 60, "colour": "red"})
    assert said[1].endswith("#items has lost columns: 'name'; the run sends rows without them from now on")
    shop.run("ALTER TABLE items DROP COLUMN deleted")
    with pytest.raises(TableError, match="has no column 'deleted'; it has id, changed, colour"):
        look(running)


def test_columns_that_are_not_read_come_unsaid(shop: Database, tmp_path: Path) -> None:
    items(shop, "(1, 'one', 1)")
    said: list[str] = []
    sent = Sent()
    running = watcher(shop, tmp_path, sent, watch=Watch(("id",), "changed", included=("name",)), say=said.append)
    look(running)
    shop.run("ALTER TABLE items ADD COLUMN colour TEXT")
    assert (look(running), said) == (0, [])


def test_a_column_of_another_type(postgres: Any, database: str, tmp_path: Path) -> None:
    shop = Database(postgres.address(database))
    items(shop, *(f"({n}, 'x', {n})" for n in range(7)))
    sent = Sent()
    running = watcher(shop, tmp_path, sent)
    look(running)
    sent.take()
    shop.run("ALTER TABLE items ALTER COLUMN id TYPE numeric(20, 2), ALTER COLUMN name TYPE bytea USING name::bytea")
    look(running)
    assert sent.take()[-1] == ("6.00", {"id": 6.0, "name": "eA==", "changed": 6})


@pytest.mark.parametrize("kind", ["float8", "real", "numeric", "date", "timestamp", "timestamptz"])
def test_rows_whose_increasing_column_is_without_end(postgres: Any, database: str, tmp_path: Path, kind: str) -> None:
    """They are sent, and when they change sent again; the position stays with the others."""
    shop = Database(postgres.address(database))
    times = kind in ("date", "timestamp", "timestamptz")
    one, two, odd = ("2026-01-01", "2026-01-05", "12026-01-01") if times else ("1.1", "50.3", "NaN")
    shop.run(f"CREATE TABLE items (id INT PRIMARY KEY, changed {kind}, note TEXT)")
    values = enumerate((one, "infinity", "-infinity", odd))
    shop.run("INSERT INTO items VALUES " + ", ".join(f"({n}, '{value}', 'x')" for n, value in values))
    sent = Sent()
    running = watcher(shop, tmp_path, sent, "1d" if times else "1", watch=Watch(("id",), "changed"))
    look(running)
    assert sorted(ids(sent)) == [0, 1, 2, 3]
    assert look(running) == 0
    shop.run(f"INSERT INTO items VALUES (4, '{two}', 'x')")
    shop.run("UPDATE items SET note = 'y' WHERE id IN (1, 3)")
    look(running)
    assert sorted(ids(sent)) == [1, 3, 4]
    assert look(running) == 0
    assert str(Position(tmp_path).moment).startswith(two)


def test_many_rows_of_one_inexact_number(postgres: Any, database: str, tmp_path: Path) -> None:
    """A place in a column of half the digits is that place, and no page comes twice."""
    shop = Database(postgres.address(database))
    shop.run("CREATE TABLE items (id CHAR(3) PRIMARY KEY, changed REAL)")
    shop.run("INSERT INTO items SELECT n::text, 0.1 FROM generate_series(1, 20) n")
    sent = Sent()
    look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "changed")))
    assert sorted(ids(sent)) == [*range(1, 21)]


def test_times_that_python_has_not_in_a_deleted_column(postgres: Any, database: str, tmp_path: Path) -> None:
    shop = Database(postgres.address(database))
    shop.run("CREATE TABLE items (id INT PRIMARY KEY, gone TIMESTAMPTZ)")
    shop.run("INSERT INTO items VALUES (1, NULL), (2, 'infinity'), (3, '0044-03-15 BC')")
    sent = Sent()
    look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "id", "gone")))
    assert sent.take() == [("1", {"id": 1}), ("2", None), ("3", None)]


def test_what_the_user_has_set_changes_no_text(postgres: Any, database: str, tmp_path: Path) -> None:
    shop = Database(postgres.address(database))
    for setting in (
        "DateStyle = 'German'", "TimeZone = 'Asia/Tokyo'", "extra_float_digits = -10", "bytea_output = 'escape'",
        "IntervalStyle = 'iso_8601'", "client_encoding = 'LATIN1'", "quote_all_identifiers = on",
        "default_transaction_isolation = 'serializable'", "standard_conforming_strings = off",
    ):  # fmt: skip
        shop.run(f"ALTER DATABASE {database} SET {setting}")
    shop.run("CREATE TABLE items (at TIMESTAMPTZ PRIMARY KEY, f FLOAT8, y BYTEA[], i INTERVAL, s TEXT)")
    shop.run(
        "INSERT INTO items VALUES ('2026-01-02 00:00:00+00', 1/3::float8, ARRAY[decode('00ff', 'hex')], '90 min', "
        "chr(252))"
    )
    sent = Sent()
    look(watcher(shop, tmp_path, sent, "1m", watch=Watch(("at",), "at")))
    at = "2026-01-02T00:00:00+00:00"
    assert sent.take() == [(at, {"at": at, "f": 1 / 3, "y": ["\\x00ff"], "i": "01:30:00", "s": "ü"})]


def test_domains_are_what_they_are_made_of(postgres: Any, database: str, tmp_path: Path) -> None:
    shop = Database(postgres.address(database))
    shop.run("CREATE DOMAIN bytes AS bytea; CREATE DOMAIN more AS bytes; CREATE DOMAIN day AS date")
    shop.run("CREATE TABLE items (day day PRIMARY KEY, y more)")
    shop.run("INSERT INTO items VALUES ('infinity', '\\x00ff'), ('2026-01-02', NULL)")
    sent = Sent()
    look(watcher(shop, tmp_path, sent, "1d", watch=Watch(("day",), "day")))
    assert [(key, value["y"]) for key, value in sent.take()] == [("2026-01-02", None), ("infinity", "AP8=")]


def test_whatever_sqlite_holds_is_json(tmp_path: Path) -> None:
    shop = Database(f"sqlite:{tmp_path / 'shop.db'}", tmp_path / "shop.db")
    values = [float("inf"), float("-inf"), b"\0\xff", 0.1 + 0.2, 1 << 62, "a\0b", None, 1e-320, "ü", b"", 2.0]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as file, file:
        file.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, x, j JSON TEXT, b BOOL)")
        file.executemany(
            "INSERT INTO items VALUES (?, ?, '{\"a\": [1.50]}', ?)", [(n, v, n % 3) for n, v in enumerate(values)]
        )
        file.execute("INSERT INTO items VALUES (99, 'x', 'no {json', 'yes')")
    sent = Sent()
    look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "id")))
    rows = [value for _, value in sent.take()]
    wanted = ["Infinity", "-Infinity", "AP8=", 0.1 + 0.2, 1 << 62, "a\0b", None, 1e-320, "ü", "", 2.0, "x"]
    assert [row["x"] for row in rows] == wanted
    assert rows[0] == {"id": 0, "x": "Infinity", "j": {"a": [1.5]}, "b": False}
    assert [row["b"] for row in rows[1:3]] == [True, 2]
    assert (rows[-1]["j"], rows[-1]["b"]) == ("no {json", "yes")


def test_a_text_of_sqlite_that_is_no_text(tmp_path: Path) -> None:
    shop = Database(f"sqlite:{tmp_path / 'shop.db'}", tmp_path / "shop.db")
    shop.run("CREATE TABLE items (id INTEGER PRIMARY KEY, s TEXT)")
    shop.run("INSERT INTO items VALUES (1, CAST(x'ff' AS TEXT))")
    sent = Sent()
    with pytest.raises(
        TableError, match="column 's' has a text that is not UTF-8; --exclude-column leaves the column out"
    ):
        look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "id")))
    assert look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "id", excluded=("s",)))) == 1


DELETED_COLUMNS = [
    ("boolean", {"false": False, "true": True}),
    ("bit(1)", {"0": False, "1": True}),
    ("bit varying(9)", {"": False, "000": False, "010": True}),
    ("smallint", {"0": False, "-1": True}),
    ("numeric(4,2)", {"0.00": False, "0.01": True}),
    ("real", {"0": False, "-0": False, "1e-30": True, "NaN": True}),
    ("text", {"": False, "f": False, "FALSE": False, "no": False, "off": False, "0": False, "-0.0": False,
              "t": True, "true": True, "Yes": True, "on": True, "1": True, "2026-01-02 03:04": True, "infinity": True}),
    ("char(5)", {"f": False, "t": True}),
    ("deletion", {"no": False, "yes": True}),
    ("date", {"2026-01-02": True, "-infinity": True}),
    ("timestamptz", {"2026-01-02": True, "0044-03-15 BC": True}),
    ("uuid", {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11": True}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), DELETED_COLUMNS, ids=[kind for kind, _ in DELETED_COLUMNS])
def test_what_a_deleted_column_says(
    postgres: Any, database: str, tmp_path: Path, kind: str, values: dict[str, bool]
) -> None:
    shop = Database(postgres.address(database))
    shop.run("CREATE TYPE deletion AS ENUM ('no', 'yes')")
    shop.run(f"CREATE TABLE items (id INT PRIMARY KEY, gone {kind})")
    shop.run("INSERT INTO items VALUES (0, NULL)")
    for number, value in enumerate(values, 1):
        shop.run(f"INSERT INTO items VALUES ({number}, '{value}'::{kind})")
    sent = Sent()
    look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "id", "gone")))
    assert [value is None for _, value in sent.take()] == [False, *values.values()]


def test_what_a_deleted_column_says_in_sqlite(tmp_path: Path) -> None:
    shop = Database(f"sqlite:{tmp_path / 'shop.db'}", tmp_path / "shop.db")
    shop.run("CREATE TABLE items (id INTEGER PRIMARY KEY, gone)")
    shop.run("INSERT INTO items VALUES (1, 0), (2, 1), (3, 0.0), (4, 'f'), (5, '2026-01-02T03:04:05Z'), (6, NULL)")
    sent = Sent()
    running = watcher(shop, tmp_path, sent, watch=Watch(("id",), "id", "gone"))
    look(running)
    assert [value is None for _, value in sent.take()] == [False, True, False, False, True, False]
    shop.run("INSERT INTO items VALUES (7, x'00')")
    with pytest.raises(TableError, match="the deleted column holds b'.x00', which is neither a truth nor a number nor"):
        look(running)


@pytest.mark.parametrize("kind", ["bytea", "jsonb", "interval", "boolean[]", "money", "point"])
def test_a_deleted_column_that_says_nothing(postgres: Any, database: str, tmp_path: Path, kind: str) -> None:
    shop = Database(postgres.address(database))
    shop.run(f"CREATE TABLE items (id INT PRIMARY KEY, gone {kind})")
    with pytest.raises(TableError, match=r"the deleted column 'gone' is of type .*, which says neither true nor false"):
        watcher(shop, tmp_path, Sent(), watch=Watch(("id",), "id", "gone"))
    shop.run("ALTER TABLE items DROP COLUMN gone; ALTER TABLE items ADD COLUMN gone TEXT DEFAULT 'maybe'")
    shop.run("INSERT INTO items VALUES (1)")
    sent = Sent()
    with pytest.raises(TableError, match="the deleted column holds 'maybe', which is neither a truth nor a number nor"):
        look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "id", "gone")))
    assert sent.records == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("timestamp", "timestamptz", "a time with a zone, and the position of the checkpoint is .*, a time without"),
        ("timestamptz", "timestamp", "a time without a zone, and the position of the checkpoint is .*, a time with"),
        ("date", "timestamp", "a time without a zone, and the position of the checkpoint is 2026-01-05, a date"),
    ],
)
def test_the_increasing_column_gets_another_type(
    postgres: Any, database: str, tmp_path: Path, before: str, after: str, words: str
) -> None:
    """While a run goes on, and between two runs; another checkpoint begins again."""
    shop = Database(postgres.address(database))
    shop.run(f"CREATE TABLE items (id INT PRIMARY KEY, changed {before})")
    shop.run("INSERT INTO items SELECT n, DATE '2026-01-01' + n FROM generate_series(1, 4) n")
    sent = Sent()
    first, again = tmp_path / "first", tmp_path / "again"
    first.mkdir()
    again.mkdir()
    running = watcher(shop, first, sent, "1d", watch=Watch(("id",), "changed"))
    look(running)
    sent.take()
    shop.run(f"ALTER TABLE items ALTER COLUMN changed TYPE {after}")
    for each in (running, watcher(shop, first, sent, "1d", watch=Watch(("id",), "changed"))):
        with pytest.raises(TableError, match=words + r".*: the column has another type .* another --checkpoint"):
            look(each)
    assert sent.records == []
    look(watcher(shop, again, sent, "1d", watch=Watch(("id",), "changed")))
    assert ids(sent) == [1, 2, 3, 4]


def test_a_number_is_followed_by_a_wider_one(postgres: Any, database: str, tmp_path: Path) -> None:
    shop = Database(postgres.address(database))
    items(shop, "(1, 'one', 5)")
    sent = Sent()
    running = watcher(shop, tmp_path, sent)
    look(running)
    for number, kind in enumerate(("numeric", "float8", "int"), 6):
        shop.run(f"ALTER TABLE items ALTER COLUMN changed TYPE {kind}")
        insert(shop, f"({number}, 'x', {number})")
        sent.take()
        look(running)
        assert number in ids(sent)
    assert Position(tmp_path).moment == 8


def test_a_column_of_numbers_and_texts(tmp_path: Path) -> None:
    shop = Database(f"sqlite:{tmp_path / 'shop.db'}", tmp_path / "shop.db")
    shop.run("CREATE TABLE items (id INTEGER PRIMARY KEY, changed)")
    shop.run("INSERT INTO items VALUES (1, 5), (2, 5.5), (3, '2026-01-01')")
    sent = Sent()
    with pytest.raises(TableError, match="holds 5 and 2026-01-01, which have no order"):
        look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "changed")))
    assert sent.records == []
    shop.run("DELETE FROM items WHERE id = 3")
    look(watcher(shop, tmp_path, sent, watch=Watch(("id",), "changed")))
    assert ids(sent) == [1, 2]


def test_types_that_are_not_on_the_search_path(postgres: Any, database: str, tmp_path: Path) -> None:
    """Pages are in the order of the type, not of the one that PostgreSQL takes it for where it does not see it."""
    shop = Database(postgres.address(database))
    shop.run("CREATE SCHEMA extensions; CREATE EXTENSION citext SCHEMA extensions")
    shop.run("CREATE TABLE items (name extensions.citext PRIMARY KEY, n INT DEFAULT 1)")
    shop.run("INSERT INTO items VALUES ('a'), ('B'), ('c'), ('D'), ('e'), ('F'), ('g')")
    sent = Sent()
    look(watcher(shop, tmp_path, sent, watch=Watch(("name",), "n")))
    assert [key for key, _ in sent.take()] == ["a", "B", "c", "D", "e", "F", "g"]
