"""Replication at a rate: replicas out of the in-sync set are held back, the others are not (KIP-73)."""

from __future__ import annotations

import asyncio

import pytest
from broker.partitions.members import Cluster

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import metadata_records as mr

RATE = 1_000_000
LEADER, FOLLOWER = "leader.replication.throttled", "follower.replication.throttled"


def set_rate(cluster: Cluster, name: str, rate: int) -> None:
    """For every broker, while it runs."""
    cluster.write(mr.ConfigRecord(resource_type=4, resource_name="", name=name, value=str(rate)))


async def fill(cluster: Cluster, megabytes: int) -> None:
    for _ in range(5 * megabytes):
        await cluster[1].append(b"x" * 200_000)


async def measure(cluster: Cluster, seconds: float) -> float:
    """Bytes a second that the follower gets; it is to have something to fetch all the time."""
    began = cluster[2].log().size_bytes()
    await asyncio.sleep(seconds)
    assert cluster[2].log().end_offset < cluster[1].log().end_offset
    return (cluster[2].log().size_bytes() - began) / seconds


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
@pytest.mark.parametrize("named", ["*", "one by one"])
def test_a_replica_that_is_not_in_sync_comes_at_the_rate_until_that_is_another_one(side: str, named: str) -> None:
    cluster = Cluster(2)
    replicas = named if named == "*" else f"0:{1 if side == LEADER else 2},7:7"

    async def test() -> None:
        set_rate(cluster, f"{side}.rate", RATE)
        cluster.create(isr=(1,), configs={f"{side}.replicas": replicas})
        await fill(cluster, 30)
        await asyncio.sleep(2)
        assert await measure(cluster, 15) == pytest.approx(RATE, rel=0.2)
        assert cluster.partition().isr == (1,)
        set_rate(cluster, f"{side}.rate", RATE // 5)
        await asyncio.sleep(5)
        assert await measure(cluster, 50) == pytest.approx(RATE / 5, rel=0.2)  # 1 MB comes at a time
        set_rate(cluster, f"{side}.rate", 100 * RATE)
        await cluster.until(lambda: cluster.partition().isr == (1, 2), 2.0)

    cluster.run(test)


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_what_is_not_named_and_what_is_in_sync_is_not_held_back(side: str) -> None:
    cluster = Cluster(2)

    async def test() -> None:
        set_rate(cluster, f"{side}.rate", 1000)
        cluster.create(isr=(1,), configs={f"{side}.replicas": "1:1,1:2"})
        await fill(cluster, 3)
        await cluster.until(lambda: cluster.partition().isr == (1, 2), 2.0)
        cluster.create("in-sync", configs={f"{side}.replicas": "*"})
        began = cluster.world.loop.time()
        for _ in range(10):
            assert await cluster[1].produce(b"x" * 200_000, topic="in-sync") is ErrorCode.NONE
        assert cluster.world.loop.time() - began < 1.0
        assert cluster.partition("in-sync").isr == (1, 2)

    cluster.run(test)


def test_a_throttled_partition_keeps_no_other_waiting() -> None:
    cluster = Cluster(2)

    async def test() -> None:
        set_rate(cluster, f"{FOLLOWER}.rate", 10_000)
        cluster.create(isr=(1,), configs={f"{FOLLOWER}.replicas": "*"})
        await fill(cluster, 3)
        cluster.create("other")
        for _ in range(5):
            began = cluster.world.loop.time()
            assert await cluster[1].produce(b"x", topic="other") is ErrorCode.NONE
            assert cluster.world.loop.time() - began < 0.1
            await asyncio.sleep(0.2)
        assert cluster.partition().isr == (1,)

    cluster.run(test)
