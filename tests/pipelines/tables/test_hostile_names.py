"""Columns and tables called like keywords, like our aliases, or with what quotes and parameters are made of."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace_pipelines.tables import read_table
from headrace_pipelines.tables.layout import Layout
from headrace_pipelines.tables.parquet import ParquetTable
from headrace_pipelines.tables.places import ParquetPlace
from headrace_pipelines.tables.statements import free_name, listed, quoted
from headrace_pipelines.tables.watching import Watch

from .databases import Database
from .round_trips import carry, changes_of, records_of

ALIASES = ("j", "t", "s", "source", "source_", "value", "value_", "staged", "target", "target_", "excluded", "row")
OURS = ("headrace_staged", "deleted", "c0", "c1", "partition", "offset", "timestamp", "bucket", "reason", "key")
KEYWORDS = ("select", "from", "order", "group", "table", "user", "null", "true", "limit", "end", "default", "json")
ODD = (
    'a "b"', '"', "'", "''", "`", "with space", " ", "%", "%s", "%%", "?", "?1", ":x", "$1", "{}", "{0}", "\\",
    "\\u0000", "--", ";", "/* */", "a.b", "ünï cödé", "日本", "\U0001f600", "e\u0301", "tab\t", "line\n", "true", "1",
    "-", "x" * 63,
)  # fmt: skip
NAMES = list(dict.fromkeys((*ALIASES, *OURS, *KEYWORDS, *ODD)))

some_names = st.lists(st.sampled_from(ALIASES) | st.sampled_from(NAMES), min_size=3, max_size=9, unique=True)
relaxed = settings(max_examples=tried(25), suppress_health_check=[HealthCheck.function_scoped_fixture])


def made(shop: Database, table: str, names: list[str], keys: int) -> Layout:
    """A table of numbers: keys, the increasing column and values; each row of other numbers, some null."""
    shop.run(f"DROP TABLE IF EXISTS {quoted(table)}")
    columns = ", ".join(f"{quoted(name)} BIGINT" for name in names)
    shop.run(f"CREATE TABLE {quoted(table)} ({columns}, PRIMARY KEY ({listed(names[:keys])}))")
    shop.run(f"INSERT INTO {quoted(table)} VALUES " + ", ".join(f"({values})" for values in rows_as_sql(names, keys)))
    fields = [pa.field(name, pa.int64()) for name in names]
    return Layout(pa.struct(fields[:keys]), pa.struct(fields[keys:]), "text" if keys == 1 else "json")


def rows_as_sql(names: list[str], keys: int) -> list[str]:
    def item(row: int, place: int) -> str:
        return "NULL" if place > keys and (row + place) % 4 == 0 else str(100 * row + place)

    return [", ".join(item(row, place) for place in range(len(names))) for row in range(5)]


def content(shop: Database, table: str, names: list[str]) -> list[tuple[object, ...]]:
    return shop.run(f"SELECT {listed(names)} FROM {quoted(table)} ORDER BY {quoted(names[0])}")


@pytest.mark.slow
@relaxed
@given(names=some_names, keys=st.integers(1, 2), table=st.sampled_from(NAMES), other=st.sampled_from(NAMES))
def test_columns_and_tables_called_anything(
    shop: Database, names: list[str], keys: int, table: str, other: str
) -> None:
    layout = made(shop, table, names, keys)
    copy = other if other.lower() != table.lower() else f"{other[:40]}2"
    for left_over in (copy, "headrace_table_sync"):
        shop.run(f"DROP TABLE IF EXISTS {quoted(left_over)}")
    watch = Watch(tuple(names[:keys]), names[keys])
    in_address = quote(table, safe="").replace(".", "%2E"), quote(copy, safe="").replace(".", "%2E")
    source, target = shop.source(in_address[0], watch), shop.target(in_address[1], layout)
    records = carry(source, layout, target)
    wanted = content(shop, table, names)
    assert len(wanted) == 5 and content(shop, copy, names) == wanted
    values = [json.loads(value or b"null") for _, value in records]
    assert [tuple(value.values()) for value in values] == wanted and list(values[0]) == names
    shop.run(f"DELETE FROM {quoted(copy)}")
    with TemporaryDirectory() as directory:
        parquet = ParquetTable(ParquetPlace(Path(directory)), layout, buckets=2)
        carry(source, layout, parquet)
        rows = read_table(directory).sort_by(names[0])
        assert rows.column_names == names
        assert [tuple(row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)] == wanted
        parquet.close()


@pytest.mark.parametrize("name", ["j", "source", "value", "t"])
def test_a_column_that_is_called_like_an_alias(shop: Database, name: str) -> None:
    """Rows whose column of that name is null are no tombstones, and their key is the key."""
    shop.run(f"CREATE TABLE items (a BIGINT, b BIGINT, {quoted(name)} BIGINT, PRIMARY KEY (a, b))")
    shop.run("INSERT INTO items VALUES (1, 1, 7), (2, 2, 7), (3, 3, NULL)")
    found = records_of(shop.source("items", Watch(("a", "b"), "a")))
    assert [(json.loads(key or b""), json.loads(value or b"")) for key, value in found] == [
        ({"a": n, "b": n}, {"a": n, "b": n, name: at}) for n, at in ((1, 7), (2, 7), (3, None))
    ]


@pytest.mark.parametrize("name", ALIASES + OURS)
def test_deletes_meet_no_name_either(shop: Database, name: str) -> None:
    layout = Layout(pa.struct([pa.field(name, pa.int64())]), pa.struct([pa.field("other", pa.int64())]), "text")
    table = shop.target("items", layout)
    shop.run(f"CREATE TABLE rows_there ({quoted(name)} BIGINT PRIMARY KEY, other BIGINT)")
    shop.run("INSERT INTO rows_there VALUES (1, 1), (2, 2)")
    source = shop.source("rows_there", Watch((name,), name))
    records = carry(source, layout, table)
    table.apply(changes_of([*records, (b"1", None)], layout, table))
    assert content(shop, "items", [name, "other"]) == [(2, 2)]


def test_free_names() -> None:
    assert free_name("value", ["a"]) == "value"
    assert free_name("value", ["VALUE", "value_"]) == "value__"
