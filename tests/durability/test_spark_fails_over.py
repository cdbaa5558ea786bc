"""Spark's own Kafka connector and ours, as source and as sink, while the nodes that they talk to are killed.

A query of the connector's may stand still for a minute after a death, as beside three nodes of Apache Kafka (62 s
there, 62 s here): Java's AdminClient, asked for the ends of partitions, may have looked up the dead leader, and waits
for it until its `default.api.timeout.ms` is over. Nothing is lost by it, and no error comes.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from durability.test_clients_fail_over import NODES, leader_of, until_in_sync
from peers import spark
from peers.cluster import HeadraceCluster
from peers.failing_over import read_all

from headrace.client import Client, reading

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(600)]

PARTITIONS = 2
OURS = "headrace"
SOURCE, SINKS = "source", ("kafka", OURS)
PATIENCE_S = 150.0
MORE = 50
"""So many more records in a sink say that its query goes on."""


class Writing(threading.Thread):
    """Numbers into the source, until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)  # a failed test does not wait for what its dead nodes never take
        self.sent = 0
        self.failed: list[str] = []
        self.stopped = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def run(self) -> None:
        while not self.stopped.is_set():
            self._producer.produce(
                SOURCE, b"%d" % self.sent, partition=self.sent % PARTITIONS,
                on_delivery=lambda error, _: None if error is None else self.failed.append(str(error)),
            )  # fmt: skip
            self.sent += 1
            self._producer.poll(0)
            time.sleep(0.005)
        self._producer.flush()


def in_sinks(client: Client) -> dict[str, int]:
    return {sink: sum(reading.latest_offsets(client, sink).values()) for sink in SINKS}


@pytest.mark.parametrize("killed", [(SOURCE,), (*SINKS, SOURCE, *SINKS)])
def test_queries_go_on_when_the_leaders_of_their_topics_are_killed(tmp_path: Path, killed: tuple[str, ...]) -> None:
    """`killed` are the topics whose leaders are."""
    python, jars = spark.python(), spark.connector()
    settings = {"offsets.topic.num.partitions": "1"}
    with HeadraceCluster(tmp_path, settings) as cluster, Client(cluster.bootstrap) as client:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topics = (SOURCE, *SINKS)
        for made in admin.create_topics([NewTopic(topic, PARTITIONS, len(NODES)) for topic in topics]).values():
            made.result(PATIENCE_S)
        script = Path(__file__).with_name("spark_driver.py")
        errors = tmp_path / "driver.err"
        with errors.open("w") as stderr:
            driver = subprocess.Popen(
                [str(python), str(script), cluster.bootstrap, str(tmp_path / "spark"), SOURCE, *map(str, jars)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
            )  # fmt: skip
        writing = Writing(cluster.bootstrap)
        writing.start()

        def goes_on(*sinks: str) -> None:
            before, last = in_sinks(client), time.monotonic() + PATIENCE_S
            while any(in_sinks(client)[sink] < before[sink] + MORE for sink in sinks):
                assert driver.poll() is None, errors.read_text()[-3000:]
                assert time.monotonic() < last, (before, in_sinks(client), errors.read_text()[-3000:])
                time.sleep(0.1)

        try:
            goes_on(*SINKS)
            for topic in killed:
                until_in_sync(cluster, *topics)
                victim = cluster.nodes[leader_of(cluster, topic)]
                victim.kill()
                goes_on(OURS)
                victim.start()
                goes_on(*SINKS)
            writing.stopped.set()
            writing.join()
            said, _ = driver.communicate("\n", timeout=PATIENCE_S)
        finally:
            writing.stopped.set()
            driver.kill()
        found = json.loads(said.splitlines()[-1])
        assert found == {sink: {"rows": writing.sent, "error": None} for sink in SINKS}, errors.read_text()[-3000:]
        assert writing.failed == []
        for sink in SINKS:
            copied = Counter(read_all(cluster.bootstrap, sink, PARTITIONS).values())
            assert copied == Counter(range(writing.sent)), sink
