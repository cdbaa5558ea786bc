"""Exactly once while Spark runs a slow task a second time beside itself, which it does on another host of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.either import BROKERS
from peers.kafka import KafkaPeer
from peers.spark_cluster import Standalone
from peers.transactions import SMALL, settled_ends, visible

import headrace.testing
from headrace.client.cluster import Client
from headrace.client.reading import latest_offsets

from . import numbered

PROGRAM = Path(__file__).parent / "speculating.py"
ROWS = 400
PARTS = ("exactly-once_write", "exactly-once_stream", "exactly-once-per-task_stream")


@pytest.fixture(params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        with KafkaPeer(settings=SMALL) as kafka:
            yield kafka.bootstrap
    else:
        with headrace.testing.broker() as ours:
            yield ours.bootstrap


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_both_attempts_of_a_task_write(bootstrap: str, tmp_path: Path) -> None:
    """Of which one counts. Nothing is left open either."""
    with Client(bootstrap) as client:
        numbered.make(client, ROWS, *PARTS)
        work = tmp_path / "work"
        work.mkdir()
        with Standalone(tmp_path / "cluster", hosts=("127.0.0.2", "127.0.0.3")) as cluster:
            done = cluster.submit(PROGRAM, bootstrap, str(work), *PARTS)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-6000:]
        for part in PARTS:
            assert (work / part / "0-1").exists(), "Spark ran no second attempt"
            assert not (work / part / "alone").exists(), "the second attempt came after the first"
            assert sorted(map(int, visible(client, part))) == list(range(ROWS)), part
            assert settled_ends(client, part) == latest_offsets(client, part), "no transaction is open"
