"""DeleteRecords among brokers: answered when no replica that serves has the records, or why not."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.partitions.members import Cluster

from headrace.controller.in_sync import AlterPartitions, PartitionsAltered
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


async def delete(cluster: Cluster, offset: int, timeout_ms: int = 5000) -> tuple[ErrorCode, int]:
    """The error and the low watermark of the only partition."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    answer: Any = await cluster.client.ask(DeleteRecordsRequest(topics, timeout_ms), DeleteRecordsResponse, 2)
    result = answer.topics[0].partitions[0]
    return ErrorCode(result.error_code), result.low_watermark


def starts(cluster: Cluster, *nodes: int) -> list[int]:
    return [cluster[node].log().log_start_offset for node in nodes]


async def filled(cluster: Cluster) -> None:
    cluster.create(replicas=(1, 2, 3))
    assert await cluster[1].produce(b"a", b"b", b"c", b"d") is ErrorCode.NONE


def test_the_answer_waits_for_every_follower_and_no_longer() -> None:
    cluster = Cluster(3)

    async def test() -> None:
        await filled(cluster)
        began = cluster.world.loop.time()
        assert await delete(cluster, 3) == (ErrorCode.NONE, 3)
        assert starts(cluster, 1, 2, 3) == [3, 3, 3]
        assert cluster.world.loop.time() - began < 0.2, "a parked fetch of a follower is woken"
        assert await delete(cluster, 2) == (ErrorCode.NONE, 3)
        assert await delete(cluster, -1) == (ErrorCode.NONE, 4)
        assert await delete(cluster, 5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)

    cluster.run(test)


def test_a_follower_that_does_not_come_is_waited_for_as_long_as_was_said() -> None:
    cluster = Cluster(3)

    async def test() -> None:
        await filled(cluster)
        assert await delete(cluster, 1) == (ErrorCode.NONE, 1)
        cluster.world.network.partition("broker1", "broker3")
        began = cluster.world.loop.time()
        assert await delete(cluster, 2, 1000) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert 0.9 < cluster.world.loop.time() - began < 1.3
        assert starts(cluster, 1, 2, 3) == [2, 2, 1], "it takes place all the same"
        assert await delete(cluster, 3, 0) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        long = asyncio.ensure_future(delete(cluster, 3, 20_000))
        await asyncio.sleep(0.2)
        assert not long.done()
        cluster.world.network.heal()
        assert await long == (ErrorCode.NONE, 3)
        assert starts(cluster, 1, 2, 3) == [3, 3, 3]

    cluster.run(test)


def test_a_broker_that_is_fenced_is_not_waited_for_and_learns_it_later() -> None:
    cluster = Cluster(3)

    async def test() -> None:
        await filled(cluster)
        cluster.world.network.partition("broker1", "broker3")
        waiting = asyncio.ensure_future(delete(cluster, 3, 20_000))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        cluster.register(3, fenced=True)
        assert await waiting == (ErrorCode.NONE, 3)
        cluster.world.network.heal()
        cluster.register(3)
        await cluster.until(lambda: starts(cluster, 1, 2, 3) == [3, 3, 3])

    cluster.run(test)


def test_whoever_waits_hears_that_another_leads_and_the_next_leader_begins_there_too() -> None:
    cluster = Cluster(3)

    async def test() -> None:
        await filled(cluster)
        cluster.world.network.partition("broker1", "broker3")
        waiting = asyncio.ensure_future(delete(cluster, 2, 20_000))
        await asyncio.sleep(0.2)
        cluster.change(leader=2)
        assert (await waiting)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.world.network.heal()
        await cluster.until(lambda: starts(cluster, 1, 2, 3) == [2, 2, 2])
        for node in (1, 2, 3):
            await cluster.machines[node].stop()
            await cluster.machines[node].ready()
        assert starts(cluster, 2) == [2]

    cluster.run(test)


def test_a_topic_that_goes_answers_who_waits() -> None:
    cluster = Cluster(3)

    async def test() -> None:
        await filled(cluster)
        cluster.world.network.partition("broker1", "broker3")
        waiting = asyncio.ensure_future(delete(cluster, 2, 20_000))
        await asyncio.sleep(0.2)
        cluster.delete()
        assert (await waiting)[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    cluster.run(test)


class Watched(Cluster):
    """Knows where the log of broker 3 began whenever its leader asked for it to be in sync."""

    joins: list[int]

    async def alter(self, asked: AlterPartitions) -> PartitionsAltered:
        if any(3 in dict(change.members) for change in asked.changes):
            self.joins.append(self[3].log().log_start_offset)
        return await super().alter(asked)


def test_a_broker_that_missed_a_deletion_is_in_sync_only_once_it_has_deleted_too() -> None:
    cluster = Watched(3)
    cluster.joins = []

    async def test() -> None:
        await filled(cluster)
        cluster.machines[3].take_away()
        cluster.register(3, fenced=True)
        cluster.change(isr=[1, 2])
        assert await delete(cluster, 3) == (ErrorCode.NONE, 3)
        cluster.register(3)
        cluster.machines[3].bring_back()
        await cluster.machines[3].ready()
        await cluster.until(lambda: 3 in cluster.partition().isr)
        assert cluster.joins == [3], "it would lead with records whose deletion was confirmed"

    cluster.run(test)
