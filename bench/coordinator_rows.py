"""Rows of transactions and of the consumer protocol: their pace, how long a commit takes, what readers of committed
records get, and a group of many members. The measurements are those of one broker and of a cluster alike."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bench.group_load import Group
from bench.link import Link
from bench.memory import touch
from bench.rigs import Rig, run_python
from bench.told import keep_for_later, told_before
from bench.transaction_load import Transactions
from bench.wire_rows import MB, RECORD_BYTES, Row, Scale, drop, p99, topic_for

MANY = 50
PARTITIONS = 6
"""Of the topic that fifty producers write to: two for each node of a cluster."""
WARM_UP_SHARE = 0.25
"""A broker's first transactions go on for so much of the time that the bench warms up; later ones begin at once."""
SHORT_WARM_UP_S = 0.3
SECONDS_SHARE = 2.0
"""A slow broker commits some tens of transactions a second: for a p99, it has twice the time that another row has."""

_warm: set[tuple[str, str]] = set()
"""What a side has done before."""


def first_time(side: str, what: str) -> bool:
    """Whether this side does this for the first time."""
    known = (side, what) in _warm
    _warm.add((side, what))
    return not known


def one_producer(bootstrap: str, topic: str, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """What `bench.transactions` says of one librdkafka producer."""
    said = run_python("bench.transactions", "commit", bootstrap, topic, str(warm_up_s), str(seconds))
    return dict(json.loads(said))


def many_producers(port: int, topic: str, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """What `bench.transaction_load` says of fifty producers."""
    asked = Transactions(port, topic, MANY, PARTITIONS, warm_up_s, seconds)
    return dict(json.loads(run_python("bench.transaction_load", json.dumps(asdict(asked)))))


def told_of(outcome: dict[str, Any]) -> tuple[float, float, float]:
    """Transactions a second; p50 and p99 of a commit in milliseconds."""
    commits = sorted(outcome["commits"])
    return outcome["transactions"] / outcome["seconds"], commits[len(commits) // 2] * 1e3, p99(commits) * 1e3


def group_outcome(port: int, topic: str, members: int, pids: list[int], *, leaves: bool) -> dict[str, Any]:
    """What `bench.group_load` says of a group with as many members as its topic has partitions."""
    asked = Group(port, topic, members, members, pids, leaves)
    return dict(json.loads(run_python("bench.group_load", json.dumps(asdict(asked)))))


# --- one broker


def _transactions(key: str, producers: int) -> Callable[[Rig, Scale], float]:
    """Transactions a second; p50 and p99 of their commits are for the rows that follow."""

    def measure(rig: Rig, scale: Scale) -> float:
        name = topic_for(rig, f"{key}-{time.monotonic_ns()}", PARTITIONS)
        warm_up_s = scale.warm_up_s * WARM_UP_SHARE if first_time(rig.name, key) else SHORT_WARM_UP_S
        if producers == 1:
            outcome = one_producer(rig.bootstrap, name, warm_up_s, scale.seconds * SECONDS_SHARE)
        else:
            outcome = many_producers(rig.port, name, warm_up_s, scale.seconds * SECONDS_SHARE)
        drop(rig, name)
        rate, middle, high = told_of(outcome)
        keep_for_later(rig, f"{key}-p50", middle)
        keep_for_later(rig, f"{key}-p99", high)
        return rate

    return measure


def _committed(rig: Rig, scale: Scale) -> tuple[str, int]:
    """A topic of transactions, and how many of its records are committed. Kept for the next round."""
    name = topic_for(rig, "committed")
    count = scale.committed_bytes // RECORD_BYTES
    with Link(rig.port) as link:
        empty = link.end_offset(name) == 0
    if empty:
        touch(scale.committed_bytes)
        run_python("bench.transactions", "fill", rig.bootstrap, name, str(count))
    return name, count


def _committed_consume(rig: Rig, scale: Scale) -> float:
    """Thousands of committed records a second that librdkafka gets."""
    name, count = _committed(rig, scale)
    outcome = json.loads(run_python("bench.clients", "consume", rig.bootstrap, name, str(count)))
    return float(outcome["records"] / outcome["seconds"] / 1000)


def _committed_fetch(rig: Rig, scale: Scale) -> float:
    """Megabytes a second of fetches of 1 MB that ask for committed records."""
    name, _ = _committed(rig, scale)
    with Link(rig.port) as link:
        end = link.end_offset(name)
    outcome = json.loads(run_python("bench.committed_load", str(rig.port), name, str(end), str(scale.seconds)))
    return float(outcome["bytes"] / outcome["seconds"] / MB)


def _group(rig: Rig, scale: Scale) -> float:
    """Seconds until all members own exactly their share; CPU and what moves later are for the rows that follow."""
    name = topic_for(rig, f"group-{time.monotonic_ns()}", scale.members)
    if first_time(rig.name, "group"):
        group_outcome(rig.port, name, scale.members, [rig.pid], leaves=False)
    outcome = group_outcome(rig.port, name, scale.members, [rig.pid], leaves=True)
    drop(rig, name)
    keep_for_later(rig, "group-cpu", outcome["cpu_s"])
    keep_for_later(rig, "group-moved", outcome["moved"])
    return float(outcome["seconds"])


def _transaction_rows(key: str, said: str, producers: int) -> tuple[Row, Row, Row]:
    both = _transactions(key, producers)
    return (
        Row(key, f"transactions of {said}", "txn/s", 1.5, both),
        Row(f"{key}-p50", "the same: p50 of a commit", "ms", None, told_before(f"{key}-p50", both), True),
        Row(f"{key}-p99", "the same: p99 of a commit", "ms", 0.7, told_before(f"{key}-p99", both), True),
    )


COORDINATOR_ROWS = (
    *_transaction_rows("transactions-1", "one librdkafka producer", 1),
    *_transaction_rows("transactions-50", f"{MANY} producers", MANY),
    Row("committed-consume", "librdkafka read_committed, 1 KB", "k msg/s", 1.0, _committed_consume),
    Row("committed-fetch", "fetch 1 MB, read_committed", "MB/s", 1.0, _committed_fetch),
    Row("group", "{members} members: until all own their share", "s", 1.0, _group, True),
    Row("group-cpu", "the same: CPU of the broker", "s", 0.5, told_before("group-cpu", _group), True),
    Row(
        "group-moved",
        "one of them leaves: partitions that move",
        "parts",
        1.0,
        told_before("group-moved", _group),
        lower=True,
        against_itself=True,
    ),
)
