"""Three brokers, elections from the in-sync set alone, and everything else that can go wrong: what was acknowledged
with acks=all stays, what a consumer read anywhere stays, and all logs are one in the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Final

import pytest
from broker.partitions.members import Cluster, content

from headrace.client.errors import ClientError
from headrace.sim.client import SimClient
from headrace.wire.batch import BATCH_OVERHEAD, iter_headers, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.records import decode_batch

NODES: Final = (1, 2, 3)


class Chaos:
    """A cluster, a controller that elects, and a hand that breaks things."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"chaos {seed}")
        self.synced = self.rng.random() < 0.5
        settings = {"acks_flush": "before-reply"} if self.synced else {}
        self.changes_lanes = seed % 2 == 1
        """Whether a follower that lacks two batches is far behind, and fetches them over another connection."""
        if self.changes_lanes:
            settings["replica_fetch_max_bytes"] = "1"
        self.cluster = Cluster(3, seed=seed, **settings)
        self.acknowledged: list[bytes] = []
        self.count = 0
        self.tasks: set[asyncio.Future[None]] = set()
        self.readers = {node: SimClient(self.cluster.world, f"reader{node}", f"broker{node}") for node in NODES}
        self.reading: set[int] = set()
        self.read_of_followers = 0
        self.read: dict[int, bytes] = {}
        """Every batch that a consumer got, from whichever replica, by its base offset."""

    def is_up(self, node: int) -> bool:
        return self.cluster.machines[node].broker is not None

    async def produce(self) -> None:
        """One batch with acks=all, through whoever believes to lead."""
        leaders = [node for node in NODES if self.is_up(node) and ("t", 0) in self.cluster[node].replicas.by_name]
        if not leaders:
            return
        member = self.cluster[self.rng.choice(leaders)]
        self.count += 1
        value = b"%d " % self.count + b"x" * self.rng.choice((1, 1000, 30_000))
        replica = member.replicas.find("t", 0)
        if isinstance(replica, ErrorCode) or replica.under_min_isr or not replica.takes_appends:
            return
        if await member.produce(value, timeout_ms=20_000) is ErrorCode.NONE:
            self.acknowledged.append(value)

    async def consume(self, node: int) -> None:
        """Reads at a node, whether it leads or follows, from a random offset on."""
        self.reading.add(node)
        offset = self.rng.randrange(self.count + 1)
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)
        topic = FetchTopic(topic_id=self.cluster.topic_id(), partitions=[partition])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=100_000, topics=[topic])
        try:
            answer = await self.readers[node].ask(request, FetchResponse, 17)
        except ClientError:
            return
        finally:
            self.reading.discard(node)
        records = answer.responses[0].partitions[0].records or b""
        assert not isinstance(records, FileSlice)
        data = bytes(records)
        at = 0
        while len(data) - at > BATCH_OVERHEAD and (header := read_header(data, at)).size <= len(data) - at:
            batch = data[at : at + header.size]
            at += header.size
            assert self.read.setdefault(header.base_offset, batch) == batch, "two replicas differ"
            if self.is_up(node) and ("t", 0) not in self.cluster[node].replicas.by_name:
                self.read_of_followers += 1

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # --- the controller

    def fence(self, node: int) -> None:
        """A broker is gone: it leaves the in-sync set, unless it is the last of it, and leads no more."""
        known = self.cluster.partition()
        isr = [each for each in known.isr if each != node] or list(known.isr)
        if isr == list(known.isr) and known.leader != node:
            return
        self.elect(isr)

    def elect(self, isr: list[int]) -> None:
        able = [each for each in isr if self.is_up(each)]
        self.cluster.change(isr=isr, leader=self.rng.choice(able) if able else -1)

    async def restart(self, node: int) -> None:
        await self.cluster.machines[node].ready()
        self.cluster.register(node)
        if self.cluster.partition().leader == -1:
            self.elect(list(self.cluster.partition().isr))

    # --- what goes wrong

    async def step(self) -> None:
        cluster, rng = self.cluster, self.rng
        faults = ("cut", "heal", "elect", "kill", "stop", "deaf", "hear", "pause", "pause")
        kind = rng.choice(("produce",) * 8 + ("consume",) * 6 + faults)
        node = rng.choice(NODES)
        if kind == "produce":
            self.begin(self.produce())
        elif kind == "consume":
            if node not in self.reading:
                self.begin(self.consume(node))
        elif kind == "cut":
            other = rng.choice([each for each in NODES if each != node])
            cluster.world.network.partition(f"broker{node}", f"broker{other}")
        elif kind == "heal":
            cluster.world.network.heal()
        elif kind == "elect":
            self.elect(list(cluster.partition().isr))
        elif kind in ("kill", "stop") and self.is_up(node):
            if kind == "kill":
                cluster.machines[node].kill(power=self.synced and rng.random() < 0.5)
            else:
                await cluster.machines[node].stop()
            cluster.deaf.discard(node)
            self.fence(node)
            await self.restart(node)
        elif kind == "deaf":
            cluster.deaf.add(node)
        elif kind == "hear":
            self.hear()
        else:
            await asyncio.sleep(rng.uniform(0, 2))
        await asyncio.sleep(rng.uniform(0, 0.05))

    def hear(self) -> None:
        self.cluster.deaf.clear()
        for node in NODES:
            if self.is_up(node):
                self.cluster.hears(node)

    async def run(self) -> None:
        cluster = self.cluster
        cluster.create(replicas=NODES, min_insync_replicas="2", segment_bytes="1048576")
        for node in NODES if self.changes_lanes else ():
            cluster.create(f"beside-{node}", replicas=NODES, leader=node)
        for _ in range(200):
            await self.step()
        cluster.world.network.heal()
        self.hear()
        cluster.world.calm_since = cluster.world.loop.time()
        for node in NODES:
            if node not in cluster.partition().isr or cluster.partition().leader == -1:
                await cluster.machines[node].ready()
        if cluster.partition().leader == -1:
            self.elect(list(cluster.partition().isr))
        if self.tasks:
            await asyncio.wait(list(self.tasks), timeout=60)  # nobody answers for a broker that was killed
        await cluster.until(lambda: set(cluster.partition().isr) == set(NODES), 120)
        leader = cluster[cluster.partition().leader]
        assert await leader.produce(b"end") is ErrorCode.NONE
        end = leader.log().end_offset
        await cluster.until(lambda: all(cluster[node].replica().high_watermark == end for node in NODES))
        logs = [content(cluster[node].log()) for node in NODES]
        assert logs[0] == logs[1] == logs[2]
        values: list[bytes] = []
        for at, header in iter_headers(logs[0]):
            batch = logs[0][at : at + header.size]
            values += [bytes(record.value or b"") for record in decode_batch(batch)]
            assert self.read.pop(header.base_offset, batch) == batch, "what was read as committed stays"
        assert not self.read
        assert len(values) == len(set(values)), "nothing is written twice"
        assert not [value[:20] for value in self.acknowledged if value not in set(values)]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))])
def test_what_was_acknowledged_stays(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.cluster.run(chaos.run)
    assert chaos.acknowledged and chaos.read_of_followers
