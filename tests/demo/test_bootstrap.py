"""The demo against a broker that is up already, all of it but Spark: pandas stands in for the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

import headrace
import headrace.testing
from demo import __main__ as demo
from demo import check, flights, session
from demo.broker import FLIGHTS, SURGE, DemoError, create_topics
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
    bootstrap: str, speed: float, year: Any, weather: pd.DataFrame, _out: Path, _directory: Path, _parts: Any
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


def run(bootstrap: str, out: Path) -> Result:
    return CliRunner().invoke(demo.main, ["--bootstrap", bootstrap, "--speed", "0", "--out", str(out)])


def test_a_broker_that_is_up_is_used_and_stays_up(
    broker: headrace.testing.TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = flights.load_flights().head(ROWS)
    monkeypatch.setattr(flights, "load_flights", lambda: some)
    monkeypatch.setattr(session, "java_is_missing", lambda: False)
    monkeypatch.setattr(demo, "_stream", pandas_pipeline)
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


def test_a_topic_in_the_way_is_left_alone(broker: headrace.testing.TestBroker) -> None:
    with broker.client() as client:
        admin.create_topic(client, SURGE, partitions=1)
        with pytest.raises(DemoError, match=f"has a topic {SURGE} already"):
            create_topics(broker.bootstrap)
        assert [topic.name for topic in client.topics()] == [SURGE]


def test_nobody_there_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_is_missing", lambda: False)
    monkeypatch.setattr("demo.broker.ANSWER_PATIENCE_S", 1.0)
    done = run("127.0.0.1:1", tmp_path)
    assert done.exit_code == 1
    assert "no broker answers on 127.0.0.1:1" in done.output
