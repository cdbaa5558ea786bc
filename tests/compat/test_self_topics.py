"""What a broker publishes of itself, read by clients of others, beside what it wrote to standard error."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from peers.headrace import HeadracePeer
from peers.waiting import until

LOGS, METRICS = "headrace.logs", "headrace.metrics"
PATIENCE_S = 60
BAD_CONNECTIONS = 20
WRITTEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (\w+) (\S+): (.*)")

Line = tuple[str, str, str]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadracePeer]:
    """A broker that has something to say: a key that it does not know, and bytes that are no request."""
    directory = tmp_path_factory.mktemp("self-topics")
    settings = {"no.such.key": "1", "self.topics.metrics.interval.ms": "200"}
    with HeadracePeer(directory, settings, options=["--self-topics"]) as running:
        for _ in range(BAD_CONNECTIONS):
            with socket.create_connection(("127.0.0.1", running.port)) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert raw.recv(1) == b""
        yield running


def written(log: Path) -> list[Line]:
    """(level, logger, message) of each line on standard error."""
    found = (WRITTEN.fullmatch(line) for line in log.read_text().splitlines())
    return [(match[1], match[2], match[3]) for match in found if match]


def read_with_confluent(
    peer: HeadracePeer, topic: str, is_enough: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: list[dict[str, Any]] = []
    patience = time.monotonic() + PATIENCE_S
    try:
        while not is_enough(records):
            assert time.monotonic() < patience, records
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                assert message.key() == b"headrace-1"
                records.append(json.loads(message.value() or b""))
                assert message.timestamp()[1] == records[-1]["time"]
    finally:
        consumer.close()
    return records


def test_confluents_client_reads_the_log(peer: HeadracePeer) -> None:
    def closed() -> list[Line]:
        return [line for line in written(peer.log) if "connection closed" in line[2] and "a frame of" in line[2]]

    until(lambda: len(closed()) == BAD_CONNECTIONS, "each connection is reported")
    lines = written(peer.log)
    assert lines[0] == ("WARNING", "headrace.broker", "no.such.key is not a setting of this broker and has no effect")
    records = read_with_confluent(peer, LOGS, lambda read: len(read) >= len(lines))
    assert [(each["level"], each["logger"], each["message"]) for each in records] == lines
    assert {each["service"] for each in records} == {"headrace-1"}


def test_confluents_client_reads_the_metrics(peer: HeadracePeer) -> None:
    def closed(read: list[dict[str, Any]]) -> list[int]:
        return [each["value"] for each in read if each["name"] == "connections.closed_for_bad_input"]

    records = read_with_confluent(
        peer, METRICS, lambda read: bool(read) and BAD_CONNECTIONS in closed(read[-1:]) and len(read) >= 100
    )
    assert closed(records) == sorted(closed(records)) and closed(records)[-1] == BAD_CONNECTIONS
    # an interval is told of where there were requests in it
    assert {each["kind"] for each in records} - {"interval"} == {"counter", "gauge"}


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (make system-deps)")
def test_kcat_reads_both(peer: HeadracePeer) -> None:
    for topic, least in ((LOGS, BAD_CONNECTIONS + 1), (METRICS, 10)):
        command = ["kcat", "-b", peer.bootstrap, "-C", "-t", topic, "-c", str(least), "-q"]
        done = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        assert [json.loads(line)["service"] for line in done.stdout.splitlines()] == ["headrace-1"] * least


@pytest.mark.slow
def test_the_log_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """A clean stop publishes what was logged until then; the next start goes on behind it."""
    with HeadracePeer(tmp_path, {"first.key": "1"}, options=["--self-topics"]):
        pass
    with HeadracePeer(tmp_path, {"second.key": "1"}, options=["--self-topics"]) as peer:
        lines = written(peer.log)
        records = read_with_confluent(peer, LOGS, lambda read: len(read) >= len(lines))
    told = [each["message"].split(" ")[0] for each in records if "is not a setting" in each["message"]]
    assert told == ["first.key", "second.key"]
    lives = [each["message"] for each in records if each["message"].startswith("broker s")]
    assert [line.partition(" ")[2].split(" ")[0] for line in lives][:4] == ["starts", "serves", "stops", "starts"]
