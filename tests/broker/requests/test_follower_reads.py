"""Consumers that read from followers (KIP-392): who sends them there, and what a follower answers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from broker.partitions.members import Cluster

from headrace.broker.requests.short_fetch import ShortFetch
from headrace.sim.client import SimClient
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Reader:
    """A consumer beside one broker."""

    def __init__(self, cluster: Cluster, node: int, rack: str = "") -> None:
        self.cluster = cluster
        self.client = SimClient(cluster.world, f"reader of {node}", f"broker{node}")
        self.rack = rack

    async def ask(
        self,
        offset: int,
        *,
        version: int = 17,
        epoch: int = -1,
        wait_ms: int = 0,
        isolation: int = 0,
        session: tuple[int, int] = (0, -1),
        named: bool = True,
    ) -> Any:
        topic_id, name = self.cluster.topic_id(), "t"
        partition = FetchPartition(
            partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        topic = FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            session_id=session[0],
            session_epoch=session[1],
            topics=[topic] if named else [],
            rack_id=self.rack if version >= 11 else "",
        )
        return await self.client.ask(request, FetchResponse, version)

    async def one(self, offset: int, **more: Any) -> Any:
        return (await self.ask(offset, **more)).responses[0].partitions[0]


async def written(cluster: Cluster, *values: bytes) -> None:
    """Written, and known to be committed by the followers too."""
    assert await cluster[1].produce(*values) is ErrorCode.NONE
    end = cluster[1].log().end_offset
    await cluster.until(lambda: cluster[2].replica().high_watermark == end)


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_follower_serves_what_it_knows_to_be_committed(isolation: int) -> None:
    cluster = Cluster(2)
    reader = Reader(cluster, 2)

    async def test() -> None:
        cluster.create()
        await written(cluster, b"a", b"b")
        read = await reader.one(0, isolation=isolation)
        assert (read.error_code, read.high_watermark, read.last_stable_offset) == (0, 2, 2)
        assert len(read.records) == cluster[2].log().size_bytes() > 0
        assert cluster[2].fetches.follower_bytes.value == len(read.records)
        assert cluster[1].fetches.follower_bytes.value == 0
        follower = cluster[2].replica()
        await cluster[1].append(b"c")
        await cluster.until(lambda: follower.log.end_offset == 3)
        assert follower.high_watermark == 2, "it has it, and does not know yet that others have it too"
        read = await reader.one(2, isolation=isolation)
        assert (read.error_code, len(read.records)) == (0, 0)
        read = await reader.one(3, isolation=isolation)
        assert (read.error_code, len(read.records)) == (0, 0)

    cluster.run(test)


def test_refusals_of_a_follower() -> None:
    cluster = Cluster(2)
    reader = Reader(cluster, 2)

    async def test() -> None:
        cluster.create()
        cluster.change(leader=1)
        await written(cluster, b"a", b"b", b"c")
        cluster[2].log().delete_records_before(1)
        refused = [
            (ErrorCode.OFFSET_OUT_OF_RANGE, {"offset": 4}),
            (ErrorCode.OFFSET_OUT_OF_RANGE, {"offset": 0}),
            (ErrorCode.FENCED_LEADER_EPOCH, {"offset": 1, "epoch": 0}),
            (ErrorCode.UNKNOWN_LEADER_EPOCH, {"offset": 1, "epoch": 2}),
            (ErrorCode.NONE, {"offset": 1, "epoch": 1}),
            (ErrorCode.NONE, {"offset": 1, "version": 11}),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, {"offset": 1, "version": 10}),
        ]
        for error, asked in refused:
            answer = await reader.one(asked.pop("offset"), **asked)
            assert answer.error_code == error, asked
            assert answer.high_watermark == (-1 if error else 3)
        follower = cluster[2].replica()
        follower.is_being_cut = True
        assert (await reader.one(1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        follower.is_being_cut = False
        cluster.change(replicas=[1], isr=[1])
        assert (await reader.one(1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    cluster.run(test)


def test_a_fetch_that_waits_at_a_follower_ends_with_what_is_committed_or_with_its_leader() -> None:
    cluster = Cluster(2)
    reader = Reader(cluster, 2)

    async def test() -> None:
        cluster.create()
        await written(cluster, b"a")
        parked = asyncio.ensure_future(reader.one(1, wait_ms=20_000))
        await asyncio.sleep(1)
        assert not parked.done()
        began = cluster.world.loop.time()
        await cluster[1].append(b"b")
        read = await parked
        assert (read.error_code, read.high_watermark) == (0, 2) and len(read.records)
        assert cluster.world.loop.time() - began < 0.7, "the leader tells it within replica.fetch.wait.max.ms"
        parked = asyncio.ensure_future(reader.one(2, epoch=0, wait_ms=20_000))
        await asyncio.sleep(1)
        cluster.change(leader=1)
        assert (await parked).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert cluster[2].fetches.waiting == 0
        parked = asyncio.ensure_future(reader.one(2, epoch=1, wait_ms=20_000))
        await asyncio.sleep(1)
        cluster.change(leader=2)
        assert (await parked).error_code == ErrorCode.FENCED_LEADER_EPOCH

    cluster.run(test)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the short path took a fetch, of one after the other."""
    answers: list[bool] = []
    answer = ShortFetch.answer

    def noted(self: ShortFetch, *arguments: Any) -> bool:
        answers.append(answer(self, *arguments))
        return answers[-1]

    monkeypatch.setattr(ShortFetch, "answer", noted)
    return answers


@pytest.mark.parametrize("rack", ["", "b"])
@pytest.mark.parametrize("version", [10, 11, 12, 13, 17])
def test_readers_of_a_follower_go_the_short_way_too(version: int, rack: str, taken: list[bool]) -> None:
    """Where they may read there at all, and to the same answers as those of the general path."""
    cluster = racked(RACK_AWARE)
    again = Reader(cluster, 2, rack)
    numbers = itertools.count()
    serves = version >= 11

    async def alike(offset: int, **more: Any) -> Any:
        fresh = Reader(cluster, 2, rack)
        fresh.client = SimClient(cluster.world, f"fresh {next(numbers)}", "broker2")
        said = await again.one(offset, version=version, **more)
        assert said == await fresh.one(offset, version=version, **more), offset
        return said

    async def test() -> None:
        cluster.create(replicas=(1, 2))
        await written(cluster, b"a", b"b", b"c")
        for offset in (0, 1, 2, 0):
            for isolation in (0, 1):
                read = await alike(offset, isolation=isolation)
                assert (read.error_code == 0 and len(read.records) > 0) == serves
        assert taken == [serves] * 7
        before, count = cluster[2].fetches.follower_bytes.value, len(taken)
        read = await again.one(1, version=version)
        assert cluster[2].fetches.follower_bytes.value == before + len(read.records)
        assert cluster[2].replica().bytes_out == 0
        assert len((await alike(3)).records) == 0 and taken[count:] == [serves, False]
        follower = cluster[2].replica()
        follower.is_being_cut = True
        assert (await alike(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        follower.is_being_cut = False
        cluster.change(leader=2)
        assert len((await alike(1)).records) and cluster[2].replica().bytes_out > 0
        cluster.change(replicas=[1], isr=[1], leader=1)
        assert (await alike(1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert taken[count + 2 :] == [False, True, False]

    cluster.run(test)


def test_a_session_at_a_follower_goes_the_short_way(taken: list[bool]) -> None:
    cluster = Cluster(2)
    reader = Reader(cluster, 2)

    async def test() -> None:
        cluster.create()
        await written(cluster, b"a", b"b", b"c")
        opened = await reader.ask(0, session=(0, 0))
        for epoch, offset in enumerate((1, 2), 1):
            read = await reader.ask(offset, session=(opened.session_id, epoch))
            assert len(read.responses[0].partitions[0].records)
        assert taken == [True, True]

    cluster.run(test)


def racked(selector: str = "") -> Cluster:
    cluster = Cluster(3, replica_selector_class=selector)
    cluster.racks = {1: "a", 2: "b", 3: "b"}
    return cluster


def test_a_leader_sends_a_consumer_to_its_rack_where_the_settings_say_so() -> None:
    cluster = racked(RACK_AWARE)
    near, far, old = Reader(cluster, 1, "a"), Reader(cluster, 1, "b"), Reader(cluster, 1)

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3))
        await written(cluster, b"a", b"b")
        await cluster.until(lambda: cluster[1].replica().state.followers[3].log_end == 2)
        sent = await far.one(0, wait_ms=5000)
        assert (sent.error_code, sent.high_watermark) == (0, 2) and sent.preferred_read_replica in (2, 3)
        assert (sent.last_stable_offset, sent.log_start_offset, len(sent.records)) == (2, 0, 0)
        for reader, version in ((near, 17), (old, 17), (far, 10)):
            read = await reader.one(0, version=version)
            assert (read.error_code, read.preferred_read_replica) == (0, -1) and len(read.records)
        assert (await far.one(3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        cluster.change(isr=[1, 2])
        assert (await far.one(0)).preferred_read_replica == 2

    cluster.run(test)


def test_a_reader_of_the_leader_is_sent_away_once_the_near_one_has_come_back() -> None:
    """In a session, and over the short path that its fetches had taken until then."""
    cluster = racked(RACK_AWARE)
    far = Reader(cluster, 1, "b")

    async def test() -> None:
        cluster.create(replicas=(1, 2), isr=[1])
        cluster.world.network.partition("broker1", "broker2")
        for _ in range(4):
            await cluster[1].append(b"x" * 100)
        opened = await far.ask(0, session=(0, 0))
        assert len(opened.responses[0].partitions[0].records)
        for offset in (1, 2, 3):
            read = await far.ask(offset, session=(opened.session_id, offset))
            assert len(read.responses[0].partitions[0].records)
        cluster.world.network.heal()
        await cluster.until(lambda: cluster.partition().isr == (1, 2))
        sent = await far.ask(2, session=(opened.session_id, 4))
        assert sent.responses[0].partitions[0].preferred_read_replica == 2
        again = await far.ask(2, session=(opened.session_id, 5), named=False)
        assert again.responses[0].partitions[0].preferred_read_replica == 2

    cluster.run(test)


def test_without_the_setting_a_rack_is_nothing() -> None:
    cluster = racked()
    far = Reader(cluster, 1, "b")

    async def test() -> None:
        cluster.create(replicas=(1, 2, 3))
        await written(cluster, b"a")
        assert len((await far.one(0)).records)

    cluster.run(test)
