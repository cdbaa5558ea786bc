"""docs/pipelines.md is followed word for word: the blocks of a section run in order, and print what the page says.

Not followed: the pipelines on a broker's own topics, whose lines differ from run to run. `test_self_topics.py` counts
the lines of its log.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from cli.snippets import Shell, blocks_of

import headrace.testing

from .tables.postgres_server import programs, server
from .test_declarative import copy_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pipelines.md").read_text("utf-8")
FIRST = "Run your first one"
SYNC = "Keep a table equal to a topic"
CHANGES = "Write a table's changes to a topic"
MIRROR = "Copy topics to another cluster"
DECLARATIVE = "Use Spark's declarative pipelines"
ALONE = ("Find sessions of users", "Alert on error rates")
DATABASE = "postgresql://shop@db/shop"


def sections() -> dict[str, str]:
    """The text of each section by its title."""
    parts = re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str) -> list[tuple[str, str]]:
    return [block for block in blocks_of(text) if block[0] in {"console", "sh", "python"}]


def follow(text: str, shell: Shell) -> None:
    for language, block in commands(text):
        if language == "console":
            shell.follow(block)
        elif language == "sh":
            shell.run(["bash", "-e", "-o", "pipefail", "-c", block])
        else:
            shell.run([sys.executable, "-c", block])


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with headrace.testing.broker() as broker:
        yield broker.bootstrap


def test_each_section_with_commands_is_followed() -> None:
    followed = {FIRST, *ALONE, SYNC, CHANGES, MIRROR, DECLARATIVE}
    assert {title for title, text in sections().items() if commands(text)} == followed


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("title", ALONE)
def test_a_section_that_needs_one_broker(title: str, bootstrap: str, tmp_path: Path) -> None:
    follow(sections()[title], Shell(tmp_path, bootstrap))


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("title", [SYNC, CHANGES])
def test_a_section_that_needs_postgresql(title: str, bootstrap: str, tmp_path: Path) -> None:
    if programs() is None or shutil.which("psql") is None:
        pytest.skip("PostgreSQL is not installed (make system-deps)")
    text = sections()[title]
    assert text.count(DATABASE) == 2
    with server() as postgres:
        with psycopg.connect(postgres.address("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        follow(text.replace(DATABASE, postgres.address("shop")), Shell(tmp_path, bootstrap))


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_section_of_two_clusters(tmp_path: Path) -> None:
    with ExitStack() as stack:
        text = sections()[MIRROR]
        for name in ("east:9092", "west:9092"):
            assert name in text
            text = text.replace(name, stack.enter_context(headrace.testing.broker()).bootstrap)
        follow(text, Shell(tmp_path, ""))


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_first_run_and_the_declarative_example_after_it(bootstrap: str, tmp_path: Path) -> None:
    copy_of("surge", tmp_path / "examples" / "declarative")
    shell = Shell(tmp_path, bootstrap)
    follow(sections()[FIRST], shell)
    follow(sections()[DECLARATIVE].replace("127.0.0.1:9092", bootstrap), shell)
