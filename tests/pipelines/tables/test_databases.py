"""Tables in a real PostgreSQL and in SQLite: upserts and deletes, what comes again, what does not fit."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from headrace_pipelines.tables.fitting import made_type
from headrace_pipelines.tables.following import BOOKS, TableError, Topic
from headrace_pipelines.tables.layout import layout_of
from headrace_pipelines.tables.postgres_batch import as_csv, staging
from headrace_pipelines.tables.statements import create_table, matches, quoted, upsert

from .batches import PRICES, batch
from .databases import Database

TOPIC = Topic("prices", "0a" * 16)
ODD = 'a "b" %s \' ; -- ?'


def rows(shop: Database, table: str = "prices") -> list[tuple[Any, ...]]:
    return shop.run(f"SELECT * FROM {quoted(table)} ORDER BY 1, 2")


def test_statements() -> None:
    layout = layout_of("a INT, b STRING", f"`{ODD}` DOUBLE")
    odd = '"a ""b"" %s \' ; -- ?"'
    assert quoted(ODD) == odd
    assert create_table("t", layout, made_type) == (
        f'CREATE TABLE t ("a" integer NOT NULL, "b" text NOT NULL, {odd} double precision, PRIMARY KEY ("a", "b"))'
    )
    assert upsert("t", layout, "VALUES (1)") == (
        f'INSERT INTO t AS target ("a", "b", {odd}) VALUES (1) '
        f'ON CONFLICT ("a", "b") DO UPDATE SET {odd} = excluded.{odd}'
    )
    assert matches(["a", ODD], ["x", "y"], "t") == f't."a" = x AND t.{odd} = y'
    assert "AS c2 FROM t WITH NO DATA" in staging("t", layout)


def test_upserts_and_deletes(shop: Database) -> None:
    table = shop.target("prices", PRICES)
    table.open(TOPIC, "run")
    assert rows(shop) == []
    table.apply(batch((0, 0, 1, ("one", 1.0)), (0, 1, 2, ("two", 2.5)), (1, 0, 3, ("three", None)), (0, 2, 1, None)))
    assert rows(shop) == [(2, "two", 2.5), (3, "three", None)]
    table.apply(batch((0, 3, 2, ("zwei", 2.0)), (1, 1, 3, None), (1, 2, 9, None), (0, 4, 1, (None, None))))
    assert rows(shop) == [(1, None, None), (2, "zwei", 2.0)]


def test_a_batch_takes_few_statements(postgres: Any, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows it has, and one fewer where it deletes nothing: each waits for the server, and small batches
    wait for little else."""
    table = Database(postgres.address(database)).target("prices", PRICES)
    table.open(TOPIC, "run")
    counts: list[int] = []
    execute = psycopg.Cursor.execute

    def counted(self: Any, *args: Any, **more: Any) -> Any:
        counts[-1] += 1
        return execute(self, *args, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    for change in (("one", 1.0), None):
        counts.append(0)
        table.apply(batch(*((0, len(counts) * 1_000 + number, number % 300, change) for number in range(900))))
    assert counts[0] + 1 == counts[1] <= 8, "and COPY"


def test_what_comes_again_changes_nothing(shop: Database) -> None:
    """Neither a batch, nor a part of it in another one, nor all from the first offset on; deleted rows stay deleted."""
    table = shop.target("prices", PRICES)
    table.open(TOPIC, "run")
    first = batch((0, 0, 1, ("old", 1.0)), (0, 1, 2, ("gone", 1.0)), (1, 7, 3, ("three", 1.0)))
    second = batch((0, 2, 1, ("new", 2.0)), (0, 3, 2, None), (1, 9, 3, None))
    for each in (first, second):
        table.apply(each)
        done = rows(shop)
        table.apply(each)
        assert rows(shop) == done
    assert done == [(1, "new", 2.0)]
    shop.run("UPDATE prices SET name = 'touched'")
    table.apply(first)
    assert rows(shop) == [(1, "touched", 2.0)], "nothing was written, not even the same again"
    table.apply(batch((0, 1, 2, ("gone", 1.0)), (1, 8, 3, ("three", 1.0)), (0, 4, 4, ("four", 4.0))))
    again = shop.target("prices", PRICES)
    again.open(TOPIC, "another run")
    again.apply(first)
    again.apply(second)
    assert rows(shop) == [(1, "touched", 2.0), (4, "four", 4.0)]
    ((kept,),) = shop.run(f"SELECT following FROM {BOOKS}")
    assert json.loads(kept)["positions"] == {"0": 5, "1": 10}


def test_a_batch_is_applied_whole_or_not_at_all(shop: Database) -> None:
    table = shop.target("prices", PRICES)
    shop.run("CREATE TABLE prices (id BIGINT PRIMARY KEY, name TEXT, price DOUBLE PRECISION CHECK (price > 0))")
    table.open(TOPIC, "run")
    table.apply(batch((0, 0, 1, ("one", 1.0)), (0, 1, 5, ("five", 1.0))))
    with pytest.raises(TableError, match=r"#prices: .*(check constraint|CHECK constraint)"):
        table.apply(batch((0, 2, 1, None), (0, 3, 2, ("two", 2.0)), (0, 4, 3, ("three", -1.0))))
    assert rows(shop) == [(1, "one", 1.0), (5, "five", 1.0)]
    shop.run("DELETE FROM prices WHERE id = 5")
    table.apply(batch((0, 1, 5, ("five", 1.0)), (0, 2, 1, None), (0, 3, 2, ("two", 2.0)), (0, 4, 3, ("three", 1.0))))
    assert rows(shop) == [(2, "two", 2.0), (3, "three", 1.0)]


def test_every_type_and_odd_texts(shop: Database) -> None:
    layout = layout_of(
        "day DATE, who STRING",
        "t BOOLEAN, i TINYINT, l BIGINT, f FLOAT, d DECIMAL(10, 2), s STRING, at TIMESTAMP, n TIMESTAMP_NTZ, "
        "a ARRAY<INT>, j STRUCT<x: STRING>",
    )
    table = shop.target("odd", layout)
    table.open(TOPIC, "run")
    at = datetime(2026, 11, 21, 8, 30, 1, 500, tzinfo=UTC)
    texts = ["", "NULL", "\\N", "\n\\.\n", '"', ",", "\r\n\t", "ß\U0001f600", "\\"]
    for offset, text in enumerate(texts):
        numbers = (True, -7, -(1 << 63), 0.5, Decimal("-12.50"))
        value = (*numbers, text, at, at.replace(tzinfo=None), "[1,null]", '{"x":"y"}')
        table.apply(batch((0, offset, (date(2026, 1, 2), f"k{offset}{text}"), value), layout=layout))
    table.apply(batch((0, 99, (date(2026, 1, 1), "n"), (None,) * 9 + ("{}",)), layout=layout))
    found = rows(shop, "odd")
    assert [row[7] for row in found] == [None, *texts]
    assert [row[1] for row in found[1:]] == [f"k{offset}{text}" for offset, text in enumerate(texts)]
    assert set(found[0][2:-1]) == {None}
    last = found[1]
    assert last[2:6] == (True, -7, -(1 << 63), 0.5)
    if shop.sqlite is None:
        assert (last[0], last[6]) == (date(2026, 1, 2), Decimal("-12.50"))
        assert last[8:10] == (at, at.replace(tzinfo=None))
        assert last[10:] == ([1, None], {"x": "y"})
    else:
        assert (last[0], last[6], last[10:]) == ("2026-01-02", "-12.50", ("[1,null]", '{"x":"y"}'))
        assert (datetime.fromisoformat(last[8]), last[9]) == (at, "2026-11-21 08:30:01.000500")
    table.apply(batch((0, 100, (date(2026, 1, 2), 'k4"'), None), layout=layout))
    assert len(rows(shop, "odd")) == len(texts)


def test_names_may_hold_anything(shop: Database) -> None:
    layout = layout_of('`k %s "` STRING', f"`{ODD}` STRING, `select` INT")
    name = "the%20%22table%22%20%25s"
    table = shop.target(name, layout)
    for run in ("one", "two"):
        table.open(TOPIC, run)
    table.apply(batch((0, 0, "a", ("x", 1)), (0, 1, "b", ("y", 2)), layout=layout))
    table.apply(batch((0, 2, "a", None), layout=layout))
    assert rows(shop, 'the "table" %s') == [("b", "y", 2)]


def test_a_table_that_is_there_is_taken_as_it_is(shop: Database) -> None:
    """Columns of its own keep what they have."""
    shop.run(
        "CREATE TABLE prices (price DOUBLE PRECISION, note TEXT DEFAULT 'new', name VARCHAR(20), id NUMERIC NOT NULL)"
    )
    shop.run("CREATE UNIQUE INDEX by_id ON prices (id)")
    shop.run("INSERT INTO prices VALUES (1, 'mine', 'old', 1), (8, 'mine', 'eight', 8)")
    table = shop.target("prices", PRICES)
    table.open(TOPIC, "run")
    table.apply(batch((0, 0, 1, ("one", 1.5)), (0, 1, 2, ("two", 2.5))))
    found = shop.run("SELECT id, name, price, note FROM prices ORDER BY id")
    assert found == [(1, "one", 1.5, "mine"), (2, "two", 2.5, "new"), (8, "eight", 8, "mine")]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("id BIGINT PRIMARY KEY, name TEXT", "has no column 'price'; it has id, name"),
        ("id BIGINT, name TEXT, price FLOAT", "no primary key or unique index of id; the run finds rows by it"),
        ("id BIGINT, name TEXT, price FLOAT, PRIMARY KEY (id, name)", "no primary key or unique index of id"),
    ],
)
def test_a_table_that_does_not_fit(shop: Database, made: str, words: str) -> None:
    shop.run(f"CREATE TABLE prices ({made})")
    with pytest.raises(TableError) as complaint:
        shop.target("prices", PRICES).open(TOPIC, "run")
    assert words in str(complaint.value) and "\n" not in str(complaint.value)


def test_one_topic_and_one_writer(shop: Database) -> None:
    table, other = (shop.target("prices", PRICES) for _ in range(2))
    table.open(TOPIC, "one")
    table.apply(batch((0, 0, 1, ("one", 1.0))))
    other.open(TOPIC, "two")
    with pytest.raises(TableError, match=r"another run has taken over .*#prices; one table has one writer"):
        table.apply(batch((0, 1, 1, None)))
    other.apply(batch((0, 1, 2, ("two", 1.0))))
    assert [row[0] for row in rows(shop)] == [1, 2]
    with pytest.raises(TableError, match="follows the topic prices; it cannot follow costs too"):
        table.open(Topic("costs"), "three")
    with pytest.raises(TableError, match="the topic prices was deleted and made again"):
        table.open(Topic("prices", "0b" * 16), "three")
    table.open(Topic("prices"), "a cluster without ids")
    shop.run("DROP TABLE prices")
    with pytest.raises(TableError, match="is gone; delete its row in headrace_table_sync"):
        table.open(TOPIC, "four")


def test_what_postgres_alone_refuses(postgres: Any, database: str) -> None:
    shop = Database(postgres.address(database))
    shop.run("CREATE TABLE prices (id INTEGER PRIMARY KEY, name TEXT, price DOUBLE PRECISION)")
    with pytest.raises(TableError, match="the column 'id' is integer, and bigint needs bigint or numeric"):
        shop.target("prices", PRICES).open(TOPIC, "run")
    with pytest.raises(TableError, match="takes names of up to 63 bytes"):
        shop.target("x" * 64, PRICES).open(TOPIC, "run")
    with pytest.raises(TableError, match="takes names of up to 63 bytes"):
        shop.target("t", layout_of("id INT", f"{'x' * 64} INT")).open(TOPIC, "run")
    with pytest.raises(TableError, match='schema "no" does not exist'):
        shop.target("no.prices", PRICES).open(TOPIC, "run")
    shop.run("CREATE SCHEMA other")
    table = shop.target("other.prices", PRICES)
    table.open(TOPIC, "run")
    table.apply(batch((0, 0, 1, ("one", 1.0))))
    assert shop.run("SELECT * FROM other.prices") == [(1, "one", 1.0)]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:secret@127.0.0.1:1/shop", "postgresql://ann:secret@127.0.0.1:x/shop",
        "postgresql://ann:secret@127.0.0.1:1/shop?no=secret", "postgresql://ann:secret@[::1/shop", "postgresql://%zz:secret@h",
    ],
)  # fmt: skip
def test_nobody_there_is_one_line_without_the_password(address: str) -> None:
    with pytest.raises(TableError) as complaint:
        Database(address).target("prices", PRICES).open(TOPIC, "run")
    assert "secret" not in str(complaint.value) and "\n" not in str(complaint.value)
    assert str(complaint.value).startswith("postgresql://")


def test_a_wrong_password_is_not_told(postgres: Any, database: str) -> None:
    address = postgres.address(database).replace("s3cret", "wr0ng")
    with pytest.raises(TableError, match="password authentication failed") as complaint:
        Database(address).target("prices", PRICES).open(TOPIC, "run")
    assert "wr0ng" not in str(complaint.value)


def test_nothing_is_copied_as_anything_else() -> None:
    table = batch((0, 0, 1, ("", None))).select(["deleted", "c0", "c1", "c2"])
    assert as_csv(table).to_pybytes() == b'"false","1","",\n'
