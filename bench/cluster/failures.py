"""Rows of nodes that go and come back, under a load that goes on: what its producer sees."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Self

from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.cluster.nodes import Nodes, wait_until
from bench.cluster.rows import Measure, Row, Scale, Work

TOPIC = "load"
EVERY_S = 0.002
BEFORE_S = 0.5
AFTER_S = 3.0
FLOWS_S = 0.2
"""A load flows again where its last record was acknowledged so lately."""
AWAY_S = 0.1
ELECTION_PATIENCE_S = 60.0


class Producing:
    """A producer with the settings that librdkafka comes with, which sends small records to one partition until the
    block ends; when each was acknowledged."""

    def __init__(self, nodes: Nodes, partition: int) -> None:
        self._producer = Producer({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        self._partition = partition
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.times: list[float] = []
        self.failed: list[object] = []

    def _send(self) -> None:
        def delivered(error: object, _message: object) -> None:
            self.failed.append(error) if error else self.times.append(time.monotonic())

        while not self._over.is_set():
            self._producer.produce(TOPIC, b"x" * 100, partition=self._partition, on_delivery=delivered)
            self._producer.poll(EVERY_S)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: bool(self.times), "no record is acknowledged")
        time.sleep(BEFORE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(ELECTION_PATIENCE_S)
        assert kind is not None or not self.failed, f"{len(self.failed)} records failed: {self.failed[0]}"

    def flows(self) -> bool:
        return time.monotonic() - self.times[-1] < FLOWS_S

    def longest_gap(self, since: float) -> float:
        """The longest time without an acknowledgement, from a moment until now."""
        times = [since, *(each for each in list(self.times) if each > since)]
        return max(later - earlier for earlier, later in pairwise(times))


def settle(nodes: Nodes) -> None:
    """A topic with a partition for each node to lead, all of it in sync, on nodes that all run."""
    count = len(nodes.peers)
    if not nodes.has(TOPIC):
        nodes.create(TOPIC, count)
    nodes.wait_in_sync(TOPIC, count)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    asked = [TopicPartition(TOPIC, index) for index in range(count)]
    admin.elect_leaders(ElectionType.PREFERRED, asked).result(ELECTION_PATIENCE_S)
    wait_until(lambda: len(leaders(nodes)) == count, "a node leads no partition")


def leaders(nodes: Nodes) -> dict[int, int]:
    """The partition that a node leads, by node."""
    return {part.leader_id: index for index, part in nodes.partitions(TOPIC).items() if part.leader_id >= 0}


def pick(nodes: Nodes, kind: str) -> tuple[int, int]:
    """Whom to kill, and the partition to watch: a "leader" that is not the active controller, the leader that is
    ("controller"), or a "follower" that is not."""
    active = nodes.controller()
    others = [node for node in nodes.peers if node != active]
    led = leaders(nodes)
    if kind == "controller":
        return active, led[active]
    return others[0], led[others[0] if kind == "leader" else others[1]]


def killed(kind: str, away_s: float | None = None) -> Measure:
    """The longest gap of each try: `kill -9`, and a start once the load flows again, or after `away_s` at once."""

    def measure(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
        gaps = []
        for _ in range(scale.tries if nodes.name == "headrace" else 1):
            settle(nodes)
            victim, partition = pick(nodes, kind)
            peer = nodes.peers[victim]
            with Producing(nodes, partition) as load:
                before = time.monotonic()
                peer.kill()
                if away_s is not None:
                    time.sleep(away_s)
                    peer.start()
                time.sleep(AFTER_S)
                wait_until(load.flows, "the load does not go on")
                gaps.append(load.longest_gap(before))
            if away_s is None:
                peer.start()
        return [gaps]

    return measure


def restarted(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """A clean restart of a leader: the longest gap, and the time until all that it has is in sync again."""
    settle(nodes)
    victim, partition = pick(nodes, "leader")
    with Producing(nodes, partition) as load:
        before = time.monotonic()
        nodes.peers[victim].stop()
        nodes.peers[victim].start()
        nodes.wait_in_sync(TOPIC, len(nodes.peers))
        spent = time.monotonic() - before
        time.sleep(AFTER_S)
        wait_until(load.flows, "the load does not go on")
        gap = load.longest_gap(before)
    return [[gap], [spent]]


def _gap(key: str, title: str) -> Row:
    return Row(key, title, "s", 1.0, True, of_itself=True, worst=True)


FAILURE_WORKS = (
    Work((_gap("kill-leader", "kill -9 of a leader: longest gap"),), killed("leader")),
    Work((_gap("kill-controller", "the same, of one that is the controller"),), killed("controller")),
    Work((_gap("kill-follower", "the same, of a follower in sync"),), killed("follower")),
    Work((_gap("kill-start", "kill -9 of a leader, start after 0.1 s"),), killed("leader", AWAY_S)),
    Work(
        (
            Row("restart-gap", "clean restart of a leader: longest gap", "s", 0.5, True),
            Row("restart-in-sync", "the same: until all is in sync", "s", 0.5, True),
        ),
        restarted,
    ),
)
