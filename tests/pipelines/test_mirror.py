"""Whole mirrors: record by record, group by group, from and to brokers of either kind, killed and followed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import settled_ends
from peers.waiting import until

import headrace
import headrace.testing
from headrace.client import admin, groups
from headrace.client.cluster import Client
from headrace.client.metadata import TopicPartition
from headrace.client.producer import Producer

from .drivers import RUN_S, drive, finish, first_batch, kill

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

T0_MS = 1_700_000_000_000


@pytest.fixture
def brokers() -> Iterator[tuple[str, str]]:
    with headrace.testing.broker() as source, headrace.testing.broker() as target:
        yield source.bootstrap, target.bootstrap


def write(bootstrap: str, topic: str, numbers: range, partitions: int = 2) -> None:
    """Records of every kind: without keys, without values, empty, with headers and without, of times that jump."""
    with Client(bootstrap) as client, Producer(client, batch_size=20_000) as producer:
        for n in numbers:
            producer.send(
                topic,
                None if n % 11 == 0 else b"" if n % 13 == 0 else b"%d" % n,
                key=None if n % 7 == 0 else b"key-%d" % (n % 100),
                headers=[("n", b"%d" % n), ("n", None), ("", b"")][: n % 4],
                timestamp_ms=T0_MS + (n * 7919) % 86_400_000,
                partition=n % partitions,
            )


def records(bootstrap: str, topic: str) -> dict[int, list[dict[str, Any]]]:
    """What a topic holds, by partition and in its order; without offsets."""
    table = headrace.scan(topic, bootstrap=bootstrap)
    rows = table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        del row["topic"], row["offset"]
        found.setdefault(row.pop("partition"), []).append(row)
    return found


def committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    with Client(bootstrap) as client:
        return {at: found.offset for at, found in groups.fetch_offsets(client, group).items()}


def commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    with Client(bootstrap) as client:
        groups.commit_offsets(client, group, offsets)


def read_on(bootstrap: str, group: str, topic: str, count: int) -> dict[int, list[bytes | None]]:
    """The values of the next records of a group, by partition, read by another client."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "latest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    found: dict[int, list[bytes | None]] = {}
    try:
        consumer.subscribe([topic])
        for _ in range(count):
            message = consumer.poll(RUN_S)
            assert message is not None and message.error() is None, message and message.error()
            partition = message.partition()
            assert partition is not None
            found.setdefault(partition, []).append(message.value())
    finally:
        consumer.close()
    return found


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_record_by_record_and_what_is_new_is_followed(brokers: tuple[str, str], tmp_path: Path) -> None:
    source, target = brokers
    with Client(source) as client:
        admin.create_topic(client, "rides", partitions=3, configs={"retention.ms": "-1"})
        admin.create_topic(client, "other", partitions=1)
    write(source, "rides", range(5000))  # the third partition is empty
    commit(source, "half", {("rides", 0): 1200, ("rides", 1): 2500})
    driver = drive(source, tmp_path, "mirror", "--pattern", "rides.*", "--to-bootstrap", target, "--trigger", "100ms")
    try:
        assert first_batch(driver)["rows"] == 5000
        assert records(target, "rides") == records(source, "rides")
        until(lambda: committed(target, "half") == {("rides", 0): 1200, ("rides", 1): 2500})
        commit(source, "half", {("rides", 0): 1300, ("rides", 1): 2500})
        until(lambda: committed(target, "half")["rides", 0] == 1300)

        with Client(source) as client:
            admin.add_partitions(client, "rides", 4)
            admin.create_topic(client, "rides-of-bikes", partitions=2)
        write(source, "rides", range(5000, 7000), partitions=4)
        write(source, "rides-of-bikes", range(100))
        wanted = records(source, "rides")
        until(lambda: sum(map(len, records(target, "rides").values())) == 7000)
        assert records(target, "rides") == wanted
        until(lambda: counts(target, "rides-of-bikes") == {0: 50, 1: 50})
        assert records(target, "rides-of-bikes") == records(source, "rides-of-bikes")

        left = read_on(target, "half", "rides", 1700 + 500)
        assert left == {0: values(wanted[0][1300:]), 1: values(wanted[1][2500:])}
        driver.terminate()
        finish(driver)
    finally:
        if driver.poll() is None:
            kill(driver)
    with Client(target) as client:
        names = {topic.name: len(topic.partitions) for topic in client.topics()}
        entries = admin.describe_configs(client, admin.Resource.TOPIC, "rides")
    assert names["rides"] == 4 and names["rides-of-bikes"] == 2 and "other" not in names
    assert {entry.name: entry.value for entry in entries}["retention.ms"] == "-1"


def counts(bootstrap: str, topic: str) -> dict[int, int]:
    """How many records the partitions of a topic have, those without any left out; a topic may not be there yet."""
    with Client(bootstrap) as client:
        if client.refresh([topic]):
            return {}
    return {index: len(rows) for index, rows in records(bootstrap, topic).items()}


def values(rows: list[dict[str, Any]]) -> list[bytes | None]:
    return [row["value"] for row in rows]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_killed_drivers_lose_nothing_and_no_group_passes_a_record(brokers: tuple[str, str], tmp_path: Path) -> None:
    source, target = brokers
    with Client(source) as client:
        admin.create_topic(client, "rides", partitions=2)
    write(source, "rides", range(24_000))
    starts = {f"group-{n}": 12_000 * n // 8 for n in range(9)}
    for group, offset in starts.items():
        commit(source, group, {("rides", 0): offset, ("rides", 1): 12_000 - offset})
    seen: list[tuple[TopicPartition, int, int]] = []

    def look() -> None:
        for group in starts:
            there = committed(target, group)
            seen.extend((at, offset, there[at]) for at, offset in committed(source, group).items() if at in there)

    arguments = ["mirror", "--topics", "rides", "--to-bootstrap", target, "--max-per-batch", "400"]
    for _ in range(2):
        driver = drive(source, tmp_path, *arguments, "--trigger", "0s")
        try:
            first_batch(driver)
            time.sleep(random.uniform(0.0, 2.0))
        finally:
            kill(driver)
        look()
    batches = finish(drive(source, tmp_path, *arguments[:-2], "--once"))
    assert 400 < sum(batch["rows"] for batch in batches) < 24_000, "each run goes on where the one before it was"
    look()
    assert len(seen) >= 2 * len(starts)
    wanted, found = records(source, "rides"), records(target, "rides")
    for index in (0, 1):
        assert in_order_once(found[index], wanted[index]) == wanted[index]
    for (_, index), offset, there in seen:
        left = {row["timestamp"] for row in found[index][there:]}
        assert left >= {row["timestamp"] for row in wanted[index][offset:]}
    again = sum(map(len, found.values())) - 24_000
    assert 0 <= again <= 2 * 400, "no more than the batches that the kills cut short"
    group = "group-4"
    half = read_on(target, group, "rides", 12_000)
    assert {index: part[0] for index, part in half.items()} == {i: wanted[i][6000]["value"] for i in (0, 1)}


def in_order_once(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was found, without what was found before; the times of the records tell them apart."""
    once = {row["timestamp"]: row for row in found}
    assert len({row["timestamp"] for row in wanted}) == len(wanted)
    return list(once.values())


@pytest.mark.timeout(600)
def test_transactions_of_apache_kafka(tmp_path: Path) -> None:
    """Markers and aborted records leave gaps at the source; the copy has neither."""
    with (
        KafkaPeer(settings={"offsets.topic.num.partitions": "1"}) as kafka,
        headrace.testing.broker() as ours,
        client_of(kafka) as client,
    ):
        admin.create_topic(client, "paid", partitions=1)
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "payer"})
        producer.init_transactions(RUN_S)
        wanted: list[tuple[int, bytes]] = []
        offset = 0
        for number in range(30):
            producer.begin_transaction()
            for n in range(20):
                value = b"%d-%d" % (number, n)
                producer.produce("paid", value, partition=0)
                if number % 3:
                    wanted.append((offset + n, value))
            producer.flush(RUN_S)  # an abort would take back what has not left yet
            producer.commit_transaction(RUN_S) if number % 3 else producer.abort_transaction(RUN_S)
            offset += 21
        settled_ends(client, "paid")
        groups_at = {f"group-{at}": at for at in range(0, offset + 1, 30)}
        for group, at in groups_at.items():
            commit(kafka.bootstrap, group, {("paid", 0): at})
        arguments = ["--topics", "paid", "--to-bootstrap", ours.bootstrap, "--once"]
        finish(drive(kafka.bootstrap, tmp_path, "mirror", *arguments))
        copy = records(ours.bootstrap, "paid")[0]
        assert values(copy) == [value for _, value in wanted]
        for group, at in groups_at.items():
            exact = sum(there < at for there, _ in wanted)
            gaps = (offset - at) - (len(wanted) - exact)
            assert exact - gaps <= committed(ours.bootstrap, group)["paid", 0] <= exact
        assert committed(ours.bootstrap, "group-630")["paid", 0] == len(copy) == 400
