"""The demo against a broker that is up already, all of it but Spark: pandas stands in for the pipeline."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

import headrace
import headrace.testing
from demo import __main__ as demo
from demo import check, flights, session
from demo.broker import FLIGHTS, SURGE, DemoError, create_topics, start_broker
from demo.replay import Replay
from headrace.client import admin, reading
from headrace.client.cluster import Client
from headrace.client.producer import Producer

ROWS = 2_000


@pytest.fixture
def broker() -> Iterator[headrace.testing.TestBroker]:
    with headrace.testing.broker() as broker:
        yield broker


def pandas_pipeline(
    bootstrap: str, speed: float, year: Any, weather: pd.DataFrame, _out: Path, _directory: Path, *_rest: Any
) -> int:
    """Replays the flights, and writes from the topic's records what the query would."""
    replay = Replay(bootstrap, FLIGHTS, year, speed)
    replay.start()
    replay.join()
    assert replay.failure == ""
    rows = [json.loads(value) for value in headrace.scan(FLIGHTS, bootstrap=bootstrap)["value"].to_pylist()]
    with Client(bootstrap) as client, Producer(client) as producer:
        for (origin, hour), row in check.expected(pd.DataFrame(rows), weather).iterrows():
            known = {name: value for name, value in row.items() if pd.notna(value)}
            value = json.dumps({"origin": origin, "hour": hour, **known}).encode()
            producer.send(SURGE, value, key=f"{origin}|{hour}".encode())
    return 0


def run(bootstrap: str, out: Path, *more: str) -> Result:
    return CliRunner().invoke(demo.main, ["--bootstrap", bootstrap, "--speed", "0", "--out", str(out), *more])


@pytest.fixture
def some_flights(monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """The first flights of the file are all that there are, and the pipeline is pandas."""
    some = flights.load_flights().head(ROWS)
    monkeypatch.setattr(flights, "load_flights", lambda: some)
    monkeypatch.setattr(session, "java_is_missing", lambda: False)
    monkeypatch.setattr(demo, "_stream", pandas_pipeline)
    return some


@pytest.mark.slow
@pytest.mark.usefixtures("some_flights")
def test_a_broker_that_is_up_is_used_and_stays_up(broker: headrace.testing.TestBroker, tmp_path: Path) -> None:
    done = run(broker.bootstrap, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "all equal to pandas" in done.output
    assert f"topic list -b {broker.bootstrap}" in done.output
    assert (tmp_path / "out" / "surge.png").stat().st_size > 0
    with broker.client() as client:
        assert sum(reading.latest_offsets(client, FLIGHTS).values()) == ROWS
    again = run(broker.bootstrap, tmp_path / "out")
    assert again.exit_code == 1
    assert f"topic delete {FLIGHTS} {SURGE} -b {broker.bootstrap}" in again.output


@pytest.mark.slow
@pytest.mark.usefixtures("some_flights")
def test_a_wrong_hour_is_named_and_is_a_failure(
    broker: headrace.testing.TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong_in_one_hour(bootstrap: str, *arguments: Any) -> int:
        dropped = pandas_pipeline(bootstrap, *arguments)
        hour = {"origin": "JFK", "hour": "2013-01-01T11:00:00Z", "demand": 1, "supply": 1, "surge": 1.0}
        with Client(bootstrap) as client, Producer(client) as producer:
            producer.send(SURGE, json.dumps(hour).encode(), key=b"JFK|2013-01-01T11:00:00Z")
        return dropped

    monkeypatch.setattr(demo, "_stream", wrong_in_one_hour)
    done = run(broker.bootstrap, tmp_path / "out")
    assert done.exit_code == 1
    assert "JFK 2013-01-01T11:00:00Z: demand is 1, should be " in done.output
    assert "differences from pandas over the same file" in done.output
    assert "all equal" not in done.output
    assert (tmp_path / "out" / "surge.png").stat().st_size > 0, "the picture shows what came out all the same"


@pytest.mark.usefixtures("some_flights")
def test_flights_dropped_as_late_are_a_failure(
    broker: headrace.testing.TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_stream", lambda *arguments: pandas_pipeline(*arguments) + 3)
    done = run(broker.bootstrap, tmp_path / "out")
    assert done.exit_code == 1
    assert "all equal to pandas" in done.output
    assert "3 records dropped as late, as should be 0" in done.output


def test_the_first_days_alone(broker: headrace.testing.TestBroker, tmp_path: Path, some_flights: pd.DataFrame) -> None:
    done = run(broker.bootstrap, tmp_path / "out", "--days", "1")
    assert done.exit_code == 0, done.output
    first = some_flights[some_flights["day"] == 1]
    assert 0 < len(first) < len(some_flights)
    with broker.client() as client:
        assert sum(reading.latest_offsets(client, FLIGHTS).values()) == len(first)
    hours = len(first.groupby(["origin", "time_hour"]))
    assert f"{hours:,} airport-hours in {hours:,} records, all equal to pandas" in done.output


def test_a_topic_in_the_way_is_left_alone(broker: headrace.testing.TestBroker) -> None:
    with broker.client() as client:
        admin.create_topic(client, SURGE, partitions=1)
        with pytest.raises(DemoError, match=f"has a topic {SURGE} already"):
            create_topics(broker.bootstrap)
        assert [topic.name for topic in client.topics()] == [SURGE]


def test_a_start_that_is_interrupted_leaves_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def noted(*arguments: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **more))
        return started[-1]

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", noted)
    monkeypatch.setattr("demo.broker.time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupted))
    with pytest.raises(KeyboardInterrupt):
        start_broker(tmp_path)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_nobody_there_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_is_missing", lambda: False)
    monkeypatch.setattr("demo.broker.ANSWER_PATIENCE_S", 1.0)
    done = run("127.0.0.1:1", tmp_path)
    assert done.exit_code == 1
    assert "no broker answers on 127.0.0.1:1" in done.output
