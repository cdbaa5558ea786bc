"""A pipeline with `--delivery exactly-once`, in update mode, against Apache Kafka: its driver is killed, and nothing is
written twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.kafka import KafkaPeer
from peers.transactions import SMALL, settled_ends, visible

from headrace.client.cluster import Client
from headrace.client.groups import fetch_offsets, list_groups
from headrace.client.reading import latest_offsets
from headrace.spark.delivery.commit_records import read_last
from headrace_pipelines.running import COMMITS

from .drivers import drive, finish, first_batch, kill, make, send
from .expected import T0_S, surge_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.soak]

EVENTS = 2000


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with KafkaPeer(settings=SMALL) as kafka:
        yield kafka.bootstrap


@pytest.mark.timeout(600)
def test_results_are_written_once(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "rides")
    rides = [{"zone": f"z{n % 12}", "time": T0_S + n, "supply": n % 5 < 2} for n in range(EVENTS)]
    send(bootstrap, "rides", rides)
    arguments = ["surge", "--from", "rides", "--to", "surge", "--time-unit", "s", "--watermark", "1d"]
    arguments += ["--delivery", "exactly-once", "--max-per-batch", "400", "--trigger", "0s"]
    driver = drive(bootstrap, tmp_path, *arguments)
    try:
        first_batch(driver)
    finally:
        kill(driver)
    finish(drive(bootstrap, tmp_path, *arguments, "--once"))
    with Client(bootstrap) as client:
        found = visible(client, "surge")
        # a window's numbers grow with each batch that changes it
        assert len(found) == len(set(found)), "no result is there twice"
        latest: dict[str, Any] = {}
        for result in map(json.loads, found):
            zone_and_start = f"{result['zone']}|{result['start']}"
            latest[zone_and_start] = max((latest.get(zone_and_start, result), result), key=lambda r: r["demand"])
        assert latest.keys() == surge_of(rides, 300).keys()
        assert settled_ends(client, "surge") == latest_offsets(client, "surge")
        groups = [group.group_id for group in list_groups(client)]
        (mark,) = [name for name in groups if name.startswith("headrace-")]
        (ours,) = [name for name in groups if name.startswith("spark-kafka-source-")]
        last = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdigit())
        assert {place.offset for place in fetch_offsets(client, mark).values()} == {last}
        kept = read_last(client, COMMITS, mark.removeprefix("headrace-"))
        assert kept is not None and kept.mark.batch_id == last, "it stands in for the mark, which expires"
        assert fetch_offsets(client, ours)["rides", 0].offset == EVENTS
