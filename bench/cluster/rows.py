"""What is measured of a cluster: each work is done on nodes that run, and gives the values of a row or of several."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.bars import Barred
from bench.cluster.nodes import Nodes
from bench.memory import touch
from bench.rigs import run_python
from bench.wire_load import Load
from bench.wire_rows import KB, MB, RECORD_BYTES, run_load

COPY_BYTES_PER_S = 3 * 400 * MB
"""More than three nodes here write in a second: so much memory is made ready for a measurement."""


@dataclass(frozen=True)
class Scale:
    """How much work a measurement is."""

    seconds: float = 3.0
    records: int = 400_000
    pings: int = 3000
    tries: int = 10
    partitions: int = 5000
    catch_up_bytes: int = 4000 * MB
    idle_s: float = 10.0
    warm_up_s: float = 20.0
    rounds: int = 3
    committed_bytes: int = 300 * MB
    members: int = 1000


QUICK = Scale(0.7, 100_000, 500, 1, 500, 400 * MB, 3.0, 4.0, 1, 60 * MB, 200)


@dataclass(frozen=True)
class Row(Barred):
    """One line of the table. The ratio is ours over Kafka's; with `of_itself` the bar is for our own number."""

    key: str
    title: str
    unit: str
    bar: float | None
    lower: bool = False
    of_itself: bool = False
    worst: bool = False
    """Every try counts: the row's value is the largest."""


Measure = Callable[[Nodes, Scale], Sequence[list[float]]]


@dataclass(frozen=True)
class Work:
    """One measurement and the rows that its values are for."""

    rows: tuple[Row, ...]
    measure: Measure


def warm_up(nodes: Nodes, seconds: float) -> None:
    """A bit of every load, so that what is measured later is compiled by then."""
    nodes.create("warm-up")
    port = nodes.leader_port("warm-up")
    for size in (0, 16 * KB):
        for connections in (1, 4):
            run_load(Load("produce", port, "warm-up", size, 50, connections, seconds / 5))
    run_load(Load("produce-paced", port, "warm-up", 0, seconds=seconds / 5, rate=1000))
    nodes.drop("warm-up")


def librdkafka(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """Thousands of 1 KB records a second, acks=all."""
    name = f"librdkafka-{time.monotonic_ns()}"
    nodes.create(name)
    touch(3 * scale.records * RECORD_BYTES)
    outcome = json.loads(run_python("bench.clients", "produce", nodes.bootstrap, name, str(scale.records), "1024"))
    nodes.drop(name)
    return [[outcome["records"] / outcome["seconds"] / 1000]]


def produce(connections: int) -> Measure:
    """Megabytes a second of 16 KB batches, 50 in flight on each connection to the leader."""

    def measure(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
        name = f"produce-{connections}-{time.monotonic_ns()}"
        nodes.create(name)
        touch(int(scale.seconds * COPY_BYTES_PER_S))
        outcome = run_load(Load("produce", nodes.leader_port(name), name, 16 * KB, 50, connections, scale.seconds))
        nodes.drop(name)
        return [[outcome["bytes"] / outcome["seconds"] / MB]]

    return measure


def latency(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """Milliseconds out and back of a 100 byte record, by librdkafka: p50 and p99."""
    name = f"latency-{time.monotonic_ns()}"
    nodes.create(name)
    outcome = json.loads(run_python("bench.clients", "latency", nodes.bootstrap, name, str(scale.pings)))
    nodes.drop(name)
    return [[outcome["p50_ms"]], [outcome["p99_ms"]]]


def resident(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """Resident megabytes of the three together, as they are now."""
    return [[nodes.resident_bytes() / MB]]


LOAD_WORKS = (
    Work((Row("librdkafka", "librdkafka produce, 1 KB", "k msg/s", 2.0),), librdkafka),
    Work((Row("produce-16k", "produce 16 KB batches, 50 in flight", "MB/s", 2.0),), produce(1)),
    Work((Row("produce-16k-4x50", "the same, 4 connections", "MB/s", 2.0),), produce(4)),
    Work(
        (
            Row("latency-p50", "end to end p50, 100 B", "ms", 0.7, True),
            Row("latency-p99", "end to end p99, 100 B", "ms", 0.5, True),
        ),
        latency,
    ),
    Work((Row("memory", "resident memory of three, after the load", "MB", 0.2, True),), resident),
)
