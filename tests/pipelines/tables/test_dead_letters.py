"""`table-sync` with `--dead-letters` and `--delivery exactly-once`, killed at any moment: each record that no row can
be made of is in the topic of dead letters once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.transactions import SMALL, settled_ends, visible_records

from headrace.client.cluster import Client
from headrace.client.partitioner import partition_for_key
from headrace.client.reading import latest_offsets
from pipelines.drivers import drive, finish, first_batch, kill, make

from .databases import Database
from .test_runs import CHANGES, SCHEMA, change, produce, table_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.soak]

KILLS = 8
EVERY = 5
"""One of so many records is unreadable."""
TOPIC, LETTERS = "items", "letters"
PREFIX = "headrace.dead_letter."


@pytest.fixture(params=[HeadracePeer, KafkaPeer])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.param(settings=SMALL) as peer:
        yield peer.bootstrap


@pytest.mark.timeout(1800)
def test_letters_are_sent_once(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, TOPIC, partitions=2)
    records = [change(number) for number in range(CHANGES)]
    readable = [record for number, record in enumerate(records) if number % EVERY]
    for number in range(0, CHANGES, EVERY):
        records[number] = (records[number][0], b"no json %d" % number)
    produce(bootstrap, TOPIC, records)
    table = Database(f"sqlite:{tmp_path / 'shop.db'}", tmp_path / "shop.db")
    state = tmp_path / "state"
    arguments = ["table-sync", "--from", TOPIC, "--to", f"{table.address}#items", *SCHEMA]
    arguments += ["--dead-letters", LETTERS, "--delivery", "exactly-once"]
    chance = random.Random(KILLS)
    for _ in range(KILLS):
        driver = drive(bootstrap, state, *arguments, "--max-per-batch", "200", "--trigger", "0s")
        try:
            first_batch(driver)
            time.sleep(chance.uniform(0.0, 2.0))
        finally:
            kill(driver)
    assert finish(drive(bootstrap, state, *arguments, "--once")), "the kills came while much was left to do"
    rows = table.run("SELECT id, name, price FROM items")
    assert {row[0]: row[1:] for row in rows} == {key: row[:2] for key, row in table_of(readable).items()}
    with Client(bootstrap) as client:
        letters = [letter for found in visible_records(client, LETTERS).values() for letter in found]
        assert settled_ends(client, LETTERS) == latest_offsets(client, LETTERS), "nothing is open"
    unreadable = [record for number, record in enumerate(records) if number % EVERY == 0]
    assert sorted((letter.key, letter.value) for letter in letters) == sorted(unreadable)
    places = set()
    for letter in letters:
        said = {name.removeprefix(PREFIX): text for name, text in letter.headers}
        assert letter.key is not None and int(said["partition"] or b"") == partition_for_key(letter.key, 2)
        places.add((said["partition"], said["offset"]))
    assert len(places) == len(letters)
