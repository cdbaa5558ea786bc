"""A PostgreSQL for the session, and an empty database of it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from .databases import Database
from .postgres_server import Server, programs, server

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (make system-deps)")
    with server() as running:
        yield running


@pytest.fixture
def database(postgres: Server) -> str:
    """The name of an empty database."""
    name = f"test_{next(_NUMBERS)}"
    with psycopg.connect(postgres.address("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return name


@pytest.fixture(params=["postgresql", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return Database(f"sqlite:{tmp_path / 'shop.db'}", sqlite=tmp_path / "shop.db")
    name = request.getfixturevalue("database")
    return Database(request.getfixturevalue("postgres").address(name))
