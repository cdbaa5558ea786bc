"""Rows about a broker's life: start, memory, many partitions, restarts clean and not. Each starts its own brokers."""

from __future__ import annotations

import time

from bench.link import Link
from bench.memory import touch
from bench.rigs import Rig, run_python, running
from bench.wire_rows import MB, Row, Scale, topic_for

RESTART_PATIENCE_S = 300.0
IDLE_S = 3.0
RECORD_BYTES = 1024


def start_to_first_answer(rig: Rig, scale: Scale) -> float:
    """Seconds from the start of the process on a formatted directory to an answer to Metadata."""
    rig.start()
    rig.stop()
    seconds = rig.start()
    rig.clean()
    return seconds


def create_partitions(rig: Rig, scale: Scale) -> float:
    """Seconds to make one topic of many partitions, until all have leaders."""
    with running(rig), Link(rig.port) as link:
        before = time.monotonic()
        link.create_topic("many", scale.partitions)
        return time.monotonic() - before


def restart_with_partitions(how: str) -> object:
    """Seconds from the start of the process until all of many partitions have leaders and the last one answers."""

    def measure(rig: Rig, scale: Scale) -> float:
        with running(rig):
            with Link(rig.port) as link:
                link.create_topic("many", scale.partitions)
            time.sleep(1.0)
            rig.stop() if how == "clean" else rig.kill()
            before = time.monotonic()
            rig.start()
            with Link(rig.port) as link:
                link.wait_for_leaders("many", scale.partitions)
                wait_for_offset(link, "many", scale.partitions - 1, 0)
            return time.monotonic() - before

    return measure


def restart_with_unflushed(rig: Rig, scale: Scale) -> float:
    """Seconds from the start after a kill -9 until both partitions of a log answer with their ends."""
    with running(rig):
        topic_for(rig, "unflushed", 2)
        count = scale.unflushed_bytes // RECORD_BYTES
        touch(scale.unflushed_bytes)
        run_python("bench.clients", "produce", rig.bootstrap, "unflushed", str(count), str(RECORD_BYTES), "2")
        with Link(rig.port) as link:
            ends = [link.end_offset("unflushed", each) for each in (0, 1)]
        assert sum(ends) == count, f"{ends} of {count}"
        rig.kill()
        before = time.monotonic()
        rig.start()
        with Link(rig.port) as link:
            for each in (0, 1):
                wait_for_offset(link, "unflushed", each, ends[each])
        return time.monotonic() - before


def wait_for_offset(link: Link, topic: str, partition: int, offset: int) -> None:
    """Until a partition's end is at least `offset`."""
    deadline = time.monotonic() + RESTART_PATIENCE_S
    while link.end_offset(topic, partition) < offset:
        assert time.monotonic() < deadline, f"{topic}-{partition} does not come back to {offset}"
        time.sleep(0.01)


def resident(rig: Rig, scale: Scale) -> float:
    """Resident megabytes as it is now; the runner asks for it before and after the load."""
    return rig.resident_bytes() / MB


def at_most(key: str, title: str, unit: str, bar: float, measure: object) -> Row:
    return Row(key, title, unit, bar, measure, lower=True)  # type: ignore[arg-type]


MEMORY_ROWS = (
    at_most("memory-idle", "resident memory, idle", "MB", 0.2, resident),
    at_most("memory-loaded", "resident memory, after the load", "MB", 0.2, resident),
)

LIFE_ROWS = (
    at_most("start", "start to first answer", "s", 0.2, start_to_first_answer),
    at_most("partitions-create", "create {partitions} partitions", "s", 2.0, create_partitions),
    at_most("partitions-clean", "{partitions} partitions: clean restart", "s", 0.3, restart_with_partitions("clean")),
    at_most("partitions-killed", "{partitions} partitions: after kill -9", "s", 0.3, restart_with_partitions("kill")),
    at_most("unflushed", "restart after kill -9, {unflushed} GB unflushed", "s", 0.3, restart_with_unflushed),
)
