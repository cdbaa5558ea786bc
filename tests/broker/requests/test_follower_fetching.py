"""Fetches of followers: what they may read, what they count for, who is refused, and how they learn of divergence."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.partitions.members import Cluster

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)


async def ask(
    cluster: Cluster,
    offset: int,
    *,
    follower: int = 2,
    epoch: int = 0,
    broker_epoch: int | None = None,
    last_epoch: int = -1,
    wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
    named: bool = True,
) -> Any:
    if broker_epoch is None:
        known = cluster.image.brokers.get(follower)
        broker_epoch = -1 if known is None else known.epoch
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=follower, replica_epoch=broker_epoch),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic_id=cluster.topic_id(), partitions=[partition])] if named else [],
    )
    return await cluster.client.ask(request, FetchResponse, 17)


async def one(cluster: Cluster, offset: int, **more: Any) -> Any:
    return (await ask(cluster, offset, **more)).responses[0].partitions[0]


def led() -> Cluster:
    """Broker 1 leads, broker 2 is played by the test."""
    cluster = Cluster(1)
    cluster.register(2)
    return cluster


def test_a_follower_reads_to_the_end_and_moves_the_high_watermark() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        leader = cluster[1]
        await leader.append(b"a")
        await leader.append(b"b")
        assert leader.replica().high_watermark == 0
        first = await one(cluster, 0)
        assert (first.error_code, first.high_watermark, len(first.records)) == (0, 0, leader.log().size_bytes())
        done = asyncio.ensure_future(leader.produce(b"c"))
        second = await one(cluster, 2)
        assert (second.high_watermark, leader.replica().high_watermark) == (2, 2)
        assert not done.done()
        await one(cluster, 3)
        assert await done is ErrorCode.NONE and leader.replica().high_watermark == 3

    cluster.run(test)


def test_consumers_read_what_is_committed_and_no_more() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        await cluster[1].append(b"a")
        consumed = await one(cluster, 0, follower=-1)
        assert (consumed.error_code, consumed.high_watermark, len(consumed.records)) == (0, 0, 0)

    cluster.run(test)


def test_new_data_wake_a_parked_fetch_of_a_follower() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        parked = asyncio.ensure_future(one(cluster, 0, wait_ms=5000))
        await asyncio.sleep(1)
        assert not parked.done()
        began = cluster.world.loop.time()
        await cluster[1].append(b"a")
        assert len((await parked).records) > 0 and cluster.world.loop.time() - began < 0.1
        parked = asyncio.ensure_future(one(cluster, 1, wait_ms=5000))
        await asyncio.sleep(1)
        cluster.change(leader=2)
        assert (await parked).error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        assert cluster[1].fetches.waiting == 0

    cluster.run(test)


def test_a_fetch_that_waited_for_nothing_tells_what_is_committed_by_then() -> None:
    cluster = led()
    cluster.register(3)

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3))
        await cluster[1].append(b"a")
        await one(cluster, 1)
        parked = asyncio.ensure_future(one(cluster, 1, wait_ms=5000))
        await asyncio.sleep(1)
        assert cluster[1].replica().high_watermark == 0
        state = cluster[1].replica().state
        state.fetched(3, cluster.image.brokers[3].epoch, 1, 0, 1)  # over a connection of its own
        assert state.high_watermark == 1
        answer = await parked
        assert (answer.error_code, answer.high_watermark, len(answer.records)) == (0, 1, 0)

    cluster.run(test)


def test_refusals_and_their_order() -> None:
    cluster = led()
    cluster.register(3)

    async def test() -> None:
        cluster.create()
        leader = cluster[1]
        await leader.append(b"a", b"b")
        cluster.change(leader=1)
        await leader.append(b"c")
        leader.log().delete_records_before(1)
        now = cluster.image.brokers[2].epoch
        refused = [
            (ErrorCode.FENCED_LEADER_EPOCH, {"offset": 0, "epoch": 0, "follower": 3}),
            (ErrorCode.UNKNOWN_LEADER_EPOCH, {"offset": 0, "epoch": 2}),
            (ErrorCode.UNKNOWN_LEADER_EPOCH, {"offset": 3, "epoch": 1, "follower": 3}),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, {"offset": 0, "epoch": 1, "broker_epoch": now - 1}),
            (ErrorCode.OFFSET_OUT_OF_RANGE, {"offset": 0, "epoch": 1, "last_epoch": 0}),
            (ErrorCode.OFFSET_OUT_OF_RANGE, {"offset": 3, "epoch": 1, "last_epoch": 4}),
            (ErrorCode.OFFSET_OUT_OF_RANGE, {"offset": 9, "epoch": 1}),
            (ErrorCode.NONE, {"offset": 3, "epoch": -1}),
        ]
        for error, asked in refused:
            assert (await one(cluster, asked.pop("offset"), **asked)).error_code == error, asked
        cluster.change(leader=2)
        fenced = await one(cluster, 3, epoch=1)
        assert (fenced.error_code, fenced.current_leader.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, 2)
        assert (await one(cluster, 3, epoch=2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    cluster.run(test)


def test_a_divergence_says_where_and_counts_for_nothing() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        leader = cluster[1]
        await leader.append(b"a", b"b")
        cluster.change(leader=1)
        cluster.change(leader=1)
        await leader.append(b"c")
        for offset, last_epoch in ((5, 0), (3, 1)):
            answer = await one(cluster, offset, epoch=2, last_epoch=last_epoch)
            found = answer.diverging_epoch
            assert (answer.error_code, found.epoch, found.end_offset) == (0, 0, 2)
        assert leader.replica().state.followers[2].log_end == -1
        answer = await one(cluster, 2, epoch=2, last_epoch=0)
        assert answer.diverging_epoch is None and leader.replica().state.followers[2].log_end == 2

    cluster.run(test)


def test_a_session_tells_a_high_watermark_that_moved() -> None:
    cluster = led()
    cluster.register(3)

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3))
        await cluster[1].append(b"a")
        opened = await ask(cluster, 1, session=(0, 0))
        assert opened.session_id and opened.responses[0].partitions[0].high_watermark == 0
        quiet = await ask(cluster, 1, session=(opened.session_id, 1), named=False)
        assert quiet.responses == []
        await one(cluster, 1, follower=3)
        told = await ask(cluster, 1, session=(opened.session_id, 2), named=False)
        assert told.responses[0].partitions[0].high_watermark == 1

    cluster.run(test)


def test_a_follower_that_has_caught_up_joins_the_in_sync_set_with_its_epoch() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create(isr=[1])
        leader = cluster[1]
        await leader.append(b"a")
        await one(cluster, 0)
        assert cluster.answers == []
        await one(cluster, 1)
        await cluster.until(lambda: leader.replica().state.isr == (1, 2))
        (asked,) = cluster.answers
        members = tuple((node, cluster.image.brokers[node].epoch) for node in (1, 2))
        assert asked.broker_epoch == members[0][1] and asked.changes[0].members == members
        # It comes no more: it leaves again.
        await leader.append(b"b")
        await cluster.until(lambda: leader.replica().state.isr == (1,))
        assert leader.replica().high_watermark == 2

    cluster.run(test)
