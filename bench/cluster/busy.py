"""Rows of transactions on three nodes: on a fresh cluster, and under the clients of `bench.cluster.background`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.cluster.background import background, exporter_round_s
from bench.cluster.nodes import Nodes
from bench.cluster.rows import Row, Scale, Work
from bench.rigs import run_python
from bench.wire_rows import p99

PARTITIONS: Final = 6
WARM_UP_SHARE: Final = 0.25
SECONDS_SHARE: Final = 4.0


def one_after_the_other(nodes: Nodes, scale: Scale) -> list[list[float]]:
    """What one producer sees: transactions a second; p50 and p99 in ms from begin to the end of commit; answers with
    CONCURRENT_TRANSACTIONS in a hundred of them; and the CPU that the three nodes take in a second."""
    topic = f"busy-{time.monotonic_ns()}"
    nodes.create(topic, PARTITIONS)
    sized = (str(scale.warm_up_s * WARM_UP_SHARE), str(scale.seconds * SECONDS_SHARE))
    used, before = sum(nodes.cpu_s().values()), time.monotonic()
    said = run_python("bench.transactions", "small", nodes.bootstrap, topic, *sized)
    share = (sum(nodes.cpu_s().values()) - used) / (time.monotonic() - before)
    outcome: dict[str, Any] = json.loads(said)
    took = sorted(outcome["took"])
    count = len(took)
    values = (
        count / outcome["seconds"],
        took[count // 2] * 1e3,
        p99(took) * 1e3,
        outcome["concurrent"] / count * 100,
        share,
    )
    return [[value] for value in values]


def alone(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """On a cluster that nobody else uses."""
    return one_after_the_other(nodes, scale)


def busy(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """Beside many clients; and how many ms a round of an exporter takes meanwhile."""
    with background(nodes) as clients:
        known = len(clients.exporter_rounds())
        values = one_after_the_other(nodes, scale)
        clients.check()
        return [*values, [exporter_round_s(clients, known) * 1e3]]


def _rows(key: str, said: str) -> tuple[Row, ...]:
    return (
        Row(key, f"transactions of one producer, {said}", "txn/s", None),
        Row(f"{key}-p50", "the same: p50 from begin to commit", "ms", None, True),
        Row(f"{key}-p99", "the same: p99", "ms", None, True),
        Row(f"{key}-concurrent", "CONCURRENT_TRANSACTIONS in 100 of them", "answers", None, True),
        Row(f"{key}-cpu", "CPU of the three nodes, in a second", "s", None, True),
    )


BUSY_WORKS = (
    Work(_rows("busy-alone", "nobody else"), alone),
    Work(
        (
            *_rows("busy", "many clients"),
            Row("busy-exporter", "a round of an exporter, p50", "ms", None, True),
        ),
        busy,
    ),
)
