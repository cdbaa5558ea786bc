"""Mirrors whose batches are transactions: killed at random, every record of the source is in the copy once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from peers.kafka import KafkaPeer
from peers.transactions import DONE as ENDED
from peers.transactions import SMALL, settled_ends, state_of

import headrace.testing
from headrace.client import admin, groups
from headrace.client.cluster import Client
from headrace.client.groups import Committed
from headrace.client.reading import latest_offsets
from headrace_pipelines.mirror import COMMITS

from .drivers import RUN_S, drive, finish, first_batch, kill
from .test_mirror import commit, committed, records, write

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ONCE = ["--delivery", "exactly-once"]


@pytest.fixture
def source() -> Iterator[str]:
    with headrace.testing.broker() as broker:
        yield broker.bootstrap


def write_and_abort(bootstrap: str, topic: str, rounds: int) -> None:
    """Transactions of which every third is aborted, to both partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "payer"})
    producer.init_transactions(RUN_S)
    for number in range(rounds):
        producer.begin_transaction()
        for n in range(20):
            # of a time that tells it apart from what `write` writes
            producer.produce(
                topic, b"%d-%d" % (number, n), partition=n % 2, timestamp=1_600_000_000_000 + number * 20 + n
            )
        producer.flush(RUN_S)
        producer.commit_transaction(RUN_S) if number % 3 else producer.abort_transaction(RUN_S)


class Followed:
    """Groups of the source, and what has been seen of them at the target."""

    def __init__(self, source: str, target: str, size: int) -> None:
        self.source, self.target = source, target
        self.starts = {f"group-{n}": size * n // 8 for n in range(9)}
        self.seen: list[tuple[int, int, int]] = []
        for group, offset in self.starts.items():
            commit(source, group, {("rides", 0): offset, ("rides", 1): size - offset})

    def look(self) -> None:
        for group in self.starts:
            there = committed(self.target, group)
            for at, offset in committed(self.source, group).items():
                if at in there:
                    self.seen.append((at[1], offset, there[at]))

    def check(self) -> None:
        """No group has passed a record: from where it stands on, the copy has all that the source has from there."""
        assert len(self.seen) >= len(self.starts)
        source, target = (with_offsets(at) for at in (self.source, self.target))
        for index, offset, there in self.seen:
            left = {row["timestamp"] for row in target[index] if row["offset"] >= there}
            assert left >= {row["timestamp"] for row in source[index] if row["offset"] >= offset}


def with_offsets(bootstrap: str) -> dict[int, list[dict[str, Any]]]:
    rows = headrace.scan("rides", bootstrap=bootstrap, columns=["partition", "offset", "timestamp"]).to_pylist()
    return {index: [row for row in rows if row["partition"] == index] for index in (0, 1)}


def check(source: str, target: str) -> None:
    """Each record once and in order, for readers of what is committed; nothing is left open."""
    assert records(target, "rides") == records(source, "rides")
    with Client(target) as client:
        assert settled_ends(client, "rides") == latest_offsets(client, "rides")
        (mark,) = [found.group_id for found in groups.list_groups(client) if found.group_id.startswith("headrace-")]
        assert groups.fetch_offsets(client, mark).keys() == {(COMMITS, 0)}
        assert state_of(client, mark) in ENDED


def make(source: str, count: int, rounds: int) -> None:
    with Client(source) as client:
        # its records are of 2023, and Apache Kafka deletes what is a week old half a minute after its start
        admin.create_topic(client, "rides", partitions=2, configs={"retention.ms": "-1"})
    write(source, "rides", range(count // 2))
    write_and_abort(source, "rides", rounds)
    write(source, "rides", range(count // 2, count))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_killed_mirror_copies_every_record_once(source: str, tmp_path: Path) -> None:
    """From a source with transactions of its own: what was aborted is not copied, and markers are not."""
    make(source, 6000, 9)
    # a mark of the sink in a topic that is copied: the number of a batch, which is no offset
    with Client(source) as client:
        marked = Committed(3, metadata='{"v":1,"run":"r","tasks":2,"rows":5}')
        groups.commit_offsets(client, "headrace-other-query", {("rides", 0): marked})
    with headrace.testing.broker() as broker:
        followed = Followed(source, broker.bootstrap, 3000)
        arguments = ["mirror", "--topics", "rides", "--to-bootstrap", broker.bootstrap, *ONCE, "--max-per-batch", "700"]
        driver = drive(source, tmp_path, *arguments, "--trigger", "0s")
        try:
            first_batch(driver)
            time.sleep(random.uniform(0.0, 1.0))
        finally:
            kill(driver)
        followed.look()
        finish(drive(source, tmp_path, *arguments[:-2], "--once"))
        followed.look()
        check(source, broker.bootstrap)
        followed.check()
        assert committed(broker.bootstrap, "headrace-other-query") == {}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["headrace", "kafka"])
def test_mirrors_killed_at_any_moment(source: str, tmp_path: Path, kind: str) -> None:
    peer = headrace.testing.broker() if kind == "headrace" else KafkaPeer(settings=SMALL)
    chance = random.Random(kind)
    make(source, 60_000, 60)
    with peer as broker:
        followed = Followed(source, broker.bootstrap, 30_000)
        arguments = ["mirror", "--pattern", "r.*", "--to-bootstrap", broker.bootstrap, *ONCE, "--max-per-batch", "400"]
        for _ in range(8):
            driver = drive(source, tmp_path, *arguments, "--trigger", "0s")
            try:
                first_batch(driver)
                time.sleep(chance.uniform(0.0, 4.0))
            finally:
                kill(driver)
            followed.look()
        finish(drive(source, tmp_path, *arguments[:-2], "--once"))
        followed.look()
        check(source, broker.bootstrap)
        followed.check()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_mirror_within_one_cluster_does_not_copy_its_own_commits(source: str, tmp_path: Path) -> None:
    make(source, 3000, 3)
    arguments = ["mirror", "--pattern", "[a-v].*", "--prefix", "west.", "--to-bootstrap", source, *ONCE]
    for _ in range(2):
        finish(drive(source, tmp_path, *arguments, "--once"))
    assert records(source, "west.rides") == records(source, "rides")
    with Client(source) as client:
        names = {topic.name for topic in client.topics()}
    assert COMMITS in names and f"west.{COMMITS}" not in names
