"""Rows of many at once: readers of one log, neighbours that talk beside a reader, several real consumers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from bench import wire_load
from bench.link import Link
from bench.readers import Readers
from bench.rigs import Rig, run_python
from bench.told import keep_for_later, told_before
from bench.wire_load import Load
from bench.wire_rows import (
    BATCH_1MB,
    KB,
    MB,
    TOOLS,
    Row,
    Scale,
    drop,
    java_filled,
    librdkafka_filled,
    meanwhile,
    p99,
    run_load,
    topic_for,
)
from tests.peers.kafka import TOOL_HEAP, java

KINDS = {
    "v4": ("version 4", 4, False, 1),
    "v17": ("version 17", 17, False, 1),
    "s1": ("in a session", 17, True, 1),
    "s20": ("in a session of 20 partitions", 17, True, 20),
}
SIZES = {"16k": (16 * KB, 1.3), "64k": (64 * KB, 1.3), "1m": (BATCH_1MB, 1.0)}
CROWDS = (1, 6, 30)
CPU_CROWD = 6
SECONDS_SHARE = 0.5
"""There are many of these rows: each takes so much of the time that another row takes."""
CONSUMERS = 6


def _filled(rig: Rig, size: int, partitions: int, scale: Scale) -> tuple[str, list[int], int]:
    """A topic full of batches of one size: its name, the ends of its partitions, records a batch. Kept for later."""
    name = f"crowd-{size}-{partitions}"
    _, count = wire_load.batch_of(size)
    wanted = scale.prefill_bytes // (4 * partitions)
    with Link(rig.port) as link:
        link.create_topic(name, partitions)
        ends = [link.end_offset(name, index) for index in range(partitions)]
        while min(ends) * (size // count) < wanted:
            run_load(Load("produce", rig.port, name, size, 5, partitions, 0.5, partitions=partitions))
            ends = [link.end_offset(name, index) for index in range(partitions)]
    return name, ends, count


def _read(rig: Rig, size: int, kind: str, readers: int, scale: Scale, seconds: float) -> dict[str, Any]:
    _, version, session, partitions = KINDS[kind]
    name, ends, count = _filled(rig, size, partitions, scale)
    asked = Readers(rig.port, name, size, ends, readers, version, session, count, seconds)
    outcome: dict[str, Any] = json.loads(run_python("bench.readers", json.dumps(asdict(asked))))
    return outcome


def _crowd_rate(key: str, size: int, kind: str, readers: int) -> Callable[[Rig, Scale], float]:
    """Megabytes a second of all readers together."""

    def measure(rig: Rig, scale: Scale) -> float:
        _filled(rig, size, KINDS[kind][3], scale)
        before = rig.cpu_s()
        outcome = _read(rig, size, kind, readers, scale, scale.seconds * SECONDS_SHARE)
        keep_for_later(rig, key, (rig.cpu_s() - before) / outcome["requests"] * 1e6)
        return float(outcome["bytes"] / outcome["seconds"] / MB)

    return measure


def _crowd_rows() -> list[Row]:
    rows: list[Row] = []
    for size_name, (size, bar) in SIZES.items():
        for kind, (said, *_) in KINDS.items():
            for readers in CROWDS:
                key = f"readers-{size_name}-{kind}-{readers}"
                rate = _crowd_rate(key, size, kind, readers)
                title = f"{readers} reader{'s' if readers > 1 else ''}, {size_name.upper()}B, {said}"
                rows.append(Row(key, title, "MB/s", bar, rate))
                if readers == CPU_CROWD:
                    rows.append(Row(f"{key}-cpu", "the same: CPU a fetch", "us", 0.8, told_before(key, rate), True))
    return rows


# --- beside each other


def _chat(rig: Rig, topic: str, connections: int, seconds: float) -> list[float]:
    told = run_python("bench.neighbours", "chat", str(rig.port), topic, str(connections), str(seconds))
    return list(json.loads(told))


def _beside(connections: int) -> Callable[[Rig, Scale], float]:
    """A reader of 1 MB and so many neighbours, each alone, then both at once: the share of its pace that the reader
    keeps. What became of the neighbours is the next row's."""

    def measure(rig: Rig, scale: Scale) -> float:
        pinged = topic_for(rig, f"neighbours-{time.monotonic_ns()}")
        seconds = max(2.0, scale.seconds)
        alone = _read(rig, BATCH_1MB, "v17", 1, scale, seconds)
        quiet = _chat(rig, pinged, connections, seconds)
        with meanwhile(lambda: _read(rig, BATCH_1MB, "v17", 1, scale, seconds + 1)) as reading:
            loud = _chat(rig, pinged, connections, seconds)
        beside = reading.result()
        drop(rig, pinged)
        keep_for_later(rig, f"beside-{connections}", p99(loud) / p99(quiet))
        first, second = (found["bytes"] / found["seconds"] for found in (alone, beside))
        return float(second / first)

    return measure


def _producer_beside_readers(rig: Rig, scale: Scale) -> float:
    """A paced small producer's p99 beside six readers of 64 KB, over its p99 alone."""
    pinged = topic_for(rig, f"pinged-{time.monotonic_ns()}")
    paced = Load("produce-paced", rig.port, pinged, 0, seconds=max(2.0, scale.seconds), rate=500)
    alone = p99(run_load(paced)["latencies"])
    with meanwhile(lambda: _read(rig, 64 * KB, "s1", CONSUMERS, scale, paced.seconds + 1)):
        beside = p99(run_load(paced)["latencies"])
    drop(rig, pinged)
    return beside / alone


def _beside_bombs(rig: Rig, scale: Scale) -> float:
    """p99 of ten neighbours beside a client of bombs on a compacted topic, over their p99 alone."""
    pinged = topic_for(rig, f"pinged-{time.monotonic_ns()}")
    bombed = topic_for(rig, f"bombed-{time.monotonic_ns()}", cleanup_policy="compact")
    seconds = max(2.0, scale.seconds)
    quiet = _chat(rig, pinged, 10, seconds)
    with meanwhile(lambda: run_python("bench.neighbours", "bombs", str(rig.port), bombed, str(seconds + 1))):
        loud = _chat(rig, pinged, 10, seconds)
    drop(rig, pinged)
    drop(rig, bombed)
    return p99(loud) / p99(quiet)


def _beside_throttled(rig: Rig, scale: Scale) -> float:
    """p99 of ten neighbours beside two producers that are over their quota, over their p99 alone."""
    pinged = topic_for(rig, f"pinged-{time.monotonic_ns()}")
    filled = topic_for(rig, f"filled-{time.monotonic_ns()}")
    seconds = max(2.0, scale.seconds)
    quiet = _chat(rig, pinged, 10, seconds)
    with meanwhile(lambda: run_python("bench.neighbours", "over", str(rig.port), filled, str(seconds + 1))):
        loud = _chat(rig, pinged, 10, seconds)
    drop(rig, pinged)
    drop(rig, filled)
    return p99(loud) / p99(quiet)


# --- real consumers


def _librdkafka_crowd(rig: Rig, scale: Scale) -> float:
    """Thousands of records a second of six consumers at once, each of all the records."""
    name = librdkafka_filled(rig, scale)
    before = rig.cpu_s()

    def consume(_: int) -> float:
        outcome = json.loads(run_python("bench.clients", "consume", rig.bootstrap, name, str(scale.records)))
        return float(outcome["records"] / outcome["seconds"] / 1000)

    with ThreadPoolExecutor(CONSUMERS) as pool:
        rate = sum(pool.map(consume, range(CONSUMERS)))
    keep_for_later(rig, "librdkafka", rig.cpu_s() - before)
    return rate


def _java_crowd(rig: Rig, scale: Scale) -> float:
    """The same of Kafka's own ConsumerPerformance, by the clock from the first to the last."""
    name = java_filled(rig, scale)
    before = rig.cpu_s()
    began = time.perf_counter()
    tools = [
        subprocess.Popen(
            java(
                TOOLS + "ConsumerPerformance", "--topic", name, "--num-records", str(scale.java_records),
                "--bootstrap-server", rig.bootstrap, "--hide-header", "--timeout", "60000",
                "--group", f"crowd-{time.monotonic_ns()}", flags=(TOOL_HEAP,),
            ),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for _ in range(CONSUMERS)
    ]  # fmt: skip
    for tool in tools:
        try:
            assert tool.wait(300) == 0, "a consumer failed"
        except subprocess.TimeoutExpired:
            tool.kill()
            raise
    spent = time.perf_counter() - began
    keep_for_later(rig, "java", rig.cpu_s() - before)
    return float(CONSUMERS * scale.java_records / spent / 1000)


def _beside_row(key: str, title: str, bar: float, measure: Callable[[Rig, Scale], float], lower: bool) -> Row:
    return Row(key, title, "x", bar, measure, lower, against_itself=True)


def _cpu_row(what: str, measure: Callable[[Rig, Scale], float]) -> Row:
    return Row(f"{what}-crowd-cpu", "the same: CPU of the broker", "s", 0.7, told_before(what, measure), True)


def _beside_rows(connections: int, said: str) -> tuple[Row, Row]:
    key, share = f"beside-{connections}", _beside(connections)
    return (
        _beside_row(key, f"a 1 MB reader beside {said}, over alone", 0.9, share, False),
        _beside_row(f"{key}-p99", "p99 of those beside it, over alone", 2.0, told_before(key, share), True),
    )


CROWD_ROWS = (
    *_crowd_rows(),
    *_beside_rows(1, "one neighbour"),
    *_beside_rows(50, "50 neighbours"),
    _beside_row("beside-readers", "producer p99 beside 6 readers, over alone", 2.0, _producer_beside_readers, True),
    _beside_row("beside-bombs", "p99 of 10 neighbours beside bombs, over alone", 2.0, _beside_bombs, True),
    _beside_row(
        "beside-throttled", "p99 of 10 neighbours beside 2 over quota, over alone", 2.0, _beside_throttled, True
    ),
    Row("librdkafka-crowd", "6 librdkafka consumers at once", "k msg/s", 1.0, _librdkafka_crowd),
    _cpu_row("librdkafka", _librdkafka_crowd),
    Row("java-crowd", "6 Java consumers at once", "k msg/s", 1.0, _java_crowd),
    _cpu_row("java", _java_crowd),
)
