"""Addresses of tables: what they name, and that no password is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_pipelines.tables.places import ParquetPlace, PostgresPlace, SqlitePlace, parse_place


@pytest.mark.parametrize(
    ("text", "schema", "table", "told"),
    [
        ("postgresql://db/shop#prices", None, "prices", "postgresql://db/shop#prices"),
        ("postgres://ann:p%40ss@db:5433/shop#prices", None, "prices", "postgresql://ann@db:5433/shop#prices"),
        ("postgresql://ann:pa@ss@db/shop#p", None, "p", "postgresql://ann@db/shop#p"),
        ("postgresql://ann:pa/ss@db/shop#p", None, "p", "postgresql://ann@db/shop#p"),
        ("postgresql:///shop?host=/run&password=pass#a.b", "a", "b", "postgresql:///shop?host=%2Frun#a.b"),
        ("postgresql://db/shop?sslpassword=pass#a%2Eb", None, "a.b", "postgresql://db/shop#a%2Eb"),
        ("postgresql://db/shop#%22x%22%2F", None, '"x"/', "postgresql://db/shop#%22x%22%2F"),
    ],
)
def test_postgres(text: str, schema: str | None, table: str, told: str) -> None:
    place = parse_place(text)
    assert isinstance(place, PostgresPlace)
    assert (place.schema, place.table, str(place)) == (schema, table, told)
    assert "pass" not in repr(place)
    assert "#" not in place.conninfo


def test_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_place("sqlite:shop.db#prices") == SqlitePlace(tmp_path / "shop.db", "prices")
    assert str(parse_place("sqlite:///x/a#b.db#the%20prices")) == "sqlite:/x/a#b.db#the%20prices"
    assert parse_place("parquet:out/prices") == ParquetPlace(tmp_path / "out" / "prices")
    assert parse_place("prices") is None
    assert parse_place("prices.v2_x-1") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mysql://db/shop#t", "mysql: is not the address of a table"),
        ("postgresql://ann:pass@db/shop", "names no table"),
        ("postgresql://ann:pa#ss@db/shop", "write # before that as %23"),
        ("postgresql:db#t", "the address must be postgresql://HOST"),
        ("postgresql://db/shop#a.b.c", "a table's name must be TABLE or SCHEMA.TABLE"),
        ("postgresql://db/shop#a.", "a table's name must be TABLE or SCHEMA.TABLE"),
        ("postgresql://db/shop#a%00", "have a NUL"),
        ("sqlite:shop.db", "names no table"),
        ("sqlite:#t", "needs a path"),
        ("parquet:", "needs a directory"),
    ],
)
def test_wrong_ones(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=".") as complaint:
        parse_place(text)
    assert words in str(complaint.value)
    assert "pass" not in str(complaint.value) and "ss@" not in str(complaint.value)
