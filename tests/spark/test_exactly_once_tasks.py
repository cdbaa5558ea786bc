"""Exactly once on a cluster of executors: tasks that fail, that run twice, and executors that die or freeze.

The cluster is Spark's own, two executors of one core each in processes of their own. A consumer of committed records
follows the sink all the time; the driver is killed in the middle of its last commit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers import spark_cluster
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.transactions import SMALL

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.reading import latest_offsets

from .gates import Gates
from .test_kill_matrix import SINK, SOURCE, Matrix, end
from .watching import PARTITIONS, Watch, check, marked

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ONCE = {"delivery": "exactly-once"}
FROM_THE_FIRST = {"startingOffsets": "earliest"}
CLUSTER = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "512m"}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "0ms",
}
IMPATIENCE = {
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "1s",
}
"""With an executor that says nothing."""


@pytest.fixture(params=["headrace", pytest.param("kafka", marks=pytest.mark.soak)])
def peer(request: pytest.FixtureRequest) -> Iterator[HeadracePeer | KafkaPeer]:
    with HeadracePeer(settings=SMALL) if request.param == "headrace" else KafkaPeer(settings=SMALL) as peer:
        yield peer


@pytest.fixture
def client(peer: HeadracePeer | KafkaPeer) -> Iterator[Client]:
    with Client(peer.bootstrap) as client:
        create_topic(client, SOURCE, partitions=PARTITIONS)
        create_topic(client, SINK, partitions=PARTITIONS)
        yield client


@pytest.fixture
def watch(client: Client, peer: HeadracePeer | KafkaPeer) -> Iterator[Watch]:
    with Watch(peer.bootstrap) as watch:
        yield watch


@pytest.fixture
def matrix(peer: HeadracePeer | KafkaPeer, tmp_path: Path) -> Matrix:
    matrix = Matrix(peer.bootstrap, tmp_path, ONCE, FROM_THE_FIRST)
    matrix.environment = {"SPARK_HOME": str(spark_cluster.home(tmp_path))}
    matrix.settings = dict(CLUSTER)
    return matrix


class Cluster:
    """A driver with its executors, and the batches that it has done."""

    def __init__(self, matrix: Matrix, **settings: str) -> None:
        self.matrix = matrix
        matrix.settings |= settings
        self.gates = matrix.gates()
        matrix.produce(20)
        self.gates.shut("planned")
        self.running = matrix.driver(self.gates, "forever")
        self.until("planned")
        self.gates.open("planned")
        self.done(0)

    def until(self, gate: str) -> None:
        self.matrix.until(self.gates, gate, self.running)

    def done(self, batch: int) -> None:
        self.matrix.until_done(batch, self.running)


def processes_of(worker: int) -> list[int]:
    """An executor by one of its Python workers: its JVM first, then all that the JVM has started."""
    daemon = parent(worker)
    executor = parent(daemon)
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    found = [executor]
    for pid in found:
        found += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    threads = Path(f"/proc/{executor}/task").iterdir()
    found += [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return list(dict.fromkeys([*found, daemon, worker]))


def parent(pid: int) -> int:
    """The process that has made this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.timeout(900)
def test_tasks_and_executors_that_die(matrix: Matrix, client: Client, watch: Watch) -> None:
    """One driver after the other: a task that fails, an executor killed, the driver killed in an open transaction."""
    matrix.produce(20)
    gates = matrix.gates()
    gates.fail("written-0-0")
    gates.fail("written-1-0")
    running = matrix.driver(gates, "forever")
    try:
        matrix.until_done(0, running)
        watch.wait_for(20)
        gates.shut("written")
        matrix.produce(10)
        matrix.until(gates, "written", running)
        os.kill(processes_of(gates.pid_at("written"))[0], signal.SIGKILL)
        assert marked(client) == 0 and latest_offsets(client, SINK, isolation="read_committed").keys() == {0, 1}
        gates.open("written")
        matrix.until_done(1, running)
        watch.wait_for(30)
        gates.shut("flushed")
        matrix.produce(10)
        matrix.until(gates, "flushed", running)
    finally:
        end(running)
    assert sum(latest_offsets(client, SINK).values()) > 40, "the rows, and the ends of two transactions"
    assert marked(client) == 1 and len(watch.seen) == 30
    matrix.settings = {}
    matrix.finish()
    check(client, matrix, watch)
