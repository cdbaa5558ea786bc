"""Clients that a cluster of a company has all day: MirrorMaker 2, a Spring program, three exporters, and a shop."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.cluster.nodes import Nodes, wait_until
from bench.link import Link
from bench.rigs import ROOT
from tests.peers import jars
from tests.peers.class_archive import QUICK, QUIET
from tests.peers.kafka import TOOL_HEAP, java

ORDERS: Final = tuple(f"orders-{number}" for number in range(8))
PARTITIONS: Final = 6
IN, OUT = "spring-in", "spring-out"
SPRING_EVERY_MS: Final = 20
FLAGS: Final = (TOOL_HEAP, *QUICK, QUIET)
END_PATIENCE_S: Final = 30.0
MIRROR: Final = """clusters=a,b
a.bootstrap.servers={bootstrap}
b.bootstrap.servers={bootstrap}
a->b.enabled=true
a->b.topics=orders-.*
b->a.enabled=false
tasks.max=2
replication.factor=3
checkpoints.topic.replication.factor=3
heartbeats.topic.replication.factor=3
offset-syncs.topic.replication.factor=3
config.storage.replication.factor=3
offset.storage.replication.factor=3
status.storage.replication.factor=3
emit.checkpoints.interval.seconds=5
refresh.topics.interval.seconds=10
refresh.groups.interval.seconds=10
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=5
"""
"""MirrorMaker 2 copies `orders-0` to `a.orders-0` of the same cluster, and so on."""


@dataclass(frozen=True)
class Background:
    """Clients that run. Their output is in `directory`."""

    directory: Path
    processes: dict[str, subprocess.Popen[bytes]]

    def check(self) -> None:
        """Raises AssertionError where one of them has ended."""
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} has ended: {self.out(name)[-1500:]}"

    def out(self, name: str) -> str:
        """What a client has said so far."""
        return (self.directory / f"{name}.out").read_text()

    def exporter_rounds(self) -> list[float]:
        """How many seconds each round of an exporter took so far."""
        return [float(line) for line in self.out("exporters").splitlines() if line and not line.startswith("#")]


def exporter_round_s(background: Background, after: int) -> float:
    """The median of the rounds that came after so many."""
    rounds = background.exporter_rounds()[after:]
    assert rounds, "no exporter has finished a round"
    return median(rounds)


@contextlib.contextmanager
def background(nodes: Nodes) -> Iterator[Background]:
    """The clients, each of which has done some of its work when the block is entered."""
    for topic in (*ORDERS, IN, OUT):
        nodes.create(topic, PARTITIONS)
    directory = nodes.directory / "background"
    directory.mkdir()
    mirror = directory / "mirror.properties"
    mirror.write_text(MIRROR.format(bootstrap=nodes.bootstrap))
    spring = str(Path(__file__).with_name("SpringApp.java"))
    commands = {
        "exporters": [sys.executable, "-m", "bench.cluster.exporters", nodes.bootstrap, *ORDERS],
        "mirror": _java("org.apache.kafka.connect.mirror.MirrorMaker", str(mirror)),
        "spring": _java(spring, nodes.bootstrap, IN, OUT, str(SPRING_EVERY_MS)),
    }
    running = Background(directory, {})
    try:
        for name, command in commands.items():
            with (directory / f"{name}.out").open("ab") as out:
                running.processes[name] = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        for topic in (f"a.{ORDERS[0]}", OUT):
            wait_until(lambda topic=topic: _has_records(nodes, running, topic), f"{topic} has no records", 0.25)  # type: ignore[misc]
        wait_until(lambda: bool(running.exporter_rounds()), "no exporter has finished a round", 0.25)
        yield running
    finally:
        for process in running.processes.values():
            process.terminate()
        for process in running.processes.values():
            _end(process)


def _java(*arguments: str) -> list[str]:
    return java(*arguments, flags=FLAGS, of=jars.BACKGROUND)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _has_records(nodes: Nodes, running: Background, topic: str) -> bool:
    running.check()
    leaders = {index: part.leader_id for index, part in nodes.partitions(topic).items() if part.leader_id > 0}
    for partition, leader in leaders.items():
        with Link(nodes.peers[leader].port) as link:
            if link.end_offset(topic, partition) > 0:
                return True
    return False
