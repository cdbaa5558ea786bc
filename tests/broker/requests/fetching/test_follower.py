"""Fetches of followers: what they may read, what they count for, who is refused, and how they learn of divergence."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.partitions.members import Cluster

from headrace.broker.requests.resting import RestingPartitions
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


def test_a_request_behind_it_ends_the_wait_of_a_follower_and_of_nobody_else() -> None:
    """A follower says so that it has more to fetch."""
    cluster = led()

    async def test() -> None:
        cluster.create()
        connection = await cluster.client.connection()
        for follower, wait_s in ((2, 0.0), (-1, 2.0)):
            began = cluster[1].node.clock.monotonic()
            parked = asyncio.ensure_future(one(cluster, 0, follower=follower, wait_ms=2000))
            await cluster.until(lambda: cluster[1].fetches.waiting == 1)
            versions = await connection.ask_versions(timeout_s=10)
            assert parked.done() and not versions.error_code
            answer = await parked
            assert (answer.error_code, len(answer.records), cluster[1].fetches.waiting) == (0, 0, 0)
            assert wait_s <= cluster[1].node.clock.monotonic() - began < wait_s + 0.1, "by the broker's own clock"

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


async def at_rest(cluster: Cluster, **more: Any) -> Any:
    """A session of broker 2, whose partition rests; the id of the session, whose next epoch is 2."""
    opened = await ask(cluster, cluster[1].log().end_offset, session=(0, 0), **more)
    quiet = await ask(cluster, 0, session=(opened.session_id, 1), named=False)
    assert quiet.responses == [] and rested(cluster) == 1
    return opened.session_id


def rested(cluster: Cluster) -> int:
    """How many partitions rest in the sessions of followers."""
    kept = [session.kept for session in cluster[1].fetch_sessions.sessions.values()]
    assert len(cluster[1].replica().follower_waiters) <= len(kept), "whoever is gone waits for nothing"
    return sum(len(each) for each in kept if isinstance(each, RestingPartitions))


def test_what_rests_is_not_looked_at_and_counts_as_fetched() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        state = cluster[1].replica().state
        session = await at_rest(cluster)
        known = state.followers[2]
        before = known.fetched_at_ms
        for epoch in range(2, 6):
            await asyncio.sleep(1)
            assert (await ask(cluster, 0, session=(session, epoch), named=False)).responses == []
            assert rested(cluster) == 1 and known.fetched_at_ms == before, "one note for all that rests"
        await cluster[1].append(b"a")
        assert rested(cluster) == 0 and known.fetched_at_ms == known.last_caught_up_ms
        assert before + 4000 <= known.fetched_at_ms <= before + 4500

    cluster.run(test)


def test_an_append_wakes_what_rests_and_the_fetch_that_waits_beside_it() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        session = await at_rest(cluster)
        parked = asyncio.ensure_future(ask(cluster, 0, session=(session, 2), named=False, wait_ms=5000))
        await asyncio.sleep(1)
        assert not parked.done()
        began = cluster.world.loop.time()
        await cluster[1].append(b"a")
        assert len((await parked).responses[0].partitions[0].records) > 0
        assert cluster.world.loop.time() - began < 0.1 and rested(cluster) == 0
        told = await ask(cluster, 1, session=(session, 3))
        assert told.responses[0].partitions[0].high_watermark == 1 and rested(cluster) == 0
        assert (await ask(cluster, 0, session=(session, 4), named=False)).responses == [] and rested(cluster) == 1

    cluster.run(test)


def test_what_else_wakes_what_rests() -> None:
    cluster = led()
    cluster.register(3)

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3), isr=[1, 2])
        leader = cluster[1]
        await leader.append(b"a")
        await one(cluster, 1)
        session = await at_rest(cluster)
        # Its log begins elsewhere, by the hand of retention.
        leader.log().delete_records_before(1)
        told = await ask(cluster, 0, session=(session, 2), named=False)
        assert told.responses[0].partitions[0].log_start_offset == 1
        assert (await ask(cluster, 0, session=(session, 3), named=False)).responses == [] and rested(cluster) == 1
        # Another replica comes into the in-sync set.
        await one(cluster, 1, follower=3)
        await cluster.until(lambda: len(leader.replica().state.isr) == 3)
        assert rested(cluster) == 0
        assert (await ask(cluster, 0, session=(session, 4), named=False)).responses == [] and rested(cluster) == 1
        # The request names it.
        await ask(cluster, 1, session=(session, 5), named=True)
        assert rested(cluster) == 1
        # The leader's epoch is another one.
        cluster.change(leader=1)
        fenced = await ask(cluster, 0, session=(session, 6), named=False)
        assert fenced.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH and rested(cluster) == 0

    cluster.run(test)


def test_an_earlier_life_does_not_rest() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        session = await at_rest(cluster)
        epoch = cluster.image.brokers[2].epoch
        cluster.register(2)
        late = await ask(cluster, 0, session=(session, 2), named=False, broker_epoch=epoch)
        assert late.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and rested(cluster) == 0

    cluster.run(test)


def test_a_session_that_ends_leaves_nothing_behind() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        waiters = cluster[1].replica().follower_waiters
        session = await at_rest(cluster)
        assert len(waiters) == 1
        await ask(cluster, 0, session=(session, -1))
        assert not waiters and not cluster[1].fetch_sessions.sessions
        session = await at_rest(cluster)
        consumed = await ask(cluster, 0, session=(session, 2), named=False, follower=-1)
        assert consumed.error_code == 0 and not waiters, "nobody is sure that this is the follower"

    cluster.run(test)


def test_a_follower_that_rested_and_comes_no_more_leaves_the_in_sync_set() -> None:
    cluster = led()

    async def test() -> None:
        cluster.create()
        leader = cluster[1]
        await at_rest(cluster)
        await asyncio.sleep(60)
        assert leader.replica().state.isr == (1, 2), "it has everything"
        await leader.append(b"a")
        await cluster.until(lambda: leader.replica().state.isr == (1,))
        assert leader.replica().high_watermark == 1

    cluster.run(test)
