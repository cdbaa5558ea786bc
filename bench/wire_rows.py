"""Rows that a load generator measures on two brokers that are up and warm: produce, fetch, clients, latency, CPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench import wire_load
from bench.bars import Barred
from bench.link import Link
from bench.memory import touch
from bench.rigs import DATA, ROOT, Ours, Rig, run_java, run_python
from bench.several import PARTITIONS, requests_per_second
from bench.unanswered import cpu_over_answered
from bench.wire_load import Load
from tests.peers.kafka import cpu_s

T = TypeVar("T")

KB, MB, GB = 1 << 10, 1_000_000, 1_000_000_000
BATCH_1MB = 1_000_000
LZ4 = 3
FILE_BYTES_PER_S = 1200 * MB
"""More than any broker here writes in a second: so much memory is made ready for a measurement."""
SETTLE_S = 30
"""Behind a virtual disk the host goes on writing for a while after a sync; what is cold was written long ago."""
AHEAD_S = 0.5
"""How long what is to lie beside a measurement runs before it."""
RECORD_BYTES = 1100
"""A record of 1 KB in its batch, at most."""
TOOLS = "org.apache.kafka.tools."


@dataclass(frozen=True)
class Scale:
    """How much work a measurement is."""

    seconds: float = 3.0
    records: int = 1_000_000
    java_records: int = 500_000
    pings: int = 4000
    prefill_bytes: int = 256 * MB
    cold_bytes: int = 10 * GB
    unflushed_bytes: int = 2 * GB
    partitions: int = 5000
    warm_up_s: float = 20.0
    rounds: int = 3
    committed_bytes: int = 300 * MB
    members: int = 1000


QUICK = Scale(0.7, 200_000, 200_000, 800, 64 * MB, GB, 300 * MB, 1000, 6.0, 1, 60 * MB, 200)


@dataclass(frozen=True)
class Row(Barred):
    """One line of the table; its ratio is ours over Kafka's."""

    key: str
    title: str
    unit: str
    bar: float | None
    measure: Callable[[Rig, Scale], float]
    lower: bool = False
    limit: Callable[[Scale], float] | None = None
    against_itself: bool = False


def run_load(load: Load) -> dict[str, Any]:
    """Run the load generator in its own process."""
    outcome: dict[str, Any] = json.loads(run_python("bench.wire_load", json.dumps(asdict(load))))
    return outcome


def topic_for(rig: Rig, name: str, partitions: int = 1, **configs: str) -> str:
    """A topic of its own for a measurement, so that none sees another's data."""
    with Link(rig.port) as link:
        link.create_topic(name, partitions, replicas=1, **configs)
    return name


def drop(rig: Rig, name: str) -> None:
    with Link(rig.port) as link:
        link.delete_topic(name)


def produce_rate(size: int, in_flight: int, connections: int, per_second: str) -> Callable[[Rig, Scale], float]:
    """Requests or megabytes a second of a produce load."""

    def measure(rig: Rig, scale: Scale) -> float:
        name = topic_for(rig, f"produce-{size}-{in_flight}-{connections}-{time.monotonic_ns()}")
        if size:
            touch(int(scale.seconds * FILE_BYTES_PER_S))
        load = Load("produce", rig.port, name, size, in_flight, connections, scale.seconds)
        outcome = run_load(load)
        drop(rig, name)
        return float(outcome[per_second] / outcome["seconds"] / (MB if per_second == "bytes" else 1))

    return measure


def produce_compressed(validation: str) -> Callable[[Rig, Scale], float]:
    """Megabytes a second, as compressed, of 16 KB of records in lz4; Kafka opens every batch."""

    def measure(rig: Rig, scale: Scale) -> float:
        name = f"compressed-{validation}-{time.monotonic_ns()}"
        if isinstance(rig, Ours):
            topic_for(rig, name, record_validation=validation)
        else:
            topic_for(rig, name)
        touch(int(scale.seconds * FILE_BYTES_PER_S))
        outcome = run_load(Load("produce", rig.port, name, 16 * KB, 50, 1, scale.seconds, codec=LZ4))
        drop(rig, name)
        return float(outcome["bytes"] / outcome["seconds"] / MB)

    return measure


def filled(rig: Rig, size: int, scale: Scale) -> tuple[str, int, int]:
    """A topic full of batches of one size: its name, its end offset, records a batch. Kept for the next round."""
    name = f"fetch-{size}"
    _, count = wire_load.batch_of(size)
    with Link(rig.port) as link:
        link.create_topic(name)
        while link.end_offset(name) * (size // count) < scale.prefill_bytes:
            run_load(Load("produce", rig.port, name, size, 5, seconds=0.5))
        end = link.end_offset(name)
    return name, end, count


def fetch_rate(size: int) -> Callable[[Rig, Scale], float]:
    """Megabytes a second of fetches of one batch each, one after the other, from the page cache."""

    def measure(rig: Rig, scale: Scale) -> float:
        name, end, count = filled(rig, size, scale)
        load = Load("fetch", rig.port, name, size, seconds=scale.seconds, end_offset=end, records_per_batch=count)
        outcome = run_load(load)
        return float(outcome["bytes"] / outcome["seconds"] / MB)

    return measure


def produce_limit(size: int, in_flight: int, connections: int, per_second: str) -> Callable[[Scale], float]:
    """The same load against a loop that only receives, writes and answers."""

    def measure(scale: Scale) -> float:
        if size:
            touch(int(scale.seconds * FILE_BYTES_PER_S))
        frame = wire_load.produce_frame("limit", wire_load.batch_of(size)[0])
        reply = wire_load.produce_reply("limit").hex()
        path = DATA / "limit.bin"
        with bare_loop("produce", str(len(frame)), reply, str(path)) as port:
            outcome = run_load(Load("produce", port, "limit", size, in_flight, connections, scale.seconds))
        path.unlink(missing_ok=True)
        return float(outcome[per_second] / outcome["seconds"] / (MB if per_second == "bytes" else 1))

    return measure


def fetch_limit(size: int) -> Callable[[Scale], float]:
    """The same fetches against a loop that only receives, and answers by sendfile."""

    def measure(scale: Scale) -> float:
        batch, count = wire_load.batch_of(size)
        frame, _ = wire_load.fetch_frame("limit", size)
        head = (60 + len(batch)).to_bytes(4, "big") + bytes(60)
        path = DATA / "limit.bin"
        path.write_bytes(batch * max(2, scale.prefill_bytes // len(batch)))
        with bare_loop("fetch", str(len(frame)), head.hex(), str(path), str(len(batch))) as port:
            load = Load("fetch", port, "limit", size, seconds=scale.seconds, records_per_batch=count)
            outcome = run_load(load)
        path.unlink()
        return float(outcome["bytes"] / outcome["seconds"] / MB)

    return measure


class bare_loop:  # noqa: N801
    """A bare loop in a process of its own; its port inside the block."""

    def __init__(self, *arguments: str) -> None:
        DATA.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "bench.limits", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)

    def __enter__(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def records_limit(what: Callable[[int], Callable[[Scale], float]]) -> Callable[[Scale], float]:
    """Thousands of 1 KB records a second that a bare loop moves in batches of a megabyte."""
    return lambda scale: what(BATCH_1MB)(scale) * MB / RECORD_BYTES / 1000


def bare_megabytes(size: int) -> Callable[[Scale], float]:
    return produce_limit(size, 5, 1, "bytes")


def latency_limit(share: float) -> Callable[[Scale], float]:
    """Milliseconds of one bare round trip, paced as the producer beside a cold read is."""

    def measure(scale: Scale) -> float:
        frame = wire_load.produce_frame("limit", wire_load.batch_of(0)[0])
        path = DATA / "limit.bin"
        with bare_loop("produce", str(len(frame)), wire_load.produce_reply("limit").hex(), str(path)) as port:
            paced = Load("produce-paced", port, "limit", 0, seconds=scale.seconds, rate=1000)
            latencies = sorted(run_load(paced)["latencies"])
        path.unlink(missing_ok=True)
        return float(latencies[int(share * len(latencies))] * 1000)

    return measure


def cpu_limit(scale: Scale) -> float:
    """CPU seconds of the bare loops per GB, half of the time in and half of it out."""
    frame = wire_load.produce_frame("limit", wire_load.batch_of(16 * KB)[0])
    path = DATA / "limit.bin"
    touch(int(scale.seconds * FILE_BYTES_PER_S))
    loop = bare_loop("produce", str(len(frame)), wire_load.produce_reply("limit").hex(), str(path))
    with loop as port:
        inward = run_load(Load("produce", port, "limit", 16 * KB, 50, 1, scale.seconds))
        spent = loop.cpu_s()
    batch, count = wire_load.batch_of(64 * KB)
    asked, _ = wire_load.fetch_frame("limit", 64 * KB)
    head = (60 + len(batch)).to_bytes(4, "big") + bytes(60)
    path.write_bytes(batch * max(2, scale.prefill_bytes // len(batch)))
    loop = bare_loop("fetch", str(len(asked)), head.hex(), str(path), str(len(batch)))
    with loop as port:
        outward = run_load(Load("fetch", port, "limit", 64 * KB, seconds=scale.seconds, records_per_batch=count))
        spent += loop.cpu_s()
    path.unlink()
    return float(spent / ((inward["bytes"] + outward["bytes"]) / GB))


def librdkafka_produce(rig: Rig, scale: Scale) -> float:
    name = topic_for(rig, f"librdkafka-{time.monotonic_ns()}")
    touch(scale.records * RECORD_BYTES)
    outcome = json.loads(run_python("bench.clients", "produce", rig.bootstrap, name, str(scale.records), "1024"))
    drop(rig, name)
    return float(outcome["records"] / outcome["seconds"] / 1000)


def librdkafka_filled(rig: Rig, scale: Scale) -> str:
    """A topic that librdkafka has filled. Kept for the next round."""
    name = topic_for(rig, "librdkafka-read")
    with Link(rig.port) as link:
        have = link.end_offset(name)
    if have < scale.records:
        run_python("bench.clients", "produce", rig.bootstrap, name, str(scale.records - have), "1024")
    return name


def librdkafka_consume(rig: Rig, scale: Scale) -> float:
    name = librdkafka_filled(rig, scale)
    outcome = json.loads(run_python("bench.clients", "consume", rig.bootstrap, name, str(scale.records)))
    return float(outcome["records"] / outcome["seconds"] / 1000)


def java_produce(rig: Rig, scale: Scale) -> float:
    name = topic_for(rig, f"java-{time.monotonic_ns()}")
    touch(scale.java_records * RECORD_BYTES)
    rate = _java_produce(rig, name, scale.java_records)
    drop(rig, name)
    return rate


def _java_produce(rig: Rig, name: str, count: int) -> float:
    said = run_java(
        TOOLS + "ProducerPerformance", "--topic", name, "--num-records", str(count), "--record-size", "1024",
        "--throughput", "-1", "--bootstrap-server", rig.bootstrap,
        "--command-property", "batch.size=131072", "acks=all",
    )  # fmt: skip
    last = next(line for line in reversed(said.splitlines()) if "records/sec" in line)
    return float(last.split("records sent, ")[1].split()[0]) / 1000


def java_filled(rig: Rig, scale: Scale) -> str:
    """A topic that the Java client has filled. Kept for the next round."""
    name = topic_for(rig, "java-read")
    with Link(rig.port) as link:
        have = link.end_offset(name)
    if have < scale.java_records:
        _java_produce(rig, name, scale.java_records - have)
    return name


def java_consume(rig: Rig, scale: Scale) -> float:
    name = java_filled(rig, scale)
    said = run_java(
        TOOLS + "ConsumerPerformance", "--topic", name, "--num-records", str(scale.java_records),
        "--bootstrap-server", rig.bootstrap, "--hide-header", "--timeout", "60000",
    )  # fmt: skip
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    line = next(each for each in reversed(said.splitlines()) if each.count(",") >= 9)
    return float(line.split(",")[9]) / 1000


def latency(which: str) -> Callable[[Rig, Scale], float]:
    """Milliseconds out and back of a 100 byte record, by librdkafka."""

    def measure(rig: Rig, scale: Scale) -> float:
        name = topic_for(rig, f"latency-{time.monotonic_ns()}")
        outcome = json.loads(run_python("bench.clients", "latency", rig.bootstrap, name, str(scale.pings)))
        drop(rig, name)
        return float(outcome[which])

    return measure


def cpu_per_gb(rig: Rig, scale: Scale) -> float:
    """CPU seconds of the broker per GB, produced in 16 KB batches and fetched in 64 KB ones."""
    name, end, count = filled(rig, 64 * KB, scale)
    fresh = topic_for(rig, f"cpu-{time.monotonic_ns()}")
    touch(int(scale.seconds * FILE_BYTES_PER_S))
    before = rig.cpu_s()
    inward = run_load(Load("produce", rig.port, fresh, 16 * KB, 50, 1, scale.seconds))
    outward = run_load(
        Load("fetch", rig.port, name, 64 * KB, seconds=scale.seconds, end_offset=end, records_per_batch=count)
    )
    spent = rig.cpu_s() - before
    drop(rig, fresh)
    return float(spent / ((inward["bytes"] + outward["bytes"]) / GB))


def unanswered(rig: Rig, _scale: Scale) -> float:
    """See `bench.unanswered`."""
    fresh = topic_for(rig, f"unanswered-{time.monotonic_ns()}")
    spent = cpu_over_answered(rig, fresh)
    drop(rig, fresh)
    return spent


def several(rig: Rig, _scale: Scale) -> float:
    """See `bench.several`."""
    fresh = topic_for(rig, f"several-{time.monotonic_ns()}", PARTITIONS)
    rate = requests_per_second(rig, fresh)
    drop(rig, fresh)
    return rate


def cold_read(rig: Rig, scale: Scale) -> float:
    """A paced producer's p99 while a log that is not in memory is read by another client, over its p99 without."""
    cold = topic_for(rig, "cold")
    pinged = topic_for(rig, f"pinged-{time.monotonic_ns()}")
    batch, count = wire_load.batch_of(BATCH_1MB)
    with Link(rig.port) as link:
        written = False
        while link.end_offset(cold) // count * len(batch) < scale.cold_bytes:
            run_load(Load("produce", rig.port, cold, BATCH_1MB, 5, seconds=2.0))
            written = True
        end = link.end_offset(cold)
    if written:
        subprocess.run(["sync"], check=True)
        time.sleep(SETTLE_S)
    paced = Load("produce-paced", rig.port, pinged, 0, seconds=max(3.0, scale.seconds), rate=1000)
    alone = p99(run_load(paced)["latencies"])
    drop_page_cache()
    reading = Load(
        "fetch", rig.port, cold, BATCH_1MB, seconds=paced.seconds + 1, end_offset=end, records_per_batch=count
    )
    with meanwhile(lambda: run_load(reading)):
        beside = p99(run_load(paced)["latencies"])
    drop(rig, pinged)
    return beside / alone


@contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Future[T]]:
    """Has a thread do `work`, which begins a moment before the block does and ends after it. Raises what it raised."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        time.sleep(AHEAD_S)
        yield future
        future.result()


def p99(latencies: list[float]) -> float:
    ordered = sorted(latencies)
    return ordered[int(0.99 * len(ordered))]


def drop_page_cache() -> None:
    """What is on disk is forgotten in memory; needs the right to say so. Raises OSError without it."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("1\n")


def warm_up(rig: Rig, seconds: float) -> None:
    """A bit of every load, so that what is measured later is compiled by then."""
    name = topic_for(rig, "warm-up")
    share = seconds / 6
    run_load(Load("produce", rig.port, name, 0, 50, 1, share))
    run_load(Load("produce", rig.port, name, 0, 1, 1, share))
    run_load(Load("produce", rig.port, name, 0, 50, 4, share))
    run_load(Load("produce", rig.port, name, 16 * KB, 50, 1, share))
    run_load(Load("produce", rig.port, name, BATCH_1MB, 5, 1, share))
    full, end, count = filled(rig, 16 * KB, QUICK)
    run_load(Load("fetch", rig.port, full, 16 * KB, seconds=share, end_offset=end, records_per_batch=count))
    drop(rig, name)


def _produce(key: str, title: str, bar: float, size: int, in_flight: int, connections: int) -> Row:
    by = "requests" if size == 0 else "bytes"
    unit = "req/s" if size == 0 else "MB/s"
    shape = (size, in_flight, connections, by)
    return Row(key, title, unit, bar, produce_rate(*shape), limit=produce_limit(*shape))


def _compressed(key: str, title: str, validation: str) -> Row:
    return Row(key, title, "MB/s", 1.0, produce_compressed(validation), limit=produce_limit(16 * KB, 50, 1, "bytes"))


def _fetch(key: str, title: str, bar: float, size: int) -> Row:
    return Row(key, title, "MB/s", bar, fetch_rate(size), limit=fetch_limit(size))


BARE_IN = records_limit(bare_megabytes)
BARE_OUT = records_limit(fetch_limit)

WIRE_ROWS = (
    _produce("produce-small-50", "produce, one 100 B record, 50 in flight", 7.0, 0, 50, 1),
    _produce("produce-small-1", "the same, 1 in flight", 1.2, 0, 1, 1),
    _produce("produce-small-4x50", "the same, 4 connections of 50 in flight", 4.0, 0, 50, 4),
    _produce("produce-16k", "produce 16 KB batches, 50 in flight", 2.3, 16 * KB, 50, 1),
    _produce("produce-16k-4x50", "the same, 4 connections", 1.5, 16 * KB, 50, 4),
    _produce("produce-1m", "produce 1 MB batches, 5 in flight", 1.2, BATCH_1MB, 5, 1),
    _compressed("compressed", "produce 16 KB in lz4, headers checked", "headers"),
    _compressed("compressed-full", "the same, record.validation=full", "full"),
    _fetch("fetch-16k", "fetch 16 KB", 2.0, 16 * KB),
    _fetch("fetch-64k", "fetch 64 KB", 1.3, 64 * KB),
    _fetch("fetch-1m", "fetch 1 MB", 1.0, BATCH_1MB),
    Row("librdkafka-produce", "librdkafka produce, 1 KB", "k msg/s", 1.2, librdkafka_produce, limit=BARE_IN),
    Row("librdkafka-consume", "librdkafka consume, 1 KB", "k msg/s", 1.0, librdkafka_consume, limit=BARE_OUT),
    Row("java-produce", "Java ProducerPerformance, 1 KB", "k msg/s", 1.1, java_produce, limit=BARE_IN),
    Row("java-consume", "Java ConsumerPerformance, 1 KB", "k msg/s", 1.0, java_consume, limit=BARE_OUT),
    Row("latency-p50", "end to end p50, 100 B, acks=all", "ms", 1.0, latency("p50_ms"), True, latency_limit(0.5)),
    Row("latency-p99", "end to end p99, 100 B, acks=all", "ms", 0.4, latency("p99_ms"), True, latency_limit(0.99)),
    Row("cpu", "broker CPU per GB in and out", "s/GB", 1.0, cpu_per_gb, True, cpu_limit),
    Row(
        "unanswered",
        "broker CPU of a request with acks=0, 100 B, over one with acks=1",
        "x",
        1.1,
        unanswered,
        lower=True,
        against_itself=True,
    ),
    Row("several", "produce requests of 10 partitions, 1 KB each, in order", "req/s", 3.0, several),
    Row(
        "cold-read",
        "producer p99 beside a cold read, over without",
        "x",
        2.0,
        cold_read,
        lower=True,
        against_itself=True,
    ),
)
