"""Exactly once in a real Spark while three brokers of Apache Kafka become ours one by one, and then Kafka's again: the
query goes from the one way of a commit to the other, and back, and its driver is killed at each step. Minutes long:
`make soak`."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers.cluster import HeadraceCluster
from peers.waiting import until

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.errors import ClientError
from headrace.client.transaction_states import list_transactions

from .test_kill_matrix import PATIENCE_S, SINK, SOURCE, Matrix, end
from .watching import PARTITIONS, Watch, check

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.soak]

EVERY = (1, 2, 3)
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
REPLACED_S = 8.0
"""About so long a replacement takes; at a moment of it the driver is killed."""
BACKLOG = 600
"""Records before each step, of which a batch takes ten: there is work while a node is away."""


class Query:
    """The driver that runs, another one where it has ended: a batch may be refused as a whole."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.restarts = 0
        self._running = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return self.matrix.driver(self.matrix.gates(), "forever")

    def go_on(self, batches: int = 3) -> None:
        """Until so many more batches are done."""
        done = len(self.matrix.logged()[1])
        last = time.monotonic() + PATIENCE_S
        while len(self.matrix.logged()[1]) < done + batches:
            assert time.monotonic() < last, self.matrix.said()
            if self._running.poll() is not None:
                self.restarts += 1
                assert self.restarts <= 3 * len(EVERY), self.matrix.said()
                self._running = self._start()
            time.sleep(0.1)

    def kill(self) -> None:
        end(self._running)


@contextmanager
def running(matrix: Matrix) -> Iterator[Query]:
    query = Query(matrix)
    try:
        yield query
    finally:
        query.kill()


def is_in_sync(client: Client) -> bool:
    return all(len(each.isr) == len(EVERY) for topic in client.topics() for each in topic.partitions)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("delivery", ["exactly-once", "exactly-once-per-task"])
def test_a_query_outlives_every_broker(tmp_path: Path, delivery: str) -> None:
    chance = random.Random(delivery)
    with HeadraceCluster(tmp_path / "cluster", SETTINGS, kafkas=EVERY) as cluster:
        with Client(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            for topic in (SOURCE, SINK):
                create_topic(client, topic, partitions=PARTITIONS, replication_factor=3)
            source = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
            matrix = Matrix(cluster.bootstrap, tmp_path, {"delivery": delivery}, source)
            with Watch(cluster.bootstrap) as watch:
                matrix.produce(BACKLOG)
                with running(matrix) as query:
                    query.go_on()
                    for node in (*EVERY, *EVERY):
                        killer = threading.Timer(chance.uniform(0, REPLACED_S), query.kill)
                        killer.start()
                        cluster.replace(node)
                        killer.join()
                        query.go_on()
                        until(lambda: is_in_sync(client), "every replica is in sync", ClientError)
                        watch.check_once()
                        matrix.produce(BACKLOG // 4)
                        if not cluster.kafkas:
                            query.go_on()
                            found = {each.transactional_id for each in list_transactions(client)}
                            tasks = {name for name in found if "~" in name}
                            assert bool(tasks) == (delivery == "exactly-once"), "tasks write where ours coordinates"
                    query.go_on()
                assert cluster.kafkas == set(EVERY)
                matrix.source_options = {"startingOffsets": "earliest"}
                matrix.finish()
                check(client, matrix, watch)
