"""Rows of transactions and of the consumer protocol on three nodes: replication factor 3, `acks=all`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from bench.cluster.nodes import Nodes
from bench.cluster.rows import Measure, Row, Scale, Work
from bench.coordinator_rows import (
    MANY,
    PARTITIONS,
    SECONDS_SHARE,
    WARM_UP_SHARE,
    group_outcome,
    many_producers,
    one_producer,
    told_of,
)
from bench.link import Link
from bench.memory import touch
from bench.rigs import run_python
from bench.wire_rows import MB, RECORD_BYTES

COMMITTED = "committed"


def transactions(producers: int) -> Measure:
    """Transactions a second; p50 and p99 of their commits."""

    def measure(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
        name = f"transactions-{producers}-{time.monotonic_ns()}"
        nodes.create(name, PARTITIONS)
        warm_up_s, seconds = scale.warm_up_s * WARM_UP_SHARE, scale.seconds * SECONDS_SHARE
        if producers == 1:
            outcome = one_producer(nodes.bootstrap, name, warm_up_s, seconds)
        else:
            outcome = many_producers(nodes.peers[1].port, name, warm_up_s, seconds)
        nodes.drop(name)
        return [[value] for value in told_of(outcome)]

    return measure


def committed(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """Thousands of committed records a second that librdkafka gets, and megabytes a second of fetches of 1 MB."""
    nodes.create(COMMITTED)
    count = scale.committed_bytes // RECORD_BYTES
    touch(3 * scale.committed_bytes)
    run_python("bench.transactions", "fill", nodes.bootstrap, COMMITTED, str(count))
    consumed = json.loads(run_python("bench.clients", "consume", nodes.bootstrap, COMMITTED, str(count)))
    port = nodes.leader_port(COMMITTED)
    with Link(port) as link:
        end = link.end_offset(COMMITTED)
    fetched = json.loads(run_python("bench.committed_load", str(port), COMMITTED, str(end), str(scale.seconds)))
    nodes.drop(COMMITTED)
    return [[consumed["records"] / consumed["seconds"] / 1000], [fetched["bytes"] / fetched["seconds"] / MB]]


def group(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """Seconds until all members own exactly their share, the CPU of all nodes meanwhile, and how many partitions move
    when one leaves."""
    name = f"group-{time.monotonic_ns()}"
    nodes.create(name, scale.members)
    port, pids = nodes.peers[1].port, [peer.pid for peer in nodes.peers.values()]
    group_outcome(port, name, scale.members, pids, leaves=False)
    outcome = group_outcome(port, name, scale.members, pids, leaves=True)
    nodes.drop(name)
    return [[outcome["seconds"]], [outcome["cpu_s"]], [outcome["moved"]]]


def _transaction_work(key: str, said: str, producers: int) -> Work:
    rows = (
        Row(key, f"transactions of {said}", "txn/s", 1.5),
        Row(f"{key}-p50", "the same: p50 of a commit", "ms", None, True),
        Row(f"{key}-p99", "the same: p99 of a commit", "ms", 0.7, True),
    )
    return Work(rows, transactions(producers))


COORDINATOR_WORKS = (
    _transaction_work("transactions-1", "one librdkafka producer", 1),
    _transaction_work("transactions-50", f"{MANY} producers", MANY),
    Work(
        (
            Row("committed-consume", "librdkafka read_committed, 1 KB", "k msg/s", 1.0),
            Row("committed-fetch", "fetch 1 MB, read_committed", "MB/s", 1.0),
        ),
        committed,
    ),
    Work(
        (
            Row("group", "{members} members: until all own their share", "s", 1.0, True),
            Row("group-cpu", "the same: CPU of the three nodes", "s", 0.5, True),
            Row("group-moved", "one of them leaves: partitions that move", "parts", 1.0, True, of_itself=True),
        ),
        group,
    ),
)
