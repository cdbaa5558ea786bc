"""A table's changes sent exactly once: runs die at each request of a page, and every state that was read is there
once.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from peers.transactions import settled_ends, visible
from spark.dying import DEAD, Death, run_and_die

import headrace.testing
from headrace.client import admin
from headrace.client.cluster import Client
from headrace.client.reading import latest_offsets
from headrace.spark.delivery.markers import HistoryError
from headrace.spark.options import SinkOptions, sink_options
from headrace.spark.process_state import this_process
from headrace.wire.apis import ApiKey as A
from headrace_pipelines.tables.following import TableError
from headrace_pipelines.tables.moments import look_back_of
from headrace_pipelines.tables.pages import PAGES, Pages
from headrace_pipelines.tables.places import SqlitePlace, parse_place
from headrace_pipelines.tables.sources import SqliteSource
from headrace_pipelines.tables.watching import Watch, Watcher

DEATHS = [
    Death(A.INIT_PRODUCER_ID, "answered"), Death(A.PRODUCE, "before"), Death(A.PRODUCE, "answered"),
    Death(A.TXN_OFFSET_COMMIT, "answered"), Death(A.END_TXN, "before"), Death(A.END_TXN, "sent"),
    Death(A.END_TXN, "answered"),
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with headrace.testing.broker() as broker, Client(broker.bootstrap) as client:
        yield client


class Shop:
    """A table in SQLite, its topic, and runs one after the other."""

    def __init__(self, client: Client, directory: Path) -> None:
        self.client = client
        self.directory = directory
        self.topic = directory.name
        self.file = directory / "shop.db"
        admin.create_topic(client, self.topic, partitions=1)
        self.write("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, at INTEGER)")
        self.states: list[tuple[int, str]] = []

    def write(self, statement: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(statement, values)

    def put(self, number: int, name: str, at: int) -> None:
        self.write("INSERT OR REPLACE INTO items VALUES (?, ?, ?)", number, name, at)
        self.states.append((number, name))

    def options(self) -> SinkOptions:
        host, port = self.client.bootstrap[0]
        given = {"kafka.bootstrap.servers": f"{host}:{port}", "topic": self.topic, "delivery": "exactly-once"}
        return sink_options({**given, "commitTopic": "commits", "markerTopic": "commits"})

    def run(self, checkpoint: str = "state") -> int:
        """A run that ends when it has looked once, in pages of four rows; how many rows it sent."""
        this_process().query_producers.kept.clear()
        this_process().writers.kept.clear()
        place = parse_place(f"sqlite:{self.file}#items")
        assert isinstance(place, SqlitePlace)
        source = SqliteSource(place, Watch(("id",), "at"), print)
        source.check()
        directory = self.directory / checkpoint
        directory.mkdir(exist_ok=True)
        each = Watcher(source, Pages(directory, self.options()), look_back_of("5"), 4)
        return sum(page.sent for page in each.look())

    def check(self) -> None:
        """Every state that was put, once and in order; nothing is open."""
        found = [json.loads(value) for value in visible(self.client, self.topic)]
        assert sorted((row["id"], row["name"]) for row in found) == sorted(self.states)
        last = {row["id"]: row["name"] for row in found}
        assert last == dict(self.states)
        assert settled_ends(self.client, self.topic) == latest_offsets(self.client, self.topic)


@pytest.fixture
def shop(cluster: Client, tmp_path: Path) -> Shop:
    return Shop(cluster, tmp_path)


def test_a_run_that_begins_again_sends_nothing_again(shop: Shop) -> None:
    for number in range(10):
        shop.put(number, "a", 100 + number)
    assert shop.run() == 10
    assert shop.run() == 0, "the look-back is remembered"
    shop.put(9, "b", 109)  # within the look-back, at the same value
    shop.put(3, "c", 110)
    assert shop.run() == 2
    assert shop.run() == 0
    shop.check()
    files = sorted(path.name for path in (shop.directory / "state" / PAGES).iterdir())
    assert len(files) == 2


def test_runs_that_die_at_any_request(shop: Shop) -> None:
    for number, death in enumerate(DEATHS):
        for row in range(6):
            shop.put(row, f"{death}", 100 + 10 * number + row)
        assert run_and_die(shop.run, death) == DEAD, str(death)
        if number % 2:
            assert run_and_die(shop.run, death) in (DEAD, 0), "and again in the same page"
        shop.run()
    shop.check()


def test_a_checkpoint_that_is_an_older_copy(shop: Shop) -> None:
    for number in range(10):
        shop.put(number, "a", 100 + number)
    shop.run()
    shutil.copytree(shop.directory / "state", shop.directory / "copy")
    for number in range(10):
        shop.put(number, "b", 200 + number)
    shop.run()
    with pytest.raises(TableError, match=r"knows of pages up to 2, and the last one .* is 5: it is an older copy"):
        shop.run("copy")
    shop.check()


def test_of_two_runs_one_goes_on(shop: Shop) -> None:
    shop.put(1, "a", 100)
    shop.run()
    stale = Pages(shop.directory / "state", shop.options())
    shop.put(1, "b", 200)
    shop.run()
    with pytest.raises(HistoryError, match="comes after batch|is in the topic already"):
        for _ in range(2):
            stale._last -= 1
            stale.keep(None, None, {})
    shop.check()


def test_a_page_of_a_copied_checkpoint_is_not_taken_for_sent(shop: Shop) -> None:
    """Two runs go on from one page; the one that comes second with the next number has another page."""
    shop.put(1, "a", 100)
    shop.run()
    late = Pages(shop.directory / "state", shop.options())
    shop.put(1, "b", 200)
    shop.run()
    this_process().query_producers.kept.clear()
    with pytest.raises(HistoryError, match="^Batch 1 of query .* is in the topic with other records"):
        late.keep(None, None, {})
    shop.check()
