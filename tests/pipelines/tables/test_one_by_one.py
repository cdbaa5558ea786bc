"""The law of `table-sync`: after a batch a table is as if the records had been applied one at a time, in order.

A model applies each record in a transaction of its own, with the plainest statements, and takes back what a column does
not keep as it was given, by Python's equality. The same records in batches give the same table and the same refusals.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from headrace_pipelines.tables.following import TableError, Topic
from headrace_pipelines.tables.layout import Layout, layout_of

from .batches import Change, batch
from .databases import Database
from .postgres_server import Server

TOPIC = Topic("law")
IDS = ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "not-a-uuid")
ALIKE = ("a", "A", "b", "B", "b ")
DAYS = {20_454: "2026-01-01", 20_455: "2026-01-02", 2_147_000_000: "5880203-11-27"}
"""The last one is beyond PostgreSQL's."""
LONG = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
POOLS: dict[str, tuple[Any, ...]] = {
    "STRING": ("a", "A", "b", "B ", "ab", "abcdef", "00123", "123", "1e2", "", "ü", "€"),
    "DECIMAL(12, 4)": tuple(map(Decimal, ("1.0000", "1.2500", "12.3456", "99999.0000", "-1.0000"))),
    "TIMESTAMP": tuple(datetime(2026, 1, 1, 1, 1, 1, micros, UTC) for micros in (0, 500_000, 1)),
    "BIGINT": (1, 2, 3, 100, -1, 1 << 53, (1 << 53) + 1),
    "DOUBLE": (1.0, 0.0, -0.0, 0.5, -1e300),
    "DATE": tuple(DAYS),
}


@dataclass(frozen=True)
class Case:
    """A table of the columns k, v and w, and the types of ours for the first two."""

    key: str
    value: str
    k: str
    v: str
    more: str = ""
    """What follows the columns in the statement that makes the table, and `after`, what follows that statement."""
    after: str = ""
    pools: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return layout_of(f"k {self.key}", f"v {self.value}, w BIGINT")

    def w(self, shop: Database) -> str:
        return "bigint" if shop.sqlite is None else "INT"

    def make(self, shop: Database) -> None:
        if shop.sqlite is None:
            shop.run("DROP TABLE IF EXISTS u, t, headrace_table_sync CASCADE; DROP FUNCTION IF EXISTS grow")
        else:
            shop.run("DROP TABLE IF EXISTS t")
            shop.run("DROP TABLE IF EXISTS headrace_table_sync")
        more = self.more if self.more.startswith(")") else f"{self.more})"
        shop.run(f"CREATE TABLE t (k {self.k} PRIMARY KEY, v {self.v}, w {self.w(shop)}{more}")
        if self.after:
            shop.run(self.after)

    def pool(self, column: str) -> tuple[Any, ...]:
        if column in self.pools:
            return self.pools[column]
        ours, theirs = (self.key, self.k) if column == "k" else (self.value, self.v)
        if any(word in theirs for word in ("citext", "loose", "NOCASE", "RTRIM")):
            return ALIKE
        found = IDS if theirs.startswith("uuid") else POOLS[ours]
        # few, so that they meet
        return found[:3] if column == "v" and "UNIQUE" in f"{theirs} {self.more}" else found

    def records(self, chance: random.Random, count: int) -> list[Change]:
        """Of two partitions, with keys of both; some null values."""
        keys = chance.sample(self.pool("k"), min(5, len(self.pool("k"))))
        found: list[Change] = []
        offsets = [0, 0]
        for _ in range(count):
            partition = chance.randrange(2)
            value = (chance.choice((*self.pool("v"), None)), chance.choice((1, 2, 3, None)))
            found.append((partition, offsets[partition], chance.choice(keys), None if chance.random() < 0.3 else value))
            offsets[partition] += 1
        return found


NUMBER, TEXT, MONEY, MOMENT = ("BIGINT", "STRING"), ("STRING", "STRING"), ("DECIMAL(12, 4)",) * 2, ("TIMESTAMP",) * 2
TRIGGER = (
    "CREATE FUNCTION grow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n = coalesce(OLD.n, 0) + 1; "
    "IF NEW.w = 3 THEN RAISE EXCEPTION 'three'; END IF; RETURN NEW; END $$;"
    "ALTER TABLE t ADD COLUMN n INT; CREATE TRIGGER grow BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION grow()"
)
LOOSE = "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
OLD = "INSERT INTO t VALUES (1, '', 1, 'old')"
REFERRED = "INSERT INTO t VALUES (1, 'x', 1); CREATE TABLE u (k bigint REFERENCES t (k)); INSERT INTO u VALUES (1)"
POSTGRES = {
    "plain": Case(*NUMBER, "bigint", "text"),
    "another column": Case(*NUMBER, "bigint", "text", ", n text DEFAULT 'new'", OLD),
    "uuid": Case(*TEXT, "uuid", "text"),
    "citext": Case(*TEXT, "citext", "text"),
    "insensitive": Case(*TEXT, "text COLLATE loose", "text"),
    "numeric": Case(*MONEY, "numeric(6,2)", "numeric(4,1)"),
    "number": Case("BIGINT", "BIGINT", "numeric(2,0)", "numeric(3,-1)"),
    "double": Case("DOUBLE", "DOUBLE", "float8", "float8"),
    "varchar": Case(*TEXT, "varchar(2)", "char(2)"),
    "times": Case(*MOMENT, "timestamptz(0)", "timestamptz(3)"),
    "unique": Case(*NUMBER, "bigint", "text UNIQUE"),
    "unique later": Case(*NUMBER, "bigint", "text UNIQUE DEFERRABLE INITIALLY DEFERRED"),
    "unique citext": Case(*TEXT, "citext", "citext", ", UNIQUE (w)"),
    "check": Case(*NUMBER, "bigint", "text CHECK (v <> 'a')"),
    "required": Case(*NUMBER, "bigint", "text NOT NULL"),
    "itself": Case(*NUMBER, "bigint", "text", " REFERENCES t (k)"),
    "referred": Case(*NUMBER, "bigint", "text", after=REFERRED),
    "trigger": Case(*NUMBER, "bigint", "text", after=TRIGGER),
    "expression": Case(*NUMBER, "bigint", "text", after="CREATE INDEX ON t ((10 / (w - 1)))"),
    "large": Case(*TEXT, "text", "text", after="CREATE INDEX ON t (v)", pools={"k": ("a", "b", LONG)}),
    "dates": Case("DATE", "STRING", "date", "uuid"),
    "pattern": Case(*TEXT, "text", "text", after="CREATE UNIQUE INDEX ON t (k text_pattern_ops)"),
}
SQLITE = {
    "plain": Case(*NUMBER, "INTEGER", "TEXT"),
    "another column": Case(*NUMBER, "INTEGER", "TEXT", ", n TEXT DEFAULT 'new'", OLD),
    "nocase": Case(*TEXT, "TEXT COLLATE NOCASE", "TEXT"),
    "rtrim": Case(*TEXT, "TEXT COLLATE RTRIM", "TEXT"),
    "numeric text": Case(*TEXT, "NUMERIC", "INT"),
    "real": Case("BIGINT", "DECIMAL(12, 4)", "REAL", "NUMERIC"),
    "double": Case("DOUBLE", "DOUBLE", "INTEGER", "REAL"),
    "strict": Case(*NUMBER, "INTEGER", "INT", ") STRICT"),
    "unique": Case(*NUMBER, "INTEGER", "TEXT UNIQUE"),
    "unique and quiet": Case(*NUMBER, "INTEGER", "TEXT UNIQUE ON CONFLICT IGNORE"),
    "check": Case(*NUMBER, "INTEGER", "TEXT NOT NULL CHECK (v <> 'a')"),
    "required": Case(*NUMBER, "INTEGER", "TEXT NOT NULL"),
    "expression": Case(*NUMBER, "INTEGER", "TEXT", after="CREATE INDEX i ON t (json(v))"),
}
# what random tables are put together from: types of ours and of the table, and what else it may have
POSTGRES_TYPES = (
    ("BIGINT", "bigint"), ("BIGINT", "numeric(2,0)"), ("STRING", "text"), ("STRING", "citext"), ("STRING", "uuid"),
    ("STRING", "text COLLATE loose"), ("STRING", 'text COLLATE "C"'), ("STRING", "varchar(2)"), ("STRING", "char(2)"),
    ("DECIMAL(12, 4)", "numeric(6,2)"), ("DECIMAL(12, 4)", "numeric"), ("TIMESTAMP", "timestamptz(0)"),
    ("TIMESTAMP", "timestamptz"), ("DOUBLE", "float8"), ("DATE", "date"),
)  # fmt: skip
POSTGRES_MORE = (
    ", UNIQUE (v)", ", UNIQUE (v, w)", ", UNIQUE (w) DEFERRABLE INITIALLY DEFERRED", ", CHECK (w <> 3)", " NOT NULL",
    ", n text DEFAULT 'new'", ", EXCLUDE USING btree (w WITH =)", ", n bigint GENERATED ALWAYS AS (6 / (w - 1)) STORED",
)  # fmt: skip
POSTGRES_AFTER = ("CREATE UNIQUE INDEX ON t (w) WHERE v IS NOT NULL", "CREATE INDEX ON t ((10 / (w - 1)))", TRIGGER)
SQLITE_TYPES = (
    ("BIGINT", "INTEGER"), ("BIGINT", "REAL"), ("STRING", "TEXT"), ("STRING", "TEXT COLLATE NOCASE"),
    ("STRING", "NUMERIC"), ("STRING", "TEXT COLLATE RTRIM"), ("STRING", "BLOB"), ("STRING", "INT"),
    ("DECIMAL(12, 4)", "NUMERIC"),
    ("DECIMAL(12, 4)", "TEXT"), ("DOUBLE", "REAL"), ("DOUBLE", "INTEGER"),
)  # fmt: skip
SQLITE_MORE = (
    ", UNIQUE (v)", ", UNIQUE (v, w)", ", UNIQUE (w) ON CONFLICT REPLACE", ", CHECK (w <> 3)", " NOT NULL",
    ", n TEXT DEFAULT 'new'", ") WITHOUT ROWID",
)  # fmt: skip
SQLITE_AFTER = (
    "CREATE UNIQUE INDEX i ON t (w) WHERE v IS NOT NULL", "CREATE INDEX i ON t (json(v))",
    "CREATE TRIGGER g BEFORE UPDATE ON t WHEN NEW.w = 3 BEGIN SELECT RAISE(ABORT, 'three'); END",
)  # fmt: skip


def random_case(shop: Database, chance: random.Random) -> Case:
    """A table of any types, and often with something that refuses rows."""
    types = POSTGRES_TYPES if shop.sqlite is None else SQLITE_TYPES
    more, after = (POSTGRES_MORE, POSTGRES_AFTER) if shop.sqlite is None else (SQLITE_MORE, SQLITE_AFTER)
    (key, k), (value, v) = chance.choice(types), chance.choice(types)
    added = chance.choice(more) if chance.random() < 0.6 else ""
    return Case(key, value, k, v, added, chance.choice(after) if chance.random() < 0.3 else "")


def same(ours: str, theirs: str, given: Any, kept: Any) -> bool:
    """Whether a column has kept a value; PostgreSQL's are texts."""
    if given is None or kept is None:
        return given is kept
    if ours in ("BIGINT", "DECIMAL(12, 4)"):
        return Decimal(given) == Decimal(str(kept))
    if ours == "DOUBLE":
        return bool(given == float(kept))
    if ours == "TIMESTAMP":
        return bool(given == datetime.fromisoformat(kept))
    if ours == "DATE":
        return bool(DAYS[given] == kept)
    return UUID(given) == UUID(kept) if theirs == "uuid" else bool(given == kept)


@contextmanager
def session(shop: Database) -> Iterator[Any]:
    if shop.sqlite is not None:
        with closing(sqlite3.connect(shop.sqlite, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = OFF")
            yield file
    else:
        options = "-c client_encoding=UTF8 -c timezone=UTC"
        with psycopg.connect(shop.address, autocommit=True, options=options) as connection:
            yield connection


def one_by_one(shop: Database, case: Case, records: list[Change]) -> set[int]:
    """Apply records as the law says; the places of those that are refused."""
    mark, cast = ("%s", "::text") if shop.sqlite is None else ("?", "")
    marks = ", ".join([mark] * 3)
    types = {"k": (case.key, case.k), "v": (case.value, case.v), "w": ("BIGINT", "bigint")}
    upsert = f"INTO t AS x (k, v, w) VALUES ({marks}) ON CONFLICT (k) DO UPDATE SET v = excluded.v, w = excluded.w"
    # a conflict that is the table's to settle ends the statement all the same
    upsert = f"INSERT {'' if shop.sqlite is None else 'OR ABORT '}{upsert}"
    strict = " STRICT" if "STRICT" in case.more else ""
    k, v = (re.sub(" (UNIQUE|NOT NULL|CHECK).*", "", each) for each in (case.k, case.v))
    refused: set[int] = set()
    with session(shop) as connection:
        connection.execute(f"CREATE TEMP TABLE probe (k {k}, v {v}, w {case.w(shop)}){strict}")
        for number, (_, _, key, value) in enumerate(records):
            values = dict(zip("kvw", (key, *(value or (None, None))), strict=True))
            given = [_given(types[name][0], each) for name, each in values.items()]
            connection.execute("BEGIN")
            try:
                connection.execute(f"INSERT INTO probe VALUES ({marks})", given)
                (kept,) = connection.execute(f"SELECT k{cast}, v{cast}, w{cast} FROM probe").fetchall()
                if not all(same(*types[name], values[name], each) for name, each in zip("kvw", kept, strict=True)):
                    raise ValueError("it is not exact")
                connection.execute("DELETE FROM probe")
                if value is None:
                    connection.execute(f"DELETE FROM t WHERE k = {mark}", given[:1])
                else:
                    connection.execute(upsert, given)
                connection.execute("COMMIT")
            except (psycopg.Error, sqlite3.Error, ValueError) as error:
                if isinstance(error, psycopg.Error):
                    assert (error.sqlstate or "")[:2] in ("22", "23", "54", "P0"), error
                connection.execute("ROLLBACK")
                refused.add(number)
    return refused


def _given(ours: str, value: Any) -> Any:
    if ours == "DATE" and value is not None:
        return DAYS[value]
    return str(value) if isinstance(value, (Decimal, datetime)) else value


def in_batches(shop: Database, case: Case, records: list[Change], sizes: list[int]) -> set[int]:
    """Apply the same in batches."""
    table = shop.target("t", case.layout)
    table.open(TOPIC, "run")
    refused: set[int] = set()
    at = 0
    for size in sizes:

        def settle(found: Mapping[int, str], at: int = at) -> None:
            assert all(found.values())
            refused.update(at + row for row in found)

        table.apply(batch(*records[at : at + size], layout=case.layout), settle)
        at += size
    return refused


def shown(shop: Database) -> list[tuple[Any, ...]]:
    row = "t::text" if shop.sqlite is None else "typeof(k), typeof(v), *"
    return sorted(shop.run(f"SELECT {row} FROM t"), key=repr)


def check(shop: Database, case: Case, chance: random.Random) -> None:
    records = case.records(chance, chance.choice((1, 3, 12, 40)))
    half = chance.randrange(len(records) + 1)
    case.make(shop)
    model = one_by_one(shop, case, records)
    wanted = shown(shop)
    case.make(shop)
    refused = in_batches(shop, case, records, [half, len(records) - half])
    assert shown(shop) == wanted, (case, half, records)
    assert refused == model, (case, half, records)


def check_random(shop: Database, seed: int) -> None:
    """A random table; one that no rows of ours go into is refused at the start."""
    chance = random.Random(seed)
    case = random_case(shop, chance)
    try:
        case.make(shop)
    except (psycopg.Error, sqlite3.Error):
        # such as a column without an operator class for the index
        return
    try:
        shop.target("t", case.layout).open(TOPIC, "run")
    except TableError as error:
        assert "the column 'v' is" not in str(error) or "which makes a text of" in str(error), (case, str(error))
        return
    check(shop, case, chance)


@pytest.fixture(scope="module", params=["UTF8", "LATIN1"])
def law(request: pytest.FixtureRequest, postgres: Server) -> Database:
    """A database of an encoding, with what the tables need."""
    name, encoding = f"law_{request.param.lower()}", request.param
    with psycopg.connect(postgres.address("postgres"), autocommit=True) as connection:
        made = f"CREATE DATABASE {name} ENCODING {encoding} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(made.encode())
    shop = Database(postgres.address(name))
    shop.run("CREATE EXTENSION citext")
    shop.run(LOOSE)
    return shop


@pytest.mark.parametrize("law", ["UTF8"], indirect=True)
@pytest.mark.parametrize("name", POSTGRES)
def test_postgres(law: Database, name: str) -> None:
    for seed in range(3):
        check(law, POSTGRES[name], random.Random(seed))


@pytest.mark.parametrize("name", SQLITE)
def test_sqlite(tmp_path: Path, name: str) -> None:
    shop = Database(f"sqlite:{tmp_path / 'shop.db'}", tmp_path / "shop.db")
    for seed in range(3):
        check(shop, SQLITE[name], random.Random(seed))


COUNTS = [pytest.param(15), pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_random_tables_of_postgres(law: Database, count: int) -> None:
    for seed in range(count):
        check_random(law, seed)


@pytest.mark.parametrize("count", COUNTS)
def test_random_tables_of_sqlite(tmp_path: Path, count: int) -> None:
    shop = Database(f"sqlite:{tmp_path / 'shop.db'}", tmp_path / "shop.db")
    for seed in range(count):
        check_random(shop, seed)


REFUSED = [
    (
        f"k text PRIMARY KEY, v text, w bigint); {LOOSE}; CREATE UNIQUE INDEX ON t (k COLLATE loose",
        "keys are equal in one",
    ),
    ("k bigint PRIMARY KEY, v text, w bigint, n int NOT NULL", "NOT NULL without a default, so no row can be made"),
    ("k bigint UNIQUE DEFERRABLE, v text, w bigint", "a deferrable one does not do"),
    ("k bigint PRIMARY KEY, v text, w bigint GENERATED ALWAYS AS (1) STORED", "PostgreSQL makes the values of"),
    ("k bigint PRIMARY KEY, v text, w bigint GENERATED ALWAYS AS IDENTITY", "PostgreSQL makes the values of"),
]


@pytest.mark.parametrize(("columns", "words"), REFUSED)
def test_tables_that_take_no_row_are_refused_at_the_start(
    postgres: Server, database: str, columns: str, words: str
) -> None:
    shop = Database(postgres.address(database))
    shop.run(f"CREATE TABLE t ({columns})")
    kind = "STRING" if "k text" in columns else "BIGINT"
    with pytest.raises(TableError, match=words):
        shop.target("t", layout_of(f"k {kind}", "v STRING, w BIGINT")).open(TOPIC, "run")


def test_a_unique_value_is_free_only_after_its_row_is_deleted(shop: Database) -> None:
    shop.run("CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT UNIQUE, w BIGINT)")
    layout = POSTGRES["unique"].layout
    table = shop.target("t", layout)
    table.open(TOPIC, "run")
    table.apply(batch((0, 0, 1, ("a", 1)), layout=layout))
    records: list[Change] = [(0, 1, 2, ("a", 2)), (0, 2, 1, None)]
    refused: list[Mapping[int, str]] = []
    table.apply(batch(*records, layout=layout), refused.append)
    assert shop.run("SELECT k FROM t") == [] and list(refused[0]) == [0]
    table.apply(batch((0, 3, 3, ("a", 3)), (0, 4, 3, None), (0, 5, 4, ("a", 4)), layout=layout))
    assert shop.run("SELECT k, v, w FROM t") == [(4, "a", 4)]


def test_a_refused_record_ends_a_run_without_dead_letters(shop: Database) -> None:
    """The sentence names it; a run with dead letters goes on from there."""
    shop.run("CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT CHECK (v <> 'a'), w BIGINT)")
    layout = POSTGRES["check"].layout
    table = shop.target("t", layout)
    table.open(TOPIC, "run")
    records: list[Change] = [(0, 0, 1, ("x", 1)), (0, 1, 2, ("a", 1)), (0, 2, 2, ("b", 1))]
    with pytest.raises(TableError, match="refuses the record at offset 1 of partition 0, and --dead-letters TOPIC"):
        table.apply(batch(*records, layout=layout))
    assert shop.run("SELECT k FROM t") == []
    refused: list[Mapping[int, str]] = []
    table.apply(batch(*records, layout=layout), refused.append)
    assert shop.run("SELECT k, v FROM t ORDER BY k") == [(1, "x"), (2, "b")] and list(refused[0]) == [1]
