"""Two Kafka controllers and one of ours in one static quorum: both kinds lead, leaders are stopped and killed, and the
metadata logs of all three are equal in the end. Each kind loads the other's snapshot."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from broker.test_controller_node import CLUSTER, NODES, PATIENCE_S, Quorum
from peers.kafka import java, kafka_tool

from headrace.broker.storage.storage_format import snapshot_name
from headrace.wire.batch import read_header

pytestmark = pytest.mark.jvm

OURS = 1
ROUNDS_MIN, ROUNDS_MAX = 4, 16
"""Ends of leaders: until both kinds have led."""


class Mixed(Quorum):
    """Node 1 is ours, 2 and 3 are Apache Kafka's; every one is a process of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def file(self, node: int) -> Path:
        return self.folder / f"{node}.properties"

    def format(self) -> None:
        for node in NODES:
            settings = {**self.config(node).static, "listener.security.protocol.map": "CONTROLLER:PLAINTEXT"}
            self.file(node).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            arguments = ("format", "-t", CLUSTER, "-c", str(self.file(node)))
            if node == OURS:
                subprocess.run([sys.executable, "-m", "headrace.cli", "storage", *arguments], check=True, timeout=60)
            else:
                kafka_tool("kafka.tools.StorageTool", *arguments)

    def run(self, node: int) -> None:
        ours = [sys.executable, "-m", "headrace.cli", "serve", str(self.file(node))]
        command = ours if node == OURS else java("kafka.Kafka", str(self.file(node)))
        with (self.folder / f"{node}.out").open("ab") as out:
            self.processes[node] = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder)

    def end(self, node: int, how: signal.Signals) -> None:
        process = self.processes.pop(node)
        process.send_signal(how)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()

    async def all_follow(self) -> None:
        """Every voter has what the leader had a moment ago."""
        _, before = await self.leader(self.processes)
        for _ in range(int(PATIENCE_S / 0.05)):
            _, said = await self.leader(self.processes)
            if min(voter.log_end_offset for voter in said.current_voters) >= before.high_watermark:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("a voter does not follow")

    def log_start(self, node: int) -> int:
        """The offset that a node's log begins at, by the names of its files."""
        names = (self.folder / str(node) / "__cluster_metadata-0").glob("*.log")
        return min(int(path.stem) for path in names)

    def snapshots(self, node: int) -> set[str]:
        """The names of a node's snapshots, but for the one that formatting leaves."""
        found = (self.folder / str(node) / "__cluster_metadata-0").glob("*-*.checkpoint")
        return {path.name for path in found} - {snapshot_name(0, 0)}

    def batches(self, node: int) -> dict[int, tuple[int, int]]:
        """Of each batch of a node's metadata log, by its offset: epoch and checksum."""
        found = {}
        for path in sorted((self.folder / str(node) / "__cluster_metadata-0").glob("*.log")):
            data, at = path.read_bytes(), 0
            while len(data) - at > 61 and (header := read_header(data, at)).magic == 2:
                found[header.base_offset] = (header.partition_leader_epoch, header.crc)
                at += header.size
        return found


async def test_both_kinds_lead_and_all_have_the_same_log(tmp_path: Path) -> None:
    quorum = Mixed(tmp_path)
    led: set[int] = set()
    try:
        quorum.format()
        for node in NODES:
            quorum.run(node)
        for number in range(ROUNDS_MAX):
            leader = await quorum.confirm(quorum.processes, 1_000_000 + number)
            led.add(leader)
            await quorum.all_follow()
            quorum.end(leader, signal.SIGKILL if number % 2 else signal.SIGTERM)
            led.add(await quorum.confirm(quorum.processes, 2_000_000 + number))
            quorum.run(leader)
            if number + 1 >= ROUNDS_MIN and OURS in led and led != {OURS}:
                break
        assert OURS in led and led != {OURS}
        await quorum.all_follow()
    finally:
        for node in list(quorum.processes):
            quorum.end(node, signal.SIGKILL)
        await quorum.client.close()
    logs = {node: quorum.batches(node) for node in NODES}
    common = set.intersection(*(set(log) for log in logs.values()))
    assert len(common) > 10
    assert all(logs[OURS][offset] == logs[node][offset] for offset in common for node in NODES)
    assert all(set(log) - common <= {offset for offset in log if offset > max(common)} for log in logs.values())


SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1000", "metadata.max.retention.bytes": "1"}


@asynccontextmanager
async def with_small_snapshots(folder: Path) -> AsyncIterator[Mixed]:
    quorum = Mixed(folder, SNAPSHOTS)
    try:
        quorum.format()
        yield quorum
    finally:
        for node in list(quorum.processes):
            quorum.end(node, signal.SIGKILL)
        await quorum.client.close()


async def joins_by_snapshot(quorum: Mixed, node: int) -> None:
    """A voter that was never up finds the others with snapshots, loads one and counts."""
    quorum.run(node)
    await quorum.confirm(quorum.processes, 5_000_000)
    await quorum.all_follow()
    assert quorum.log_start(node) > 0 and quorum.snapshots(node)
    others = [other for other in quorum.processes if other != node]
    leader, _ = await quorum.leader(quorum.processes)
    quorum.end(next(other for other in others if other != leader), signal.SIGKILL)
    await quorum.confirm(quorum.processes, 6_000_000)  # it counts now
    logs = {each: quorum.batches(each) for each in (node, leader)}
    common = set(logs[node]) & set(logs[leader])
    assert common and all(logs[node][offset] == logs[leader][offset] for offset in common)


async def test_ours_loads_the_snapshot_of_a_kafka_controller(tmp_path: Path) -> None:
    async with with_small_snapshots(tmp_path) as quorum:
        kafkas = [node for node in NODES if node != OURS]
        for node in kafkas:
            quorum.run(node)
        for number in itertools.count(1_000_000):
            await quorum.confirm(quorum.processes, number)
            if all(quorum.snapshots(node) for node in kafkas):
                break
        await joins_by_snapshot(quorum, OURS)


async def test_a_kafka_controller_loads_our_snapshot(tmp_path: Path) -> None:
    async with with_small_snapshots(tmp_path) as quorum:
        first, second = (node for node in NODES if node != OURS)
        quorum.run(OURS)
        quorum.run(first)
        for number in itertools.count(1_000_000):
            if await quorum.confirm(quorum.processes, number) != OURS:
                quorum.end(first, signal.SIGTERM)  # it names ours as its successor
                quorum.run(first)
            elif quorum.log_start(OURS) > 0:
                break
        await joins_by_snapshot(quorum, second)
