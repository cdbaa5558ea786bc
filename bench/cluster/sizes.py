"""Rows of size: thousands of partitions, and a follower that has gigabytes to catch up."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cluster.nodes import REPLICAS, Nodes, wait_until
from bench.cluster.rows import COPY_BYTES_PER_S, Row, Scale, Work
from bench.link import Link
from bench.memory import touch
from bench.wire_load import Load
from bench.wire_rows import BATCH_1MB, MB, meanwhile, p99, run_load

MANY = "many"
SETTLE_S = 2.0
PACED_RATE = 500
LOOK_EVERY_S = 0.02


def many_partitions(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """Seconds to create thousands of partitions; to move all that one node led when it is killed; to have it in sync
    again from its start. Then the part of a core that the busiest of the three takes while all are idle."""
    count = scale.partitions
    before = time.monotonic()
    nodes.create(MANY, count)
    created = time.monotonic() - before
    time.sleep(SETTLE_S)
    victim = next(node for node in nodes.peers if node != nodes.controller())
    led = [index for index, part in nodes.partitions(MANY).items() if part.leader_id == victim]
    before = time.monotonic()
    nodes.peers[victim].kill()
    wait_until(lambda: all_moved(nodes, victim), f"partitions stay with node {victim}", LOOK_EVERY_S)
    wait_until(lambda: all_answer(nodes, led), f"leaders that follow node {victim} do not answer", LOOK_EVERY_S)
    moved = time.monotonic() - before
    time.sleep(SETTLE_S)
    before = time.monotonic()
    nodes.peers[victim].start()
    nodes.wait_in_sync(MANY, count, every_s=LOOK_EVERY_S)
    rejoined = time.monotonic() - before
    time.sleep(SETTLE_S)
    spent = nodes.cpu_s()
    time.sleep(scale.idle_s)
    idle = max(now - spent[node] for node, now in nodes.cpu_s().items()) / scale.idle_s
    return [[created], [moved], [rejoined], [100 * idle]]


def all_moved(nodes: Nodes, victim: int) -> bool:
    """Whether each node that runs has every partition led by another than the victim."""
    for node in nodes.running():
        parts = nodes.partitions(MANY, node).values()
        if any(part.leader_id in (-1, victim) for part in parts):
            return False
    return True


def all_answer(nodes: Nodes, partitions: list[int]) -> bool:
    """Whether the leader of each of these partitions tells its end."""
    led = nodes.partitions(MANY)
    for node in nodes.running():
        mine = [index for index in partitions if led[index].leader_id == node]
        if not mine:
            continue
        with Link(nodes.peers[node].port) as link:
            if min(link.end_offsets(MANY, mine).values()) < 0:
                return False
    return True


def catch_up(nodes: Nodes, scale: Scale) -> Sequence[list[float]]:
    """Megabytes a second at which a follower that was away gets what it lacks, from its first new byte to its return
    among those in sync; a paced producer's p99 beside that, over its p99 without; and the percentage of processor time
    that the host of this machine took meanwhile, for whoever else it has: both rows rise and fall with it."""
    for topic in ("away", "paced"):
        nodes.create(topic)
    leader = nodes.leader("away")
    active = nodes.controller()
    away = next(node for node in nodes.peers if node not in (leader, active))
    nodes.peers[away].stop()
    nodes.wait_in_sync("away", 1, REPLICAS - 1)
    port = nodes.leader_port("away")
    lacking = fill(port, scale.catch_up_bytes)
    pace = Load("produce-paced", nodes.leader_port("paced"), "paced", 0, seconds=scale.seconds, rate=PACED_RATE)
    alone = p99(run_load(pace)["latencies"])
    touch(scale.catch_up_bytes)
    data = nodes.cluster.data(away) / "away-0"
    had = size_of(data)
    nodes.peers[away].start()
    wait_until(lambda: size_of(data) > had, "nothing comes", LOOK_EVERY_S)
    before = time.monotonic()

    def end() -> float:
        nodes.wait_in_sync("away", 1, every_s=LOOK_EVERY_S)
        return time.monotonic() - before

    taken, all_of_it = processor_time()
    with meanwhile(end) as back:
        beside = p99(run_load(pace)["latencies"])
        now_taken, now_all = processor_time()
    share = 100 * (now_taken - taken) / (now_all - all_of_it)
    return [[lacking / back.result() / MB], [beside / alone], [share]]


def processor_time() -> tuple[int, int]:
    """Processor time that the host took from this machine since its start, and all that there was."""
    with open("/proc/stat") as file:
        user, nice, system, idle, waits, irq, soft_irq, taken = map(int, file.readline().split()[1:9])
    return taken, user + nice + system + idle + waits + irq + soft_irq + taken


def fill(port: int, wanted: int) -> int:
    """Writes so many bytes to the topic, batches of a megabyte; how many it were."""
    written = 0
    while written < wanted:
        touch(COPY_BYTES_PER_S // 2)
        written += int(run_load(Load("produce", port, "away", BATCH_1MB, 5, 1, 2.0))["bytes"])
    return written


def size_of(log: Path) -> int:
    """Bytes in the segments of a partition."""
    return sum(os.path.getsize(file) for file in log.glob("*.log"))


MANY_WORKS = (
    Work(
        (
            Row("many-create", "{partitions} partitions: create", "s", 0.5, True),
            Row("many-failover", "the same: failover of all that one node led", "s", 0.5, True),
            Row("many-rejoin", "the same: its start, until all is in sync", "s", 0.5, True),
            Row("many-idle", "the same: CPU of a core, idle, the busiest", "%", 5.0, True, of_itself=True),
        ),
        many_partitions,
    ),
)

CATCH_UP_WORKS = (
    Work(
        (
            Row("catch-up", "catch up of a follower, {catch_up} GB", "MB/s", 1.0),
            Row("catch-up-p99", "a producer's p99 meanwhile, over without", "x", 2.0, True, of_itself=True),
            Row("catch-up-taken", "the same: processor time that the host takes", "%", None, True),
        ),
        catch_up,
    ),
)
