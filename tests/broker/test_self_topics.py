"""A broker that publishes its own log lines and metrics: what it makes, what it waits for, and what it leaves out."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, produce
from peers.waiting import until

from headrace.broker import self_topics
from headrace.broker.self_topics import LOGS_TOPIC, METRICS_TOPIC, named
from headrace.broker.telemetry.log_lines import LogLines
from headrace.client import admin
from headrace.env.posix import PosixFile
from headrace.log.manager import LogDirLocked
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch

ON = {"self.topics": "true", "self.topics.metrics.interval.ms": "100"}
PATIENCE_S = 30
log = logging.getLogger("headrace.test")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_topics, "TICK_S", 0.02)
    monkeypatch.setattr(self_topics, "RETRY_S", 0.05)


def records(served: TestBroker, topic: str) -> list[dict[str, Any]]:
    """What a topic holds, beside whose keys and times the JSON is looked at."""
    until(lambda: served.call(lambda broker: broker.replicas.is_ready((topic, 0), for_appends=False)))
    replica = served.call(lambda broker: broker.replicas.find(topic, 0))
    if isinstance(replica, ErrorCode):
        return []
    data = b"".join(Path(segment.path).read_bytes() for segment in replica.log.segments)
    found = []
    for at, _ in iter_headers(data):
        for record in decode_batch(data, at):
            value = json.loads(record.value or b"")
            assert record.key == value["service"].encode() == b"headrace-1"
            assert record.timestamp == value["time"]
            found.append(value)
    return found


def messages(served: TestBroker) -> list[str]:
    """The lines of this module's logger."""
    return [line["message"] for line in records(served, LOGS_TOPIC) if line["logger"] == log.name]


def counter(served: TestBroker, name: str) -> int:
    return served.call(lambda broker: broker.metrics.counter(name).value)


def own_handlers() -> list[logging.Handler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LogLines)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[TestBroker]:
    with running_broker(ON, data=tmp_path) as running:
        yield running
    assert own_handlers() == []


def test_nothing_of_it_is_there_by_default() -> None:
    with running_broker() as plain:
        assert own_handlers() == []
        assert plain.inside.self_topics is None
        assert plain.call(lambda broker: list(broker.image.topics)) == []
        names = plain.call(lambda broker: broker.metrics.statistics())
        assert not [name for name in (*names.counters, *names.gauges) if name.startswith("self_topics")]


def test_a_broker_that_cannot_start_hears_no_more_lines(tmp_path: Path) -> None:
    with running_broker(data=tmp_path):
        with pytest.raises(LogDirLocked), running_broker(ON, data=tmp_path):
            pass
        assert own_handlers() == []


def test_the_topics_are_there_at_once_and_bounded(served: TestBroker) -> None:
    with served.client() as client:
        assert {topic.name: len(topic.partitions) for topic in client.topics()} == {LOGS_TOPIC: 1, METRICS_TOPIC: 1}
        for topic in (LOGS_TOPIC, METRICS_TOPIC):
            said = {each.name: each.value for each in admin.describe_configs(client, admin.Resource.TOPIC, topic)}
            assert said["cleanup.policy"] == "delete"
            assert said["retention.ms"] == str(7 * 24 * 3600 * 1000)
            assert (said["retention.bytes"], said["segment.bytes"]) == (str(128 << 20), str(16 << 20))


def test_lines_of_every_level_that_is_logged(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        raw.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert raw.is_closed()
    log.error("second")
    log.debug("not logged")
    until(lambda: "second" in messages(served))
    *_, closed, last = records(served, LOGS_TOPIC)
    assert (closed["level"], closed["logger"]) == ("WARNING", "headrace.net")
    assert "connection closed" in closed["message"] and "a frame of" in closed["message"]
    assert closed["fields"]["why"].startswith("a frame of")
    assert (last["level"], last["logger"], last["message"]) == ("ERROR", log.name, "second")
    assert abs(last["time"] - time.time() * 1000) < PATIENCE_S * 1000


def test_metrics_of_every_interval(served: TestBroker) -> None:
    create_topic(served.port, "t")
    with Raw(served.port) as raw:
        for _ in range(3):
            raw.ask(produce("t", batch(b"x")), 9)

    def produced() -> list[dict[str, Any]]:
        wanted = ("requests", "produce", 3)
        said = records(served, METRICS_TOPIC)
        return [each for each in said if (each["name"], each.get("api"), each.get("value")) == wanted]

    until(lambda: len(produced()) > 2)
    first, second = produced()[:2]
    assert first["kind"] == "counter"
    assert first["time"] < second["time"]
    said = [each for each in records(served, METRICS_TOPIC) if each["time"] == second["time"]]
    assert {each["name"]: each["value"] for each in said if each["kind"] == "gauge"}["replicas.online"] == 3
    assert all(each["value"] for each in said if each["kind"] == "counter"), "what never happened is left out"


def test_requests_of_every_interval(served: TestBroker) -> None:
    """Each is told of once, with the errors in its answer, as soon as it can be."""
    served.call(lambda broker: setattr(broker.self_topics, "_append", refusing))
    create_topic(served.port, "t")
    with Raw(served.port) as raw:
        for name in ("t", "absent", "t"):
            raw.ask(produce(name, batch(b"x")), 9)

    until(lambda: counter(served, "self_topics.refused") > 0)
    served.call(lambda broker: delattr(broker.self_topics, "_append"))

    def told() -> list[dict[str, Any]]:
        said = records(served, METRICS_TOPIC)
        return [each for each in said if each["kind"] == "interval" and each["api"] == "produce"]

    until(lambda: bool(told()))
    with Raw(served.port) as raw:
        raw.ask(produce("t", batch(b"x")), 9)
    until(lambda: len(told()) == 2)
    assert [(each["name"], each["requests"], each["errors"]) for each in told()] == [
        ("requests", 3, 1),
        ("requests", 1, 0),
    ]


def refusing(*_: object) -> ErrorCode:
    return ErrorCode.KAFKA_STORAGE_ERROR


def test_failed_requests_are_among_them(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        for _ in range(2):
            raw.ask(produce("nowhere", batch(b"x")), 9)

    def failed() -> list[tuple[str, str, int]]:
        said = records(served, METRICS_TOPIC)
        return [(each["api"], each["error"], each["value"]) for each in said if each["name"] == "request_errors"]

    until(lambda: ("produce", "UNKNOWN_TOPIC_OR_PARTITION", 2) in failed())


def test_labels_of_metrics() -> None:
    assert named("requests.offset_commit") == {"name": "requests", "api": "offset_commit"}
    labels = {"api": "fetch", "error": "OFFSET_OUT_OF_RANGE"}
    assert named("request_errors.fetch.OFFSET_OUT_OF_RANGE") == {"name": "request_errors", **labels}
    assert named("requests.bytes_held") == {"name": "requests.bytes_held"}


def test_what_publishing_itself_logs_is_not_published(served: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    appended = PosixFile.append

    def append_and_say(file: PosixFile, parts: Any) -> int:
        if LOGS_TOPIC in file.path:
            log.error("written")
        return appended(file, parts)

    monkeypatch.setattr(PosixFile, "append", append_and_say)
    for number in range(3):
        log.error("line %d", number)
        until(lambda: f"line {number}" in messages(served))  # noqa: B023
    assert messages(served) == ["line 0", "line 1", "line 2"]


def test_a_full_disk_keeps_the_lines_and_disturbs_nobody(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    appended, full, refusals = PosixFile.append, True, 0

    def append_if_there_is_room(file: PosixFile, parts: Any) -> int:
        nonlocal refusals
        if full and "/headrace." in file.path:
            refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
        return appended(file, parts)

    monkeypatch.setattr(PosixFile, "append", append_if_there_is_room)
    create_topic(served.port, "t")
    with Raw(served.port) as raw:
        for number in range(5):
            log.error("line %d", number)
            before = refusals
            until(lambda: refusals > before + 2)  # noqa: B023
            assert raw.ask(produce("t", batch(b"x")), 9).responses[0].partition_responses[0].base_offset == number
    assert messages(served) == []
    assert [record.name for record in caplog.records] == [log.name] * 5, "nobody is told again and again"
    full = False
    until(lambda: len(messages(served)) == 5)
    assert messages(served) == [f"line {number}" for number in range(5)]
    assert counter(served, "self_topics.lines_dropped") == 0
    assert counter(served, "self_topics.refused") > 0, "metrics do not wait"


def test_lines_that_no_topic_takes_are_counted(served: TestBroker) -> None:
    with served.client() as client:
        admin.alter_configs(client, admin.Resource.TOPIC, LOGS_TOPIC, set_values={"max.message.bytes": "100"})
    refused = counter(served, "self_topics.refused")
    log.error("x" * 5)
    until(lambda: counter(served, "self_topics.refused") == refused + 1)
    assert messages(served) == []


def test_a_deleted_topic_is_made_again(served: TestBroker) -> None:
    log.error("before")
    until(lambda: messages(served) == ["before"])
    with served.client() as client:
        admin.delete_topic(client, LOGS_TOPIC)
    log.error("after")
    until(lambda: messages(served) == ["after"])


def test_a_name_that_is_taken_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running_broker(data=tmp_path) as plain:
        create_topic(plain.port, LOGS_TOPIC.replace(".", "_"))
    with running_broker(ON, data=tmp_path) as served:
        for interval in range(2, 5):
            until(lambda: len({each["time"] for each in records(served, METRICS_TOPIC)}) > interval)  # noqa: B023
            until(lambda: served.call(lambda broker: len(broker.self_topics.lines)) > 0)  # type: ignore[union-attr]
    lines = [record.getMessage() for record in caplog.records if "cannot be created" in record.getMessage()]
    event = "topic cannot be created, and nothing is published there"
    assert lines == [f"{event} topic={LOGS_TOPIC} error=INVALID_TOPIC_EXCEPTION"]


def test_a_clean_stop_publishes_what_is_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_topics, "TICK_S", 3600.0)
    monkeypatch.setattr(self_topics, "BATCH_LINES_MAX", 100)
    with running_broker(ON, data=tmp_path) as served:
        for number in range(1000):
            log.error("%d", number)
        assert messages(served) == []
    with running_broker(data=tmp_path) as plain:
        assert messages(plain) == [str(number) for number in range(1000)]
        assert records(plain, METRICS_TOPIC)[-1]["time"] >= records(plain, LOGS_TOPIC)[-1]["time"]
