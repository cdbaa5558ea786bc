"""`table-sync` as a person runs it, both ways, and killed in the middle."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace.testing
from headrace.client.cluster import Client
from headrace.client.partitioner import partition_for_key
from headrace.client.producer import Producer
from headrace_pipelines.tables import read_table, times
from pipelines.drivers import RUN_S, drive, finish, first_batch, kill, make

from .databases import Database
from .postgres_server import Server

pytestmark = [pytest.mark.slow]

CHANGES = 24_000
KEYS = 700
A_BATCH = "400"
"""Small, so that a kill comes in the middle of much that is left to do."""
SCHEMA = ("--key-schema", "id BIGINT", "--value-schema", "name STRING, price DOUBLE, tags ARRAY<STRING>")

Record = tuple[bytes | None, Any]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with headrace.testing.broker() as broker:
        yield broker.bootstrap


def produce(bootstrap: str, topic: str, records: Iterable[Record], partitions: int = 2) -> None:
    """Keys and values; a value is JSON, bytes as they are, or None."""
    with Client(bootstrap) as client, Producer(client) as producer:
        for key, value in records:
            text = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(topic, text, key=key, partition=0 if key is None else partition_for_key(key, partitions))


def change(number: int) -> Record:
    """One of many keys, which are deleted now and then, and some of them at last."""
    key = number * 7919 % KEYS
    if (number // KEYS + key) % 5 == 0:
        return str(key).encode(), None
    return str(key).encode(), {"name": f"n{number}", "price": number / 4, "tags": [str(key), None]}


def table_of(records: Iterable[Record]) -> dict[int, tuple[Any, ...]]:
    found: dict[int, tuple[Any, ...]] = {}
    for key, value in records:
        assert key is not None
        found.pop(int(key), None)
        if value is not None:
            found[int(key)] = (value["name"], value["price"], value["tags"])
    return found


class Table:
    """A table of one of the three kinds: its address, its row by id, and whether the password was told."""

    def __init__(self, kind: str, directory: Path, server: Server, database: str) -> None:
        self.database: Database | None = None
        self.directory = directory / "items"
        if kind == "parquet":
            self.address = f"parquet:{self.directory}"
            return
        if kind == "postgresql":
            self.database = Database(server.address(database))
        else:
            self.database = Database(f"sqlite:{directory / 'shop.db'}", directory / "shop.db")
        self.address = f"{self.database.address}#items"

    def rows(self) -> dict[int, tuple[Any, ...]]:
        if self.database is None:
            found = [tuple(row.values()) for row in read_table(self.directory).to_pylist()]
        else:
            found = self.database.run("SELECT id, name, price, tags FROM items")
        rows = {row[0]: (*row[1:3], json.loads(row[3]) if isinstance(row[3], str) else row[3]) for row in found}
        assert len(rows) == len(found)
        return rows


@pytest.fixture(params=["postgresql", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("sqlite", "parquet"))])
def table(request: pytest.FixtureRequest, tmp_path: Path, postgres: Server, database: str) -> Table:
    return Table(request.param, tmp_path, postgres, database)


@pytest.mark.soak
@pytest.mark.jvm
@pytest.mark.timeout(600)
def test_a_killed_driver_leaves_the_exact_table(bootstrap: str, tmp_path: Path, table: Table) -> None:
    """Killed at a random moment, and then run to the end."""
    topic = f"killed-{table.address.partition(':')[0]}"
    make(bootstrap, topic, partitions=2)
    records = [change(number) for number in range(CHANGES)]
    produce(bootstrap, topic, records)
    state = tmp_path / "state"
    arguments = ["table-sync", "--from", topic, "--to", table.address, *SCHEMA]
    driver = drive(bootstrap, state, *arguments, "--max-per-batch", A_BATCH, "--trigger", "0s")
    try:
        first_batch(driver)
        time.sleep(random.uniform(0.0, 2.0))
    finally:
        kill(driver)
    assert table.rows() != table_of(records)
    batches = finish(drive(bootstrap, state, *arguments, "--once"))
    assert 1000 < sum(batch["rows"] for batch in batches) < CHANGES, "it went on where it was killed"
    assert table.rows() == table_of(records)


@pytest.mark.jvm
def test_unreadable_records_are_passed_over_and_no_password_is_kept(
    bootstrap: str, tmp_path: Path, postgres: Server, database: str
) -> None:
    make(bootstrap, "odd", partitions=2)
    good = {"name": "x", "price": 1, "tags": ["a\\u0000"], "more": True}
    produce(bootstrap, "odd", [
        (b"1", good), (b"2", b"no json"), (b"three", good), (None, good), (b"4", {"name": "a\0b"}),
        (b"5", {"tags": ["\0"]}), (b"6", {"price": "x"}), (b"\xff", good), (b"7", {}), (b"8", b"[]"), (b"9", None),
    ])  # fmt: skip
    table = Table("postgresql", tmp_path, postgres, database)
    state = tmp_path / "state"
    arguments = ["table-sync", "--from", "odd", "--to", table.address, *SCHEMA, "--once"]
    (batch,) = finish(drive(bootstrap, state, *arguments))
    assert table.rows() == {1: ("x", 1.0, ["a\\u0000"]), 7: (None, None, None)}
    assert (batch["rows"], batch["unreadable"]) == (11, 8)
    kept = [path for path in state.rglob("*") if path.is_file()]
    assert any(path.name == "pipeline.json" for path in kept)
    assert not [path for path in kept if b"s3cret" in path.read_bytes()]
    # another checkpoint begins with the first record again, and the table has them all
    assert table.database is not None
    table.database.run("UPDATE items SET name = 'touched'")
    assert sum(batch["rows"] for batch in finish(drive(bootstrap, tmp_path / "anew", *arguments))) == 11
    assert {row[0] for row in table.rows().values()} == {"touched"}


@pytest.mark.jvm
def test_a_failed_batch_says_why_in_one_line(bootstrap: str, tmp_path: Path, postgres: Server, database: str) -> None:
    make(bootstrap, "unfit")
    produce(bootstrap, "unfit", [(b"1", {"name": "x"})], partitions=1)
    table = Table("postgresql", tmp_path, postgres, database)
    assert table.database is not None
    columns = "id BIGINT PRIMARY KEY, name TEXT CHECK (name <> 'x'), price FLOAT, tags JSON"
    table.database.run(f"CREATE TABLE items ({columns})")
    driver = drive(bootstrap, tmp_path / "state", "table-sync", "--from", "unfit", "--to", table.address, *SCHEMA)
    try:
        _, complaints = driver.communicate(timeout=RUN_S)
    finally:
        if driver.poll() is None:
            kill(driver)
    (line,) = complaints.splitlines()
    assert driver.returncode == 1
    assert line.startswith(f"headrace: postgresql://headrace@127.0.0.1:{postgres.port}/{database}#items: new row for")
    assert "s3cret" not in (tmp_path / "state" / "spark.log").read_text()


@pytest.mark.jvm
def test_refused_records_go_to_the_dead_letters(
    bootstrap: str, tmp_path: Path, postgres: Server, database: str
) -> None:
    """What the table's columns and constraints refuse; the others of the batch are applied, in their order."""
    shop = Database(postgres.address(database))
    shop.run("CREATE TABLE items (id uuid PRIMARY KEY, name varchar(5), email text UNIQUE)")
    make(bootstrap, "refused")
    one, other = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    records: list[Record] = [
        (one.encode(), {"name": "one", "email": "a"}), (b"not-a-uuid", {"name": "x"}), (b"\xff", {"name": "x"}),
        (other.encode(), {"name": "sixteen letters", "email": "b"}), (other.encode(), {"name": "other", "email": "a"}),
        (one.upper().encode(), None), (other.encode(), {"name": "last", "email": "a"}),
    ]  # fmt: skip
    produce(bootstrap, "refused", records, partitions=1)
    arguments = ("--from", "refused", "--to", f"{shop.address}#items", "--dead-letters", "refused-letters", "--once")
    schema = ("--key-schema", "id STRING", "--value-schema", "name STRING, email STRING")
    finish(drive(bootstrap, tmp_path / "state", "table-sync", *arguments, *schema))
    assert shop.run("SELECT id::text, name, email FROM items") == [(other, "last", "a")]
    found = headrace.scan("refused-letters", bootstrap=bootstrap, columns=["key", "value", "headers"]).to_pylist()
    assert sorted(row["key"] for row in found) == sorted(records[number][0] or b"" for number in (1, 2, 3, 4))
    why = [{each["key"]: each["value"] for each in row["headers"]} for row in found]
    head = "headrace.dead_letter."
    reasons = {int(each[f"{head}offset"]): each[f"{head}reason"].decode() for each in why}
    assert "uuid" in reasons[1]
    assert reasons[3] == "'name': its column, character varying(5), cannot hold the value exactly"
    assert "items_email_key" in reasons[4]


ODD_SCHEMA = "f DOUBLE, ts TIMESTAMP, day DATE, by BINARY, n DECIMAL(38, 4), j VARIANT, l ARRAY<DOUBLE>, s STRING"
ODD_TABLE = """CREATE TABLE odd (id bigint PRIMARY KEY, f float8, ts timestamptz, day date, by bytea, n numeric(38,4),
    j jsonb, l float8[], s text, at timestamptz DEFAULT now());
INSERT INTO odd VALUES
    (1, 1.5, '2026-01-02 03:04:05.000006Z', '2026-01-02', '\\x41', 1234567890123456789012345678901234.5678,
        '{"a": [1.50, null]}', '{1,NULL}', 'ß'),
    (2, 'NaN', 'infinity', '-infinity', NULL, NULL, '"text"', '{NaN}', ''),
    (3, '-Infinity', '-infinity', 'infinity', '', 0.0001, NULL, NULL, NULL),
    (4, NULL, '0044-03-15 12:00:00Z BC', '12026-01-02', '\\x00ff', -1, 'false', '{}', '\\x00')"""


@pytest.mark.jvm
def test_odd_values_through_a_topic(
    bootstrap: str,
    tmp_path: Path,
    table: Table,
    postgres: Server,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of PostgreSQL, into each kind of table; between them records that no row can be made of. Without pandas."""
    (tmp_path / "without" / "pandas").mkdir(parents=True)
    (tmp_path / "without" / "pandas" / "__init__.py").write_text("raise ImportError('it is not to be needed')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'without'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    shop = Database(postgres.address(database))
    shop.run(ODD_TABLE)
    kind = table.address.partition(":")[0]
    topic, letters = f"odd-{kind}", f"odd-letters-{kind}"
    back = (
        "--from",
        f"{shop.address}#odd",
        "--to",
        topic,
        "--key-column",
        "id",
        "--by",
        "at",
        "--exclude-column",
        "at",
    )
    assert sum(batch["rows"] for batch in finish(follow(bootstrap, tmp_path / "back", *back, "--once"))) == 4
    unreadable: list[Record] = [(b"5", b'{"f": "nan"}'), (b"six", b"{}"), (b"6", b"\xff"), (b"7", b"null")]
    produce(bootstrap, topic, unreadable, partitions=1)
    arguments = ("--from", topic, "--to", table.address, "--key-schema", "id BIGINT", "--value-schema", ODD_SCHEMA)
    run = drive(bootstrap, tmp_path / "state", "table-sync", *arguments, "--dead-letters", letters, "--once")
    (batch,) = finish(run)
    assert (batch["rows"], batch["unreadable"]) == (8, 4)
    columns = ["id", "f", "ts", "day", "by", "n", "j", "l", "s"]
    if kind == "postgresql":
        shown = ", ".join(f"{name}::text" for name in columns if name != "l")
        assert shop.run(f"SELECT {shown} FROM items ORDER BY id") == shop.run(f"SELECT {shown} FROM odd ORDER BY id")
        assert shop.run("SELECT l FROM items ORDER BY id") == [([1, None],), (["NaN"],), (None,), ([],)]
    elif kind == "sqlite":
        assert table.database is not None
        assert table.database.run(f"SELECT {', '.join(columns[:6])} FROM items ORDER BY id") == [
            (1, 1.5, "2026-01-02 03:04:05.000006Z", "2026-01-02", b"A", "1234567890123456789012345678901234.5678"),
            (2, "NaN", "infinity", "-infinity", None, None),
            (3, float("-inf"), "-infinity", "infinity", b"", "0.0001"),
            (4, None, "0044-03-15 12:00:00.000000Z BC", "12026-01-02", b"\x00\xff", "-1.0000"),
        ]
    else:
        rows = read_table(table.directory).sort_by("id")
        assert times.texts(rows["ts"]).to_pylist() == [
            "2026-01-02 03:04:05.000006Z", "9999-12-31 23:59:59.999999Z", "0001-01-01 00:00:00.000000Z",
            "0044-03-15 12:00:00.000000Z BC",
        ]  # fmt: skip
        assert rows["j"].to_pylist() == ['{"a": [1.50, null]}', '"text"', None, "false"]
        assert rows["by"].to_pylist() == [b"A", None, b"", b"\x00\xff"]
    found = headrace.scan(letters, bootstrap=bootstrap, columns=["key", "value", "headers"]).to_pylist()
    assert [(row["key"], row["value"]) for row in found] == unreadable
    why = [{each["key"]: each["value"] for each in row["headers"]} for row in found]
    assert [each["headrace.dead_letter.offset"] for each in why] == [b"4", b"5", b"6", b"7"]
    assert why[0]["headrace.dead_letter.reason"] == b"'f': 'nan' is not of type double"
    assert why[0]["headrace.dead_letter.topic"] == topic.encode()


# -- a table into a topic, which needs no JVM


def follow(bootstrap: str, state: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headrace.cli", "pipeline", "run", "table-sync", *arguments, "--json"]
    return subprocess.Popen(
        [*command, "-b", bootstrap, "--checkpoint", str(state)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def sent(bootstrap: str, topic: str) -> list[tuple[str, Any]]:
    found = headrace.scan(topic, bootstrap=bootstrap, columns=["key", "value", "offset", "partition"]).to_pylist()
    found.sort(key=lambda row: (row["partition"], row["offset"]))
    return [(row["key"].decode(), None if row["value"] is None else json.loads(row["value"])) for row in found]


def test_a_table_into_a_topic(bootstrap: str, tmp_path: Path, shop: Database) -> None:
    """Followed while it changes, killed, gone on with; the last value of each key is the table."""
    topic = "from-postgres" if shop.sqlite is None else "from-sqlite"
    shop.run("CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT, version BIGINT, gone BIGINT DEFAULT 0)")
    shop.run("INSERT INTO items VALUES " + ", ".join(f"({n}, 'n{n}', {n}, 0)" for n in range(500)))
    arguments = ["--from", f"{shop.address}#items", "--to", topic, "--key-column", "id", "--by", "version", "-p", "3"]
    arguments += ["--look-back", "20", "--deleted-column", "gone"]
    driver = follow(bootstrap, tmp_path / "state", *arguments, "--max-per-batch", "100", "--trigger", "10ms")
    try:
        assert [first_batch(driver)["rows"] for _ in range(5)] == [100] * 5
        shop.run("UPDATE items SET gone = 1, version = 501 WHERE id = 3")
        assert first_batch(driver)["rows"] == 1
        shop.run("INSERT INTO items VALUES (1000, 'late', 490, 0)")
        assert first_batch(driver)["rows"] == 1
    finally:
        kill(driver)
    shop.run("UPDATE items SET name = 'again', version = 502 WHERE id = 4")
    batches = finish(follow(bootstrap, tmp_path / "state", *arguments, "--once"))
    # what the look-back holds: versions 481 to 499 and 490 again, 501, 502
    assert sum(batch["rows"] for batch in batches) == 22
    records = sent(bootstrap, topic)
    assert len(records) == 502 + 22
    wanted = {str(n): {"id": n, "name": f"n{n}", "version": n} for n in range(500)}
    wanted |= {"3": None, "4": {"id": 4, "name": "again", "version": 502}}  # type: ignore[dict-item]
    assert dict(records) == wanted | {"1000": {"id": 1000, "name": "late", "version": 490}}
    with Client(bootstrap) as client:
        assert len(client.topic(topic).partitions) == 3


def test_a_signal_ends_it(bootstrap: str, tmp_path: Path) -> None:
    shop = Database(f"sqlite:{tmp_path / 'shop.db'}", tmp_path / "shop.db")
    shop.run("CREATE TABLE items (id INTEGER PRIMARY KEY, at TEXT)")
    shop.run("INSERT INTO items VALUES (1, '2026-11-21 08:00:00')")
    arguments = ["--from", f"{shop.address}#items", "--to", "signalled", "--key-column", "id", "--by", "at"]
    driver = follow(bootstrap, tmp_path / "state", *arguments, "--trigger", "1h")
    first_batch(driver)
    driver.send_signal(signal.SIGTERM)
    assert finish(driver) == []
    assert sent(bootstrap, "signalled") == [("1", {"id": 1, "at": "2026-11-21 08:00:00"})]


def test_a_column_that_is_added_while_it_runs(bootstrap: str, tmp_path: Path, shop: Database) -> None:
    topic = "grown-in-postgres" if shop.sqlite is None else "grown-in-sqlite"
    shop.run("CREATE TABLE items (id BIGINT PRIMARY KEY, secret TEXT)")
    shop.run("INSERT INTO items VALUES (1, 'x'), (5000, 'x')")
    arguments = ["--from", f"{shop.address}#items", "--to", topic, "--key-column", "id", "--by", "id"]
    driver = follow(
        bootstrap, tmp_path / "state", *arguments, "--look-back", "0", "--exclude-column", "secret", "--trigger", "10ms"
    )
    try:
        assert first_batch(driver)["rows"] == 2
        shop.run("ALTER TABLE items ADD COLUMN j TEXT DEFAULT 'new'")
        shop.run("INSERT INTO items (id) VALUES (5001)")
        assert first_batch(driver)["rows"] in (1, 2), "the row at the position is read again, and is another"
        while len(sent(bootstrap, topic)) < 4:
            first_batch(driver)
        driver.send_signal(signal.SIGTERM)
        _, complaints = driver.communicate(timeout=RUN_S)
    finally:
        if driver.poll() is None:
            kill(driver)
    (line,) = complaints.splitlines()
    assert line.startswith("headrace: ") and "items has new columns: 'j'; a row sent before gets them" in line
    assert dict(sent(bootstrap, topic)) == {
        "1": {"id": 1}, "5000": {"id": 5000, "j": "new"}, "5001": {"id": 5001, "j": "new"},
    }  # fmt: skip
