"""The live table: what it shows of its own reader's lag, and of the query's."""

from __future__ import annotations

import html
import io
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console

import headrace.testing
from demo.broker import SURGE
from demo.loss import LeaderLoss
from demo.table import Progress, Screen, SurgeReader
from headrace.client import admin
from headrace.client.cluster import Client
from headrace.client.producer import Producer

PATIENCE_S = 60.0


def send(client: Client, partition: int, count: int) -> None:
    with Producer(client) as producer:
        for number in range(count):
            hour = {"origin": "JFK", "hour": f"2013-01-01T{number % 24:02}:00:00Z", "demand": 2, "supply": 1}
            producer.send(SURGE, json.dumps({**hour, "surge": 2.0}).encode(), partition=partition)


def test_the_lag_is_what_is_written_and_not_read_yet() -> None:
    with headrace.testing.broker() as broker:
        with broker.client() as client:
            admin.create_topic(client, SURGE, partitions=2)
            send(client, 0, 30)
            send(client, 1, 12)
        reader = SurgeReader(broker.bootstrap, SURGE, partitions=2)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "t", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(SURGE, index, 0) for index in range(2)])
            assert reader.behind(consumer) == 0, "nobody has said yet where the topic ends"
            read: dict[int, int] = {}
            deadline = time.monotonic() + PATIENCE_S
            while sum(read.values()) < 42:
                for message in consumer.consume(1, timeout=0.5):
                    assert message.error() is None
                    partition = message.partition()
                    assert partition is not None
                    read[partition] = read.get(partition, 0) + 1
                    if len(read) == 2:  # the end of a partition is known with the first answer from it
                        assert reader.behind(consumer) == 42 - sum(read.values())
                assert time.monotonic() < deadline
        finally:
            consumer.close()


def test_a_reader_that_has_caught_up_has_no_lag() -> None:
    with headrace.testing.broker() as broker:
        with broker.client() as client:
            admin.create_topic(client, SURGE, partitions=2)
            send(client, 1, 25)
        reader = SurgeReader(broker.bootstrap, SURGE, partitions=2)
        reader.lag = 99
        reader.start()
        try:
            deadline = time.monotonic() + PATIENCE_S
            while reader.records < 25 or reader.lag:
                assert time.monotonic() < deadline, (reader.records, reader.lag)
                time.sleep(0.02)
        finally:
            reader.stop()
        assert not reader.is_alive()
        assert reader.newest["JFK"]["hour"] == "2013-01-01T23:00:00Z"


def test_the_screen_shows_both_lags() -> None:
    replay: Any = SimpleNamespace(delivered=1_500, now_ms=1_372_971_600_000, year=range(3_000))
    progress = Progress(query=None, rows=1_200, batches=4, batch_ms=310)
    reader = SurgeReader("nowhere:9092", SURGE, partitions=2)
    reader.records, reader.lag = 640, 17
    reader.take({"origin": "JFK", "hour": "2013-07-04T21:00:00Z", "demand": 9, "supply": 3, "surge": 3.0})
    screen = Screen(replay, progress, reader, {"JFK": "John F Kennedy Intl"})
    assert "flights   1,500 (0/s), lag of the query 300; surge    640 (0/s), lag 17; 0 dropped" in screen.line()
    drawn = io.StringIO()
    Console(width=80, file=drawn).print(screen.draw())
    rows = {words[1]: words for line in drawn.getvalue().splitlines() if len(words := line.split()) > 1}
    assert rows["flights"][2:5] == ["1,500", "0", "300"]
    assert rows["surge"][2:5] == ["640", "0", "17"]
    assert "John F Kennedy Intl" in " ".join(rows["JFK"])


def test_the_screen_fits_80_columns_and_cuts_nothing() -> None:
    replay: Any = SimpleNamespace(delivered=336_775, now_ms=1_372_971_600_000, year=range(336_776))
    progress = Progress(query=None, rows=100_000, batches=1_234, batch_ms=12_345, dropped_late=1_234)
    reader = SurgeReader("nowhere:9092", SURGE, partitions=2)
    reader.records, reader.lag = 123_456, 12_345
    names = {"EWR": "Newark Liberty Intl", "JFK": "John F Kennedy Intl", "LGA": "La Guardia"}
    for code in names:
        hour = {"origin": code, "hour": "2013-07-04T21:00:00Z", "demand": 120, "supply": 3, "surge": 120.25}
        reader.take(hour)
    screen = Screen(replay, progress, reader, names)
    drawn = io.StringIO()
    Console(width=80, file=drawn).print(screen.draw())
    lines = drawn.getvalue().splitlines()
    assert {len(line) for line in lines} == {80}
    assert len(lines) == 20, "no row takes two lines"
    text = drawn.getvalue()
    assert "…" not in text
    numbers = ("336,775", "236,775", "123,456", "12,345", "120.25", "100%")
    query = "the query: 1,234 batches, the last in 12345 ms; 1234 dropped as late"
    for whole in (*numbers, query, "John F Kennedy Intl", "04 Jul 17:00", "█" * 14):
        assert whole in text, whole


def test_a_picture_is_taken_once_when_the_next_leader_takes_writes(tmp_path: Path) -> None:
    replay: Any = SimpleNamespace(delivered=1_500, now_ms=1_372_971_600_000, year=range(3_000))
    now = 0.0
    loss = LeaderLoss("flights", {1: lambda: None, 2: lambda: None}, dict, clock=lambda: now)
    path = tmp_path / "docs" / "table.svg"
    reader = SurgeReader("nowhere:9092", SURGE, partitions=2)
    screen = Screen(replay, Progress(query=None), reader, {}, loss, path)
    screen.take_picture()
    loss.node, loss.partition, loss.struck_s = 1, 0, 10.0
    screen.take_picture()
    loss.successor, loss.led_after_s = 2, 0.2
    screen.take_picture()
    assert not path.exists(), "nobody has written to the next leader yet"
    now = 10.3
    loss.acknowledged(0)
    screen.take_picture()
    drawn = path.read_text()
    text = html.unescape(" ".join(re.findall(r">([^<]+)</text>", drawn))).replace("\xa0", " ")
    assert "node 1, leader of flights-0, was killed with SIGKILL" in text
    assert "node 2 led after 0.20 s" in text
    assert "url(" not in drawn.replace("url(#", ""), "it loads nothing from anywhere"
    path.unlink()
    screen.take_picture()
    assert not path.exists()
