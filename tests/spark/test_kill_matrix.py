"""A driver killed at every phase of a batch, and what its restart makes of it: nothing lost, nothing doubled.

The sink writes with every row where it came from and, as headers, in which batch and which task. So what lies in the
topic says what the source gave to each batch, and what was written again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.client.admin import add_partitions, create_topic
from headrace.client.cluster import Client
from headrace.client.groups import fetch_offsets
from headrace.client.producer import Producer
from headrace.client.reading import latest_offsets

from .gates import Gates

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PATIENCE_S = 240.0
SOURCE, SINK = "matrix-in", "matrix-out"
Copied = dict[tuple[int, int], list[tuple[bytes, int, int]]]
"""By partition and offset in the source: value, batch and task of each copy."""


def end(running: subprocess.Popen[bytes]) -> None:
    """Kill a driver and all of its Spark at once, if it is there still."""
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


class Matrix:
    """A broker, a query's checkpoint, and drivers one after the other."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        sink_options: dict[str, str] | None = None,
        source_options: dict[str, str] | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.sink_options = sink_options or {}
        self.source_options = source_options or {}
        self.settings: dict[str, str] = {}
        """Spark's, of the drivers that start from now on."""
        self.environment: dict[str, str] = {}
        self._said: list[Path] = []
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.written = 0
        self.runs = 0

    def produce(self, count: int) -> None:
        """More records, in every partition there is."""
        with Client(self.bootstrap) as client, Producer(client) as producer:
            partitions = len(client.topic(SOURCE).partitions)
            for _ in range(count):
                producer.send(SOURCE, b"%d" % self.written, partition=self.written % partitions)
                self.written += 1

    def driver(self, gates: Gates, how_long: str) -> subprocess.Popen[bytes]:
        gates.directory.mkdir(exist_ok=True)
        places = [str(gates.directory), str(self.checkpoint)]
        self._said.append(self.directory / f"said-{len(self._said)}.txt")
        with self._said[-1].open("w") as said:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "spark.gates",
                    self.bootstrap,
                    SOURCE,
                    SINK,
                    *places,
                    how_long,
                    *map(json.dumps, (self.sink_options, self.source_options, self.settings)),
                ],
                env={**os.environ, **self.environment},
                cwd=Path(__file__).parent.parent,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def gates(self) -> Gates:
        """Those of a driver that is to be started; all are open."""
        self.runs += 1
        gates = Gates(self.directory / f"gates-{self.runs}")
        gates.directory.mkdir()
        return gates

    def until_done(self, batch: int, running: subprocess.Popen[bytes]) -> None:
        """Until Spark counts a batch as done."""
        until = time.monotonic() + PATIENCE_S
        while batch not in self.logged()[1]:
            assert running.poll() is None and time.monotonic() < until, self.said()
            time.sleep(0.05)

    @contextmanager
    def killed_at(self, phase: str, *, begun: int = 0) -> Iterator[None]:
        """A driver that is killed at a gate; `begun` records are written when it has asked where the topic ends.

        The body runs when it is dead.
        """
        gates = self.gates()
        gates.shut(phase)
        if begun:
            gates.shut("begun")
        running = self.driver(gates, "forever")
        try:
            if begun:
                self.until(gates, "begun", running)
                self.produce(begun)
                gates.open("begun")
            self.until(gates, phase, running)
        finally:
            end(running)
        yield

    def until(self, gates: Gates, name: str, running: subprocess.Popen[bytes]) -> None:
        """Until somebody stands at a gate of the driver that was started last."""
        try:
            gates.wait_for(name, lambda: running.poll() is None, PATIENCE_S)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {self.said()}") from None

    def said(self, driver: int = -1, size: int = 3000) -> str:
        """The end of what a driver said, by default of the last one that was started."""
        return self._said[driver].read_text()[-size:]

    def finish(self) -> None:
        """A driver that reads all there is and ends by itself."""
        running = self.driver(Gates(self.directory / "open"), "now")
        try:
            assert running.wait(PATIENCE_S) == 0, self.said()
        finally:
            end(running)

    def logged(self) -> tuple[set[int], set[int]]:
        """The batches whose ends are logged, and those that Spark counts as done."""
        offsets, commits = (
            {int(path.name) for path in (self.checkpoint / log).glob("*") if path.name.isdigit()}
            for log in ("offsets", "commits")
        )
        return offsets, commits

    def finished(self) -> dict[int, int]:
        """By partition, what the query's group has committed."""
        with Client(self.bootstrap) as client:
            return {index: at.offset for (_, index), at in fetch_offsets(client, f"{SOURCE}-group").items()}

    def copied(self) -> Copied:
        """What lies in the sink."""
        found: Copied = defaultdict(list)
        for row in headrace.scan(SINK, bootstrap=self.bootstrap).to_pylist():
            partition, offset = map(int, row["key"].split(b":"))
            marks = {each["key"]: int(each["value"]) for each in row["headers"]}
            found[partition, offset].append((row["value"], marks["headrace.batch_id"], marks["headrace.partition"]))
        return found


@pytest.mark.timeout(900)
def test_a_driver_killed_at_every_phase_of_a_batch(broker: Any, tmp_path: Path) -> None:
    with Client(broker.bootstrap) as client:
        create_topic(client, SOURCE, partitions=2)
        create_topic(client, SINK, partitions=2)
    matrix = Matrix(broker.bootstrap, tmp_path)
    matrix.produce(6)  # before the query begins: not its own
    # batch 0, from a latest that moves on with every restart
    with matrix.killed_at("planned", begun=40):
        assert matrix.logged() == ({0}, set()) and matrix.copied() == {}
    matrix.produce(10)
    with matrix.killed_at("read"):
        assert matrix.logged() == ({0}, set())
    matrix.produce(10)
    with matrix.killed_at("written"):
        assert matrix.logged() == ({0}, set())
        assert 0 < len(matrix.copied()) <= 40, "a task, or both, had written all they had"
    assert matrix.finished() == {}, "of a batch that is not finished nothing is committed to the group"
    with Client(broker.bootstrap) as client:
        add_partitions(client, SOURCE, 3)
    matrix.produce(30)
    with matrix.killed_at("finished"):
        assert matrix.logged() == ({0}, {0})
        assert len(matrix.copied()) == 40
    matrix.produce(10)
    # a batch that does not begin at the start of the query, and has all its rows in the sink
    with matrix.killed_at("done"):
        assert matrix.logged() == ({0, 1}, {0})
        assert len(matrix.copied()) == 40 + 10 + 10 + 30 + 10
        assert matrix.finished() == {0: 23, 1: 23}, "the end of batch 0"
    matrix.produce(10)
    matrix.finish()
    with Client(broker.bootstrap) as client:
        ends = latest_offsets(client, SOURCE)
    assert matrix.finished() == ends and sum(ends.values()) == matrix.written
    source = headrace.scan(SOURCE, bootstrap=broker.bootstrap, columns=["partition", "offset", "value"]).to_pylist()
    expected = {(row["partition"], row["offset"]): row["value"] for row in source if int(row["value"]) >= 6}
    copied = matrix.copied()
    assert set(copied) == set(expected), "nothing lost"
    for at, copies in copied.items():
        assert copies[0][0] == expected[at]
        # nothing doubled by the source: a row is in one batch and one task of it, however often these were written
        assert len(set(copies)) == 1, (at, copies)
    assert {batch for copies in copied.values() for _, batch, _ in copies} == {0, 1, 2}
    assert any(len(copies) > 1 for copies in copied.values()), "or no kill was where it should have been"
